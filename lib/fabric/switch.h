// SPDX-License-Identifier: Apache-2.0
// A switch with output queues in one shared buffer: RED/ECN, PFC, load balancing, trimming. Units: bytes, picoseconds.
//
// DESIGN NOTES
// 1. Packets of the upper class (Packet::urgent) bypass all of this: they are not counted in the buffer, marked or held
//    back. They are acknowledgements and trimmed headers, a few percent of the bytes.
// 2. A packet without room is trimmed, replaces another packet, is deflected or is dropped, in that order, as far as
//    each is configured.
// 3. Rare features cost other networks nothing: `plain_` means that there is only ECMP and a route to everywhere, and
//    x_off_ and Port::watched show that PFC has nothing to do.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "fabric/conga.h"
#include "fabric/conweave.h"
#include "fabric/forwarding.h"
#include "fabric/node.h"

namespace rove::fabric {

// Random early detection on the present queue length (MP-RDMA section 3.2.1, equation 5). It marks no packet up to
// k_min, all beyond k_max, and in between with a probability that rises to p_max. DCTCP's is {1.0, k, k}. A packet is
// marked when it leaves, by the queue that it leaves behind, as ns-3's RDMA switches do (SwitchNotifyDequeue), so that
// the signal does not wait in the queue. MP-RDMA's text does not say how the switches of its testbed mark.
struct Red {
    double p_max = 0;
    uint64_t k_min = UINT64_MAX, k_max = UINT64_MAX;  // never

    bool marks(uint64_t queued_bytes, Random& random) const {
        if (queued_bytes <= k_min) return false;
        if (queued_bytes > k_max) return true;
        return random.chance(p_max * static_cast<double>(queued_bytes - k_min) / static_cast<double>(k_max - k_min));
    }
};

// Priority flow control: a port is paused when more than x_off bytes that came in by it are in the buffer, and resumed
// when x_on or less are left. The buffer must hold x_off of every port, and for each the data that arrives until the
// pause takes effect: the cable's round trip at its rate and three frames. Drops show if it does not.
struct Pfc {
    uint64_t x_off = 64 << 10;
    uint64_t x_on = 32 << 10;
};

// PFC with a threshold that follows the buffer, as in Broadcom's switches and the ns-3 models of HPCC and ConWeave.
// Each port owns two frames and its headroom; the rest of the buffer is shared. A port is paused when its shared usage
// exceeds alpha times the free shared part, and later packets use its headroom. It is resumed when the headroom is
// empty and its usage is below the threshold again. A real switch repeats a pause until it ends, so the pause lasts
// until then. With `pause_time` a pause ends by itself unless a packet finds the port still above the threshold, and
// packets of a port that should pause are refused only when the whole shared part and then its headroom are full. The
// models of HPCC and ConWeave do this (5 us), so that no links of their networks wait for each other for ever.
struct DynamicPfc {
    double alpha = 1.0 / 16;
    uint32_t frame_bytes = 1114;  // the largest frame: 1 KB of payload in mode mp by default
    Time pause_time = Link::kForever;
};

// Packets without room in a queue continue as their headers, in the upper class (NDP, SIGCOMM'17; Ultra Ethernet).
struct Trim {
    uint32_t header_bytes = 86;       // a frame with MPETH and RETH, ICRC and FCS
    uint64_t queue_bytes = 64 << 10;  // limit of the upper class's queue; further packets are dropped
};

struct SwitchConfig {
    uint64_t buffer_bytes = 12 << 20;   // that of a Trident 2, of which DCQCN's testbed was built
    uint64_t queue_bytes = UINT64_MAX;  // static threshold: limit of one output queue
    double alpha = 8;                   // dynamic threshold: the limit is alpha times the free buffer
    Red red;                            // for every port; set_red() changes one
    // RED uses an average that moves by a 2^red_weight-th towards the queue with each packet that leaves. With 0 it
    // uses the queue itself.
    uint32_t red_weight = 0;
    // At most one of these may be set. The thresholds above then do not apply, since inputs are held back instead.
    std::optional<Pfc> pfc{};
    std::optional<DynamicPfc> dynamic_pfc{};
    // A packet that finds this many bytes in its queue is marked in addition to RED, as fault injection marks at a
    // port.
    uint64_t mark_on_arrival_bytes = UINT64_MAX;
    Balancer balancer = Balancer::kEcmp;
    Time flowlet_gap = 100 * kMicrosecond;  // for LetFlow and CONGA; the value of ConWeave's simulator
    CongaConfig conga{};
    ConWeaveConfig conweave{};
    std::optional<Trim> trim{};
    // DIBS (EuroSys'14): a packet that finds its queue full goes to a neighbouring switch, at most this often.
    uint8_t max_deflections = 0;
    // Queues serve the flow whose message has the fewest bytes left, and a full queue drops the one with the most left
    // (pFabric, SIGCOMM'13).
    std::optional<ShortestFirst> srpt{};
};

class Switch final : public Node {
  public:
    // Throws if the configuration has both kinds of PFC.
    Switch(World& world, uint32_t index, const SwitchConfig& config);

    void attach(Link& link) override;
    bool is_destination() const override { return false; }
    void receive(Packet& packet, uint32_t port) override;
    void prefetch(const Packet& packet, uint32_t ahead) const override;
    void on_transmit(Packet& packet, Link& link) override;

    // These set all routes: first the number of nodes, then for each destination the ports of the equal next hops.
    // Packets for a destination without any are dropped.
    void clear_routes(size_t nodes);
    void set_route(uint32_t destination, const std::vector<uint32_t>& ports) { set_paths(destination, ports, {}); }
    // Sets paths, one of which the first switch chooses. Each has the port here and the index in `table` (see
    // use_paths) of the ports of the switches behind it, or 0 if the packet is forwarded by next hops from there.
    void set_paths(uint32_t destination, const std::vector<uint32_t>& ports, const std::vector<uint32_t>& rest);
    // Makes packets follow paths; called before routes are set. The caller keeps the table alive. kEndOfPath ends a
    // path.
    static constexpr uint32_t kEndOfPath = UINT32_MAX;
    void use_paths(const std::vector<uint32_t>& table) { paths_ = &table; }
    // Sets the leaf of each host for CONGA and ConWeave, by node number. The caller keeps the vector alive.
    void set_leaves(const std::vector<uint32_t>& leaf_of) {
        if (conga_ != nullptr) conga_->set_leaves(leaf_of);
        if (conweave_ != nullptr) conweave_->set_leaves(leaf_of);
    }
    // Return null for another balancer.
    const Conga* conga() const { return conga_.get(); }
    const ConWeave* conweave() const { return conweave_.get(); }
    // Forwards a packet that came by `port`, now or earlier.
    void forward(Packet& packet, uint32_t port);
    // Returns the number of next hops to a destination.
    uint32_t choices(uint32_t destination) const { return groups_[destination].count; }
    // Returns the port by which a packet will leave under ECMP.
    uint32_t next_hop(uint64_t flow_hash, uint32_t destination) const;
    // Returns the port on a path that the first switch chose, where there are paths. `route` is 0 at the first switch,
    // and the caller keeps it between switches.
    uint32_t next_hop(uint64_t flow_hash, uint32_t destination, uint32_t& route) const;

    // Set the marking and the limit of the queue in front of one of this switch's links.
    void set_red(const Link& link, const Red& red);
    void set_queue_bytes(const Link& link, uint64_t queue_bytes);
    uint64_t used_bytes() const { return used_bytes_; }
    uint64_t max_used_bytes() const { return max_used_bytes_; }
    uint64_t unrouted_packets() const { return unrouted_packets_; }  // dropped for lack of a route
    uint64_t deflected_packets() const { return deflected_packets_; }

  private:
    enum class FlowControl : uint8_t { kNone, kStatic, kDynamic, kTimed };
    struct alignas(64) Port {
        Link* link;
        Red red;
        uint64_t limit = UINT64_MAX;  // limit of the queue in front of the link; with DynamicPfc of the headroom
        uint64_t ingress_bytes = 0;   // bytes in the buffer that came in here, without those in the headroom
        uint64_t headroom_bytes = 0;  // bytes in the headroom (DynamicPfc)
        bool watched = false;         // resume() is called when packets leave
        bool pausing = false;         // the neighbour has been paused
        Time pausing_until = 0;       // the time at which that pause ends by itself
    };
    struct Group {
        uint32_t first;  // in hops_; the port itself if there is one port and no path
        uint32_t count;
    };
    struct Flowlet {
        Time last = 0;
        uint32_t choice = 0;
        bool known = false;
    };
    static constexpr size_t kFlowlets = 1 << 14;  // flows with the same entry share its path and its gaps

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
    // These belong to dynamic PFC.
    uint64_t threshold() const;
    uint64_t shared_by(const Port& in) const;
    bool is_over(const Port& in) const;
    void check_pause(Port& in, uint32_t bytes);
    void resume(Port& in, uint32_t bytes);
    void pause(Port& in, bool pausing);

    SwitchConfig config_;
    std::vector<Port> ports_;
    std::vector<Group> groups_;   // indexed by destination
    std::vector<uint32_t> hops_;  // the ports of each distinct group
    bool plain_ = true;           // select_egress() does no more than next_hop()
    FlowControl flow_control_ = FlowControl::kNone;
    uint64_t x_off_ = UINT64_MAX;  // check_pause() is called beyond this
    uint64_t used_bytes_ = 0, max_used_bytes_ = 0;
    Random random_;
    uint64_t salt_;
    std::unique_ptr<Conga> conga_;
    std::unique_ptr<ConWeave> conweave_;

    const std::vector<uint32_t>* paths_ = nullptr;
    std::vector<uint32_t> rests_;  // parallel to hops_, with paths
    // Parallel to hops_, at the first of a group: spray's next choice, or DRILL's last one.
    std::vector<uint32_t> states_;
    std::vector<uint32_t> last_choices_;  // DRILL's last choice by destination
    std::map<std::pair<std::vector<uint32_t>, std::vector<uint32_t>>, uint32_t> known_groups_;  // their index in hops_
    std::vector<Flowlet> flowlets_;
    std::vector<double> means_;  // average queues by port, for red_weight
    Random choices_;
    uint64_t guaranteed_bytes_ = 0;  // owned by each port: DynamicPfc
    uint64_t shared_limit_ = 0, shared_bytes_ = 0;
    uint64_t unrouted_packets_ = 0, deflected_packets_ = 0;
};

}  // namespace rove::fabric
