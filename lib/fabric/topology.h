// SPDX-License-Identifier: Apache-2.0
// The networks of papers' evaluations, built in one call each, with routes. A transport's DCQCN starts at the rate of
// its host's link; its random paths come from the network's seed.
#pragma once

#include <span>

#include "fabric/network.h"

namespace rove::fabric {

// A host whose DCQCN starts at the rate of `access`, and with random paths of its own. It is not connected yet.
Host& add_host(Network& network, HostConfig host, const LinkConfig& access);

// The ports of a host.
struct Ports {
    uint32_t count = 1;
    bool separate = false;  // a rack has as many switches, and each port is at another; else all are at one
    bool bonded = false;    // the ports have one address, and the NIC chooses by 5-tuple; else each has its own: a rail
};

// Hosts under one switch, or under one for each of their ports.
struct RackConfig {
    uint32_t hosts = 1;
    Ports ports{};
    LinkConfig access;  // the cable between a port and its switch
    HostConfig host;
    SwitchConfig tor;
};

struct Rack {
    Switch* tor;
    std::vector<Host*> hosts;   // whose first port is here
    std::vector<Cable> access;  // by host, then by port: forward is from the host
};
Rack single_switch(Network& network, const RackConfig& config);

// Two racks, and cables between their switches of which each is a path.
struct PathConfig {
    LinkConfig link;
    std::optional<Red> red;  // of the queues before it, at both ends; none: as the switch has it
};
struct TwoRacks {
    Rack left, right;
    std::vector<Cable> paths;  // forward is from left to right
};
TwoRacks parallel_paths(Network& network, const RackConfig& each, std::span<const PathConfig> paths);

struct LeafSpineConfig {
    uint32_t leaves = 2, spines = 2;  // leaves: with separate ports so many for each of them
    RackConfig rack;                  // of each leaf
    LinkConfig uplink;
    SwitchConfig spine;
};
struct LeafSpine {
    std::vector<Rack> racks;  // those of one rack's ports stand together
    std::vector<Switch*> spines;
    std::vector<std::vector<Cable>> uplinks;  // by leaf, then by spine; forward is from the leaf

    // All hosts, rack by rack.
    std::vector<Host*> hosts() const;
    // All uplinks, leaf by leaf.
    std::vector<Cable> trunks() const;
};
LeafSpine leaf_spine(Network& network, const LeafSpineConfig& config);

// Three tiers (Al-Fares et al., SIGCOMM'08): k pods of k/2 edge and k/2 aggregation switches, and k*k/4 core switches.
// With k/2 hosts at each edge switch, which is what 0 means, there are k*k*k/4, and any of them can send at full rate.
struct FatTreeConfig {
    uint32_t k = 4;
    RackConfig rack{.hosts = 0};  // of each edge switch
    LinkConfig uplink;            // of edge and aggregation switches
    SwitchConfig upper;           // aggregation and core switches
};
struct FatTree {
    std::vector<Rack> racks;  // pod by pod
    std::vector<Switch*> aggregation, core;
    std::vector<Cable> edge_uplinks;  // forward is up
    std::vector<Cable> core_links;

    std::vector<Host*> hosts() const;
};
// Throws when k is odd or 0.
FatTree fat_tree(Network& network, const FatTreeConfig& config);

// Jellyfish (NSDI'12): switches in a random graph, as regular as it can be. Hosts are spread evenly; all ports that are
// left join switches. The first switch chooses among `paths` shortest paths; 0: every switch among equal next hops.
struct JellyfishConfig {
    uint32_t switches = 20, ports = 4, hosts = 16;
    uint32_t paths = 8;  // what the paper has
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
// `random` draws the graph. Throws when the ports do not suffice for the hosts and a connected graph.
Jellyfish jellyfish(Network& network, const JellyfishConfig& config, Random random);

// Permutation traffic: half of the hosts, drawn at random, send to one of the other half each, always in another rack.
std::vector<std::pair<Host*, Host*>> permutation(std::vector<Host*> hosts, Random random);
inline std::vector<std::pair<Host*, Host*>> permutation(const LeafSpine& network, Random random) {
    return permutation(network.hosts(), random);
}

}  // namespace rove::fabric
