// SPDX-License-Identifier: Apache-2.0
// A switch with output queues in one shared buffer: RED/ECN, PFC, load balancing, trimming. Units: bytes, picoseconds.
//
// DESIGN NOTES
// 1. Packets of the upper class (Packet::urgent) pass by all of this: they are not counted in the buffer, not marked,
//    not held back. They are acknowledgements and trimmed headers, which are a few percent of the bytes.
// 2. What has no room is trimmed, takes the place of another packet, is deflected or dropped, in that order, as far as
//    each is configured.
// 3. What few networks have costs the others nothing: `plain_` says that there is only ECMP and a way to everywhere,
//    x_off_ and Port::watched that PFC has nothing to do.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "fabric/conga.h"
#include "fabric/conweave.h"
#include "fabric/forwarding.h"
#include "fabric/node.h"

namespace rove::fabric {

// Random early detection on the queue's present length (MP-RDMA section 3.2.1, equation 5): marks nothing up to k_min,
// everything beyond k_max, and with a probability that rises to p_max in between. DCTCP's is {1.0, k, k}.
// A packet is marked when it leaves, by what it leaves behind, as ns-3's RDMA switches do (SwitchNotifyDequeue): the
// news of a queue does not wait in it. What the switches of MP-RDMA's testbed do its text does not say.
struct Red {
    double p_max = 0;
    uint64_t k_min = UINT64_MAX, k_max = UINT64_MAX;  // never

    bool marks(uint64_t queued_bytes, Random& random) const {
        if (queued_bytes <= k_min) return false;
        if (queued_bytes > k_max) return true;
        return random.chance(p_max * static_cast<double>(queued_bytes - k_min) / static_cast<double>(k_max - k_min));
    }
};

// Priority flow control: a port is told to pause when more than x_off bytes that came in by it are in the buffer, and
// to resume when x_on or less are left. The buffer must hold x_off of every port, and for each what still comes until
// the pause takes effect: the cable's round trip at its rate and three frames. That it did is seen in the drops.
struct Pfc {
    uint64_t x_off = 64 << 10;
    uint64_t x_on = 32 << 10;
};

// PFC whose threshold follows the buffer, as Broadcom's switches have it and the ns-3 models of HPCC and ConWeave. Of
// the buffer each port has two frames for itself and its headroom; the rest is shared. A port is told to pause when it
// has more than alpha times what is free of that, and what comes then goes to its headroom; it may go on when that is
// empty and it is below the threshold again. A real switch repeats a pause until it ends, so it lasts until then.
// With `pause_time` it ends by itself, unless a packet comes that finds too many still; and what comes to a port that
// should pause is only refused when the whole shared part and then its headroom are full. So it is in the models of
// HPCC and ConWeave (5 us), whose networks thus have no links that wait for each other in a circle for ever.
struct DynamicPfc {
    double alpha = 1.0 / 16;
    uint32_t frame_bytes = 1114;  // the largest: of 1 KB of payload in mode mp, or set it
    Time pause_time = Link::kForever;
};

// Packets that a queue has no room for go on as their headers, in the upper class (NDP, SIGCOMM'17; Ultra Ethernet).
struct Trim {
    uint32_t header_bytes = 86;       // of a frame with MPETH and RETH, ICRC and FCS
    uint64_t queue_bytes = 64 << 10;  // the most that may wait of the upper class; what comes then is dropped
};

struct SwitchConfig {
    uint64_t buffer_bytes = 12 << 20;   // what a Trident 2 has, which DCQCN's testbed was built of
    uint64_t queue_bytes = UINT64_MAX;  // static threshold: the most for one output queue
    double alpha = 8;                   // dynamic threshold: the most is alpha times what is free in the buffer
    Red red;                            // of every port; set_red() changes one
    // What RED looks at moves by a 2^red_weight-th towards the queue with each packet that leaves. 0: it is the queue.
    uint32_t red_weight = 0;
    // At most one of these; with it the thresholds do not apply: inputs are held back instead.
    std::optional<Pfc> pfc{};
    std::optional<DynamicPfc> dynamic_pfc{};
    // A packet that finds so many bytes in its queue is marked, beside what RED does: as a port's impairment marks.
    uint64_t mark_on_arrival_bytes = UINT64_MAX;
    Balancer balancer = Balancer::kEcmp;
    Time flowlet_gap = 100 * kMicrosecond;  // LetFlow's and CONGA's; ConWeave's simulator has this
    CongaConfig conga{};
    ConWeaveConfig conweave{};
    std::optional<Trim> trim{};
    // DIBS (EuroSys'14): a packet that finds its queue full goes to a neighbouring switch instead, so often at most.
    uint8_t max_deflections = 0;
    // Queues send the flow first whose message has the least left, and where one is full, that goes which has the most
    // left (pFabric, SIGCOMM'13).
    std::optional<ShortestFirst> srpt{};
};

class Switch final : public Node {
  public:
    // Throws when a buffer has two kinds of PFC.
    Switch(World& world, uint32_t index, const SwitchConfig& config);

    void attach(Link& link) override;
    bool is_destination() const override { return false; }
    void receive(Packet& packet, uint32_t port) override;
    void prefetch(const Packet& packet, uint32_t ahead) const override;
    void on_transmit(Packet& packet, Link& link) override;

    // Routes, all anew: first for how many nodes, then for each destination the ports of the equal next hops. Without
    // any, packets for it are dropped.
    void clear_routes(size_t nodes);
    void set_route(uint32_t destination, const std::vector<uint32_t>& ports) { set_paths(destination, ports, {}); }
    // The same with paths, of which the first switch chooses one: for each the port here, and where in `table` (see
    // use_paths) the ports of the switches behind it stand; 0 where the packet is on its own there.
    void set_paths(uint32_t destination, const std::vector<uint32_t>& ports, const std::vector<uint32_t>& rest);
    // Before routes are set: packets with a path follow it. It stays the caller's; a path ends with kEndOfPath.
    static constexpr uint32_t kEndOfPath = UINT32_MAX;
    void use_paths(const std::vector<uint32_t>& table) { paths_ = &table; }
    // By node: the leaf that a host is at, of which CONGA and ConWeave must know. It stays the caller's.
    void set_leaves(const std::vector<uint32_t>& leaf_of) {
        if (conga_ != nullptr) conga_->set_leaves(leaf_of);
        if (conweave_ != nullptr) conweave_->set_leaves(leaf_of);
    }
    // Null: another balancer.
    const Conga* conga() const { return conga_.get(); }
    const ConWeave* conweave() const { return conweave_.get(); }
    // Sends on what has come by `port`, whenever that was.
    void forward(Packet& packet, uint32_t port);
    // The number of ways to a destination.
    uint32_t choices(uint32_t destination) const { return groups_[destination].count; }
    // The port that a packet will leave by under ECMP.
    uint32_t next_hop(uint64_t flow_hash, uint32_t destination) const;
    // The same on a path that the first switch chose, where there are paths; `route` is 0 there, and then the caller's
    // to keep.
    uint32_t next_hop(uint64_t flow_hash, uint32_t destination, uint32_t& route) const;

    // Of the queue before one of this switch's links: when it marks, and the most that it holds.
    void set_red(const Link& link, const Red& red);
    void set_queue_bytes(const Link& link, uint64_t queue_bytes);
    uint64_t used_bytes() const { return used_bytes_; }
    uint64_t max_used_bytes() const { return max_used_bytes_; }
    uint64_t unrouted_packets() const { return unrouted_packets_; }  // dropped: there is no way to where they go
    uint64_t deflected_packets() const { return deflected_packets_; }

  private:
    enum class FlowControl : uint8_t { kNone, kStatic, kDynamic, kTimed };
    struct alignas(64) Port {
        Link* link;
        Red red;
        uint64_t limit = UINT64_MAX;  // of the queue before the link; with DynamicPfc of the headroom
        uint64_t ingress_bytes = 0;   // in the buffer, having come in here; without those in the headroom
        uint64_t headroom_bytes = 0;  // in the headroom (DynamicPfc)
        bool watched = false;         // resume() is called for what leaves
        bool pausing = false;         // the neighbour was told to pause
        Time pausing_until = 0;       // ... and goes on then by itself
    };
    struct Group {
        uint32_t first;  // in hops_; the port itself if there is but one and no path
        uint32_t count;
    };
    struct Flowlet {
        Time last = 0;
        uint32_t choice = 0;
        bool known = false;
    };
    static constexpr size_t kFlowlets = 1 << 14;  // flows that hash to one entry share its way and its gaps

    bool select_egress(Packet& packet);
    bool find_conga_way(Packet& packet);
    void pass(Packet& packet, uint32_t port);
    uint32_t choose(const Packet& packet, const Group& group);
    uint32_t drill(const Group& group, uint32_t& last);
    uint32_t flowlet(const Packet& packet, uint32_t choices);
    uint32_t least_full(const Packet& packet, const Group& group);
    uint64_t queued(const Group& group, uint32_t choice) const {
        return ports_[hops_[group.first + choice]].link->queued_bytes();
    }
    bool admits(uint32_t bytes, const Port& in, const Port& out) const;
    void store(Packet& packet, Port& in, Link& link);
    void overflow(Packet& packet, Port& in, Link& link);
    bool deflect(Packet& packet, Port& in);
    bool evict_for(const Packet& packet, const Port& in, Link& link);
    void release(const Packet& packet);
    void drop(Packet& packet, Link& link);
    void mark(Packet& packet, Link& link);
    uint64_t mean_queue(uint32_t port, uint64_t queued_bytes);
    // Of dynamic PFC.
    uint64_t threshold() const;
    uint64_t shared_by(const Port& in) const;
    bool is_over(const Port& in) const;
    void check_pause(Port& in, uint32_t bytes);
    void resume(Port& in, uint32_t bytes);
    void pause(Port& in, bool pausing);

    SwitchConfig config_;
    std::vector<Port> ports_;
    std::vector<Group> groups_;   // by destination
    std::vector<uint32_t> hops_;  // ports of the groups, each different group once
    bool plain_ = true;           // select_egress() has nothing to do that next_hop() has not
    FlowControl flow_control_ = FlowControl::kNone;
    uint64_t x_off_ = UINT64_MAX;  // press() is called beyond
    uint64_t used_bytes_ = 0, max_used_bytes_ = 0;
    Random random_;
    uint64_t salt_;
    std::unique_ptr<Conga> conga_;
    std::unique_ptr<ConWeave> conweave_;

    const std::vector<uint32_t>* paths_ = nullptr;
    std::vector<uint32_t> rests_;         // beside hops_, with paths
    std::vector<uint32_t> states_;        // beside hops_, at the first of a group: spray's turn, or DRILL's last choice
    std::vector<uint32_t> last_choices_;  // DRILL's by destination
    std::map<std::pair<std::vector<uint32_t>, std::vector<uint32_t>>, uint32_t> known_groups_;  // where in hops_
    std::vector<Flowlet> flowlets_;
    std::vector<double> means_;  // of the queues, by port: red_weight
    Random choices_;
    uint64_t guaranteed_bytes_ = 0;  // of each port: DynamicPfc
    uint64_t shared_limit_ = 0, shared_bytes_ = 0;
    uint64_t unrouted_packets_ = 0, deflected_packets_ = 0;
};

}  // namespace rove::fabric
