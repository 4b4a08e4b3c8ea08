// SPDX-License-Identifier: Apache-2.0
// A switch with output queues in one shared buffer: RED/ECN, PFC, ECMP. One traffic class. Units: bytes.
#pragma once

#include <optional>

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
// the pause takes effect: the cable's round trip at its rate and two frames. That it did is seen in the drops.
struct Pfc {
    uint64_t x_off = 64 << 10;
    uint64_t x_on = 32 << 10;
};

struct SwitchConfig {
    uint64_t buffer_bytes = 12 << 20;   // what a Trident 2 has, which DCQCN's testbed was built of
    uint64_t queue_bytes = UINT64_MAX;  // static threshold: the most for one output queue
    double alpha = 8;                   // dynamic threshold: the most is alpha times what is free in the buffer
    Red red;                            // of every port; set_red() changes one
    std::optional<Pfc> pfc;             // with it the thresholds do not apply: inputs are held back instead
};

class Switch final : public Node {
  public:
    Switch(World& world, uint32_t index, const SwitchConfig& config);

    void attach(Link& link) override;
    bool is_destination() const override { return false; }
    void receive(Packet& packet, uint32_t port) override;
    void departs(Packet& packet, Link& link) override;

    // By destination node: the ports of the equal next hops.
    void set_routes(const std::vector<std::vector<uint32_t>>& ports);
    // The port that a packet will leave by.
    uint32_t next_hop(uint64_t flow_hash, uint32_t destination) const;

    // Of the queue before one of this switch's links.
    void set_red(const Link& link, const Red& red);
    uint64_t used_bytes() const { return used_bytes_; }
    uint64_t max_used_bytes() const { return max_used_bytes_; }

  private:
    struct Port {
        Link* link;
        Red red;
        uint64_t ingress_bytes = 0;  // in the buffer, having come in here
        bool pausing = false;        // the neighbour was told to pause
    };
    struct Group {
        uint32_t first;  // in hops_; the port itself if there is but one
        uint32_t count;
    };

    bool admits(uint32_t bytes, uint64_t queued_bytes) const;

    SwitchConfig config_;
    std::vector<Port> ports_;
    std::vector<Group> groups_;   // by destination
    std::vector<uint32_t> hops_;  // ports of the groups, each different group once
    uint64_t used_bytes_ = 0, max_used_bytes_ = 0;
    Random random_;
    uint64_t salt_;
};

}  // namespace rove::fabric
