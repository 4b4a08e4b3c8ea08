// SPDX-License-Identifier: Apache-2.0
// What links join: a host or a switch. (Or anything else that makes packets: the benchmark has such.)
#pragma once

#include <vector>

#include "fabric/link.h"

namespace rove::fabric {

class Node {
  public:
    Node(World& world, uint32_t index) : world_(world), index_(index) {}
    Node(const Node&) = delete;
    virtual ~Node() = default;

    uint32_t index() const { return index_; }
    // By port: the link that leaves this node there.
    const std::vector<Link*>& links() const { return links_; }
    virtual void attach(Link& link) { links_.push_back(&link); }
    // Whether packets can be sent to it.
    virtual bool is_destination() const = 0;

    // A packet has arrived at `port` and belongs to the node now.
    virtual void receive(Packet& packet, uint32_t port) = 0;
    // A packet will arrive `ahead` events from now, 3, then 2, then 1: fetches what that touches (scheduler.h, note 4).
    virtual void prefetch(const Packet&, uint32_t) const {}
    // `link` has taken a packet from its queue and begins to send it.
    virtual void on_transmit(Packet& packet, Link& link) = 0;

  protected:
    World& world_;

  private:
    uint32_t index_;
    std::vector<Link*> links_;
};

}  // namespace rove::fabric
