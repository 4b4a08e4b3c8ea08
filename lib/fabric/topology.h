// SPDX-License-Identifier: Apache-2.0
// The networks of the papers' evaluations, each built with its routes by one call. A transport's DCQCN starts at the
// rate of its host's link, and its random paths come from the network's seed.
#pragma once

#include <span>

#include "fabric/network.h"

namespace rove::fabric {

// Adds a host whose DCQCN starts at the rate of `access` and that has random paths of its own. The caller connects it.
Host& add_host(Network& network, HostConfig host, const LinkConfig& access);

// The ports of a host.
struct Ports {
    uint32_t count = 1;
    // Each port is at a switch of its own, of which a rack has as many as ports; otherwise all ports are at one switch.
    bool separate = false;
    // The ports share one address and the NIC chooses by 5-tuple; otherwise each has its own address and is a rail.
    bool bonded = false;
};

// Hosts under one switch, or under one switch for each of their ports.
struct RackConfig {
    uint32_t hosts = 1;
    Ports ports{};
    LinkConfig access;  // the cable between a port and its switch
    HostConfig host;
    SwitchConfig tor;
};

struct Rack {
    Switch* tor;
    std::vector<Host*> hosts;   // hosts whose first port is at this switch
    std::vector<Cable> access;  // indexed by host, then by port; forward is from the host
};
Rack single_switch(Network& network, const RackConfig& config);

// One cable between the switches of two racks. Each such cable is a path.
struct PathConfig {
    LinkConfig link;
    std::optional<Red> red;  // for the queues in front of it at both ends; unset: the switch's
};
struct TwoRacks {
    Rack left, right;
    std::vector<Cable> paths;  // forward is from left to right
};
TwoRacks parallel_paths(Network& network, const RackConfig& each, std::span<const PathConfig> paths);

struct LeafSpineConfig {
    uint32_t leaves = 2, spines = 2;  // with separate ports, the number of leaves for each port
    RackConfig rack;                  // at each leaf
    LinkConfig uplink;
    SwitchConfig spine;
};
struct LeafSpine {
    std::vector<Rack> racks;  // the switches of one rack's ports are adjacent
    std::vector<Switch*> spines;
    std::vector<std::vector<Cable>> uplinks;  // indexed by leaf, then by spine; forward is from the leaf

    // Returns all hosts, rack by rack.
    std::vector<Host*> hosts() const;
    // Returns all uplinks, leaf by leaf.
    std::vector<Cable> trunks() const;
};
LeafSpine leaf_spine(Network& network, const LeafSpineConfig& config);

// A three-tier fat tree (Al-Fares et al., SIGCOMM'08): k pods of k/2 edge and k/2 aggregation switches, and k*k/4 core
// switches. With k/2 hosts at each edge switch, the default that 0 selects, it has k*k*k/4 hosts, and any of them can
// send at full rate.
struct FatTreeConfig {
    uint32_t k = 4;
    RackConfig rack{.hosts = 0};  // at each edge switch
    LinkConfig uplink;            // links of edge and aggregation switches
    SwitchConfig upper;           // aggregation and core switches
};
struct FatTree {
    std::vector<Rack> racks;  // pod by pod
    std::vector<Switch*> aggregation, core;
    std::vector<Cable> edge_uplinks;  // forward is up
    std::vector<Cable> core_links;

    std::vector<Host*> hosts() const;
};
// Throws if k is odd or 0.
FatTree fat_tree(Network& network, const FatTreeConfig& config);

// Jellyfish (NSDI'12): switches in a random graph that is as regular as possible. Hosts are spread evenly, and all
// other ports join switches. The first switch chooses among `paths` shortest paths; with 0 every switch chooses among
// equal next hops.
struct JellyfishConfig {
    uint32_t switches = 20, ports = 4, hosts = 16;
    uint32_t paths = 8;  // the paper's value
    LinkConfig access, trunk;
    HostConfig host;
    SwitchConfig a_switch;
};
struct Jellyfish {
    std::vector<Switch*> switches;
    std::vector<Host*> all_hosts;
    std::vector<Cable> trunks;

    std::vector<Host*> hosts() const { return all_hosts; }
};
// Draws the graph from `random`. Throws if the ports do not suffice for the hosts and a connected graph.
Jellyfish jellyfish(Network& network, const JellyfishConfig& config, Random random);

// Returns permutation traffic: a random half of the hosts send to one host of the other half each, always in another
// rack.
std::vector<std::pair<Host*, Host*>> permutation(std::vector<Host*> hosts, Random random);
inline std::vector<std::pair<Host*, Host*>> permutation(const LeafSpine& network, Random random) {
    return permutation(network.hosts(), random);
}

}  // namespace rove::fabric
