// SPDX-License-Identifier: Apache-2.0
// What all parts of one modelled network share: time, packets, the seed, and who watches.
#pragma once

#include <functional>

#include "fabric/packet.h"
#include "fabric/random.h"
#include "fabric/scheduler.h"

namespace rove::fabric {

class Link;

// What a trace tells of a packet. Lost: by chance. Cut: the link is or went down. Dropped: no room in a switch, or no
// way from it; trimmed: its headers go on. Paused and resumed: a PFC frame has arrived, and the link against its
// direction stops or goes on.
enum class TraceEvent : uint8_t { kDelivered, kDamaged, kLost, kCut, kDropped, kTrimmed, kMarked, kPaused, kResumed };

class World {
  public:
    World(uint64_t seed, Carry carry) : carry(carry), seed_(seed) {}

    const Carry carry;
    Scheduler events;
    PacketPool packets;
    std::function<void(TraceEvent, const Link&, const Packet&)> trace;  // empty: nobody watches

    // A stream of random numbers of its own for a component. Components are made in the same order in every run.
    Random new_stream() { return {seed_, ++streams_}; }
    void trace_event(TraceEvent what, const Link& link, const Packet& packet) const {
        if (trace) trace(what, link, packet);
    }

  private:
    const uint64_t seed_;
    uint64_t streams_ = 0;
};

}  // namespace rove::fabric
