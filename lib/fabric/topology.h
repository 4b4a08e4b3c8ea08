// SPDX-License-Identifier: Apache-2.0
// The networks of papers' evaluations, built in one call each, with routes. A transport's DCQCN starts at the rate of
// its host's link; its random paths come from the network's seed.
#pragma once

#include <span>

#include "fabric/network.h"

namespace rove::fabric {

// Hosts under one switch.
struct RackConfig {
    uint32_t hosts = 1;
    LinkConfig access;  // the cable between a host and its switch
    HostConfig host;
    SwitchConfig tor;
};

struct Rack {
    Switch* tor;
    std::vector<Host*> hosts;
    std::vector<Cable> access;  // by host: forward is from the host
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
    uint32_t leaves = 2, spines = 2;
    RackConfig rack;  // of each leaf
    LinkConfig uplink;
    SwitchConfig spine;
};
struct LeafSpine {
    std::vector<Rack> racks;
    std::vector<Switch*> spines;
    std::vector<std::vector<Cable>> uplinks;  // by leaf, then by spine; forward is from the leaf

    // All hosts, rack by rack.
    std::vector<Host*> hosts() const;
};
LeafSpine leaf_spine(Network& network, const LeafSpineConfig& config);

// Permutation traffic: half of the hosts, drawn at random, send to one of the other half each, always in another rack.
std::vector<std::pair<Host*, Host*>> permutation(const LeafSpine& network, Random random);

}  // namespace rove::fabric
