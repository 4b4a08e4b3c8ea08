// SPDX-License-Identifier: Apache-2.0
// A node that links join: a host, a switch, or another source of packets, as in the benchmark.
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
    // Returns the links that leave this node, by port.
    const std::vector<Link*>& links() const { return links_; }
    virtual void attach(Link& link) { links_.push_back(&link); }
    // Returns true if packets can be sent to this node.
    virtual bool is_destination() const = 0;

    // Receives a packet that has arrived at `port`. The node owns it from now on.
    virtual void receive(Packet& packet, uint32_t port) = 0;
    // Prefetches the memory that a packet's arrival will touch. It is called `ahead` events before the arrival, 3, 2
    // and then 1 (scheduler.h, note 4).
    virtual void prefetch(const Packet&, uint32_t) const {}
    // Is called when `link` has removed a packet from its queue and starts to transmit it.
    virtual void on_transmit(Packet& packet, Link& link) = 0;

  protected:
    World& world_;

  private:
    uint32_t index_;
    std::vector<Link*> links_;
};

}  // namespace rove::fabric
