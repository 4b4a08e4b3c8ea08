// SPDX-License-Identifier: Apache-2.0
// ConWeave (SIGCOMM'23) at one leaf. It moves flows off slow paths, and reorders the packets that overtake others
// before hosts see them. Units: picoseconds.
//
// DESIGN NOTES
// 1. The sender's leaf probes the receiver's leaf with one packet of each flow per round trip. If the reply is late by
//    `extra_reply`, the flow's next packet is the last one of its path, the tail. The packets behind it take another
//    path and are marked as rerouted until the receiver's leaf reports that the old path is drained. A flow's packets
//    are thus on two paths at most.
// 2. The receiver's leaf keeps rerouted packets until the tail has arrived or should have arrived: that is its sending
//    time, plus the delay of the previous packet on its path, plus `extra_flush`. Kept packets do not count in the
//    buffer.
// 3. A packet that arrives with an ECN mark makes its leaf tell the sender's leaf not to move flows to that path for
//    `way_busy`.
// 4. Replies and notices are packets of the upper class to the sender, which its leaf consumes. The allowed reply time
//    is the shortest one seen from that leaf plus `extra_reply`.
// 5. An idle flow starts over on any path, and is forgotten when there are many flows. (The paper's switch has room for
//    a fixed number of flows and leaves the rest to ECMP.)
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "fabric/packet.h"
#include "fabric/random.h"
#include "fabric/world.h"

namespace rove::fabric {

class Switch;

// The defaults are taken from the public simulator.
struct ConWeaveConfig {
    Time extra_reply = 4 * kMicrosecond;
    Time way_busy = 16 * kMicrosecond;
    Time extra_flush = 16 * kMicrosecond;
    Time unknown_flush = 200 * kMicrosecond;  // if no packet arrived by the old path
    Time idle = 300 * kMicrosecond;
};

class ConWeave {
  public:
    // Counters that never decrease.
    struct Stats {
        uint64_t reroutes = 0;
        uint64_t held_packets = 0;      // packets that waited for a tail
        uint64_t late_tails = 0;        // tails that came after the wait had ended
        uint64_t made_packets = 0;      // replies and notices sent
        uint64_t consumed_packets = 0;  // replies and notices received
    };

    ConWeave(World& world, Switch& self, const ConWeaveConfig& config);
    ~ConWeave();

    // Sets the leaf of each host, by node number. The caller keeps the vector alive.
    void set_leaves(const std::vector<uint32_t>& leaf_of);
    void receive(Packet& packet, uint32_t port);
    // Sets `chosen` to the path, out of `choices`, that a packet takes from here. Returns false if ECMP decides.
    bool has_chosen(const Packet& packet, uint32_t choices, uint32_t& chosen) const;
    uint32_t held() const { return held_; }  // packets that wait for a tail now
    const Stats& stats() const { return stats_; }

  private:
    struct Source {
        Time last = 0;       // time of the last packet
        Time asked_at = 0;   // valid if `asks`
        Time tail_sent = 0;  // valid if `waits`
        uint32_t leaf = 0;
        uint16_t way = 0;
        uint8_t epoch = 0;  // the number of paths used until now
        bool known = false;
        bool asks = false;   // a reply is outstanding
        bool waits = false;  // packets of the previous path may still be in flight
    };
    struct Destination;
    struct Way {
        Time busy_until = 0, told = 0;
    };

    void send(Packet& packet, uint32_t port);
    void arrive(Packet& packet, uint32_t port);
    void consume(Packet& packet);
    // Sends a message to the sender's leaf about a packet of the flow that came by `port`.
    void answer(ConWeaveTag::Kind kind, const ConWeaveTag& about, uint64_t flow_hash, uint32_t port);
    // Returns a path other than `now` that is not busy, or `now` if both of two random candidates are busy.
    uint16_t draw_way(uint32_t leaf, uint16_t now, uint32_t choices);
    Way& way(uint32_t leaf, uint16_t number);
    Destination& destination(const Packet& packet);
    void forget_idle();

    World& world_;
    Switch& self_;
    const ConWeaveConfig config_;
    Random random_;
    const std::vector<uint32_t>* leaf_of_ = nullptr;
    std::unordered_map<uint64_t, Source> sources_;  // indexed by flow hash, like destinations_
    std::unordered_map<uint64_t, std::unique_ptr<Destination>> destinations_;
    size_t many_ = 1 << 12;               // flows in both maps before idle ones are dropped
    std::vector<std::vector<Way>> ways_;  // indexed by leaf
    std::vector<Time> fastest_;           // the fastest reply, by leaf
    uint32_t held_ = 0;
    Stats stats_;
};

}  // namespace rove::fabric
