// SPDX-License-Identifier: Apache-2.0
// A network: its nodes and cables, its clock, and what is to happen when. Everything lives as long as it.
#pragma once

#include <deque>
#include <map>

#include "fabric/host.h"
#include "fabric/switch.h"

namespace rove::fabric {

class Network {
  public:
    explicit Network(uint64_t seed = 1, Carry carry = Carry::kHeaders);

    // Building: nodes, then cables, then routes.
    Host& add_host(const HostConfig& config = {});
    // One more port of a host, with an address of its own. (A port with two cables is a bond: connect() it twice.)
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
    // Gives every switch all shortest ways to every destination. Throws when there is none.
    void route();
    // Instead: the switch that a host is at chooses among `paths` of the shortest paths to the destination's switch,
    // and those behind it follow. Which are taken of equally long ones is drawn at random. (Two cables between the same
    // switches count as one.)
    void route_by_paths(uint32_t paths);
    // Routes anew over the cables that are up. Returns whether every switch has a way to every destination; without one
    // it drops what it gets.
    bool reroute();

    // Running.
    Time now() const { return world_.events.now(); }
    // Calls `action` at `time`, after what was set for the same time before.
    void at(Time time, std::function<void()> action);
    // Runs until `time`, or until something calls stop(). Returns whether it was stopped.
    bool run_until(Time time);
    bool run_for(Time time) { return run_until(now() + time); }
    void stop() { world_.events.stop(); }

    // Looking.
    World& world() { return world_; }
    const std::deque<Link>& links() const { return links_; }
    const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
    uint64_t packet_hops() const;                        // packets that have come over a link, of all links
    uint64_t total(uint64_t LinkStats::*counter) const;  // of all links
    // A source port, the first from 0xC000 on, with which packets between the hosts leave `link`'s switch by `link`:
    // how a flow is put on a path by hand. Throws when the link is not on a shortest way between them.
    uint16_t source_port_via(const Link& link, const Host& from, const Host& to) const;

    // Registered memory for those who do not look at what is written; all hosts share it.
    static constexpr uint32_t kScratchBytes = 2 << 20;
    const transport::Region& scratch() const { return scratch_; }
    // Registers memory of the caller for local and remote use by all hosts.
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
    std::vector<uint32_t> leaf_of_;  // by node: the switch that a host's first cable goes to
    uint32_t paths_per_pair_ = 0;    // 0: equal next hops
    uint64_t path_seed_ = 0;
    std::vector<uint32_t> path_table_;  // Switch::use_paths(); packets on their way refer to it, so it only grows
    std::multimap<Time, std::function<void()>> actions_;
    Event action_event_;
    std::vector<uint8_t> scratch_memory_;
    std::deque<transport::Region> regions_;
    transport::Region& scratch_;
};

}  // namespace rove::fabric
