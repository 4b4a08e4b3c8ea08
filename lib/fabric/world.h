// SPDX-License-Identifier: Apache-2.0
// The state that all parts of a modelled network share: time, packets, the random seed, and the trace.
#pragma once

#include <functional>

#include "fabric/packet.h"
#include "fabric/random.h"
#include "fabric/scheduler.h"

namespace rove::fabric {

class Link;

// The events of a packet that a trace reports. kLost: a random loss. kCut: the link is down or went down. kDropped: a
// switch has no room or no route. kTrimmed: the switch forwards the headers only. kPaused and kResumed: a PFC frame has
// arrived, and the link in the opposite direction stops or continues.
enum class TraceEvent : uint8_t { kDelivered, kDamaged, kLost, kCut, kDropped, kTrimmed, kMarked, kPaused, kResumed };

class World {
  public:
    World(uint64_t seed, Carry carry) : carry(carry), seed_(seed) {}

    const Carry carry;
    Scheduler events;
    PacketPool packets;
    std::function<void(TraceEvent, const Link&, const Packet&)> trace;  // no trace if empty

    // Returns a new stream of random numbers for a component. Components are made in the same order in every run, so
    // each gets the same stream again.
    Random new_stream() { return {seed_, ++streams_}; }
    void trace_event(TraceEvent what, const Link& link, const Packet& packet) const {
        if (trace) trace(what, link, packet);
    }

  private:
    const uint64_t seed_;
    uint64_t streams_ = 0;
};

}  // namespace rove::fabric
