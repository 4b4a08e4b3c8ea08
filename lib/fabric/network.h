// SPDX-License-Identifier: Apache-2.0
// A network: nodes, cables, clock and scheduled actions. It owns all of them.
#pragma once

#include <deque>
#include <map>

#include "fabric/host.h"
#include "fabric/switch.h"

namespace rove::fabric {

class Network {
  public:
    explicit Network(uint64_t seed = 1, Carry carry = Carry::kHeaders);

    // The network is built from nodes, then cables, then routes.
    Host& add_host(const HostConfig& config = {});
    // Adds a port with an address of its own to a host. (A port with two cables is a bond: call connect() twice.)
    Host::Port& add_port(Host& host) { return add<Host::Port>(host); }
    Switch& add_switch(const SwitchConfig& config = {});
    template <class T, class... Args>
    T& add(Args&&... args) {
        auto node = std::make_unique<T>(world_, static_cast<uint32_t>(nodes_.size()), std::forward<Args>(args)...);
        T& made = *node;
        nodes_.push_back(std::move(node));
        return made;
    }
    Cable connect(Node& a, Node& b, const LinkConfig& both_ways);
    // Gives every switch all shortest routes to every destination. Throws if a destination has no route.
    void route();
    // Sets paths instead of equal next hops: the switch at a host chooses among `paths` of the shortest paths to the
    // destination's switch, and the switches behind it follow. Ties are broken at random. Two cables between the same
    // switches count as one.
    void route_by_paths(uint32_t paths);
    // Computes the routes again over the cables that are up. Returns true if every switch has a route to every
    // destination; a switch without one drops packets for it.
    bool reroute();

    // These run the network.
    Time now() const { return world_.events.now(); }
    // Calls `action` at `time`, after all actions that were set for the same time before.
    void at(Time time, std::function<void()> action);
    // Runs until `time` or until stop() is called. Returns true if it was stopped.
    bool run_until(Time time);
    bool run_for(Time time) { return run_until(now() + time); }
    void stop() { world_.events.stop(); }

    // These inspect the network.
    World& world() { return world_; }
    const std::deque<Link>& links() const { return links_; }
    const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
    uint64_t packet_hops() const;                        // packets that have crossed a link, summed over all links
    uint64_t total(uint64_t LinkStats::*counter) const;  // summed over all links
    // Returns a source port, the first from 0xC000 on, with which packets between the hosts leave `link`'s switch by
    // `link`. This puts a flow on a chosen path. Throws if the link is on no shortest path between them.
    uint16_t source_port_via(const Link& link, const Host& from, const Host& to) const;

    // Registered memory for workloads that do not read the data. All hosts share it.
    static constexpr uint32_t kScratchBytes = 2 << 20;
    const transport::Region& scratch() const { return scratch_; }
    // Registers the caller's memory for local and remote use by all hosts.
    transport::Region& register_memory(std::span<uint8_t> memory);

  private:
    void act();
    std::vector<Switch*> switches() const;
    bool route_equal_hops();
    bool route_paths();
    void tell_leaves();
    std::vector<uint32_t> distances_to(const Node& destination) const;
    static std::vector<uint32_t> next_hops(const Node& node, const std::vector<uint32_t>& distances);

    World world_;
    Tables tables_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::deque<Link> links_;
    std::vector<uint32_t> leaf_of_;  // indexed by node: the switch that a host's first cable goes to
    uint32_t paths_per_pair_ = 0;    // 0: equal next hops
    uint64_t path_seed_ = 0;
    std::vector<uint32_t> path_table_;  // Switch::use_paths(); packets in flight refer to it, so it only grows
    std::multimap<Time, std::function<void()>> actions_;
    Event action_event_;
    std::vector<uint8_t> scratch_memory_;
    std::deque<transport::Region> regions_;
    transport::Region& scratch_;
};

}  // namespace rove::fabric
