// SPDX-License-Identifier: Apache-2.0
// ConWeave (SIGCOMM'23) at one leaf: moves flows off ways that have become slow, and puts the packets that overtake
// others then in order again before hosts see them. Units: picoseconds.
//
// DESIGN NOTES
// 1. The leaf of the sender asks the receiver's with a packet of each flow in each round trip. When the reply is late
//    by `extra_reply`, the flow's next packet is the last one of its way, the tail; those behind it go another way,
//    marked as rerouted, until the other leaf says that it is done with the old one. So packets of a flow are on two
//    ways at most.
// 2. The leaf of the receiver keeps rerouted packets until the tail has come, or until it should have come: when it was
//    sent, with the delay of what came before it by its way, and `extra_flush`. They are not counted in the buffer.
// 3. A packet that comes marked by ECN has its leaf tell the other one not to move flows to that way for `way_busy`.
// 4. Replies and the like are packets of the upper class to the sender, which its leaf takes. How long a reply may take
//    is the shortest time that one from that leaf has taken, with `extra_reply`.
// 5. A flow that has been idle begins anew, on any way, and is forgotten when there are many. (The paper's switch has
//    room for so many flows, and lets others go by ECMP.)
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "fabric/packet.h"
#include "fabric/random.h"
#include "fabric/world.h"

namespace rove::fabric {

class Switch;

// As its public simulator has them.
struct ConWeaveConfig {
    Time extra_reply = 4 * kMicrosecond;
    Time way_busy = 16 * kMicrosecond;
    Time extra_flush = 16 * kMicrosecond;
    Time unknown_flush = 200 * kMicrosecond;  // where no packet came by the old way
    Time idle = 300 * kMicrosecond;
};

class ConWeave {
  public:
    // Free-running.
    struct Stats {
        uint64_t reroutes = 0;
        uint64_t held_packets = 0;      // that have waited for a tail
        uint64_t late_tails = 0;        // that were not waited for any longer
        uint64_t made_packets = 0;      // replies and the like
        uint64_t consumed_packets = 0;  // the same, that have come
    };

    ConWeave(World& world, Switch& self, const ConWeaveConfig& config);
    ~ConWeave();

    // By node: the leaf that a host is at. It stays the caller's.
    void set_leaves(const std::vector<uint32_t>& leaf_of);
    void receive(Packet& packet, uint32_t port);
    // Which of `choices` ways a packet takes from here; false: by ECMP.
    bool has_chosen(const Packet& packet, uint32_t choices, uint32_t& chosen) const;
    uint32_t held() const { return held_; }  // packets, now
    const Stats& stats() const { return stats_; }

  private:
    struct Source {
        Time last = 0;       // packet
        Time asked_at = 0;   // when `asks`
        Time tail_sent = 0;  // when `waits`
        uint32_t leaf = 0;
        uint16_t way = 0;
        uint8_t epoch = 0;  // the number of its ways so far
        bool known = false;
        bool asks = false;   // a reply is awaited
        bool waits = false;  // packets of the way before may be on their way
    };
    struct Destination;
    struct Way {
        Time busy_until = 0, told = 0;
    };

    void send(Packet& packet, uint32_t port);
    void arrive(Packet& packet, uint32_t port);
    void consume(Packet& packet);
    // To the leaf of the sender, about a packet of the flow that came by `port`.
    void answer(ConWeaveTag::Kind kind, const ConWeaveTag& about, uint64_t flow_hash, uint32_t port);
    // A way other than `now`, that is not busy; `now` where two that were drawn are.
    uint16_t draw_way(uint32_t leaf, uint16_t now, uint32_t choices);
    Way& way(uint32_t leaf, uint16_t number);
    Destination& destination(const Packet& packet);
    void forget_idle();

    World& world_;
    Switch& self_;
    const ConWeaveConfig config_;
    Random random_;
    const std::vector<uint32_t>* leaf_of_ = nullptr;
    std::unordered_map<uint64_t, Source> sources_;  // by hash, as well as those
    std::unordered_map<uint64_t, std::unique_ptr<Destination>> destinations_;
    size_t many_ = 1 << 12;               // flows, of both
    std::vector<std::vector<Way>> ways_;  // by leaf
    std::vector<Time> fastest_;           // reply, by leaf
    uint32_t held_ = 0;
    Stats stats_;
};

}  // namespace rove::fabric
