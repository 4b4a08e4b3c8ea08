// SPDX-License-Identifier: Apache-2.0
// How far a device is from memory (T-8): rank 0 is the same NUMA node, rank 1 the nearest others, rank 2 all that are
// further.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rove/tent_status.h"

namespace rove::tent {

inline constexpr uint8_t kRanks = 3;

struct Device {
    std::string name;
    double bandwidth_bytes_per_s = 0;  // of the link, as the port reports it; 0: not known
    int numa_node = -1;                // -1: not known, near to all
};

// An entry of topology.nics: what is known of a device better than by its port, such as a virtual one.
struct Nic {
    std::string name;
    std::optional<int> numa_node;
    std::optional<double> bandwidth_gbps;
};

struct Topology {
    std::vector<Nic> nics;
    std::string where;  // "FILE:LINE: key 'topology.nics'", for messages
};

using Ranks = std::vector<std::vector<uint8_t>>;  // rank by NUMA node and device

// `[topology.priority_matrix]`: for memory of a node, names of devices by rank. Devices not named have the last rank.
struct PriorityMatrix {
    std::map<int, std::vector<std::vector<std::string>>> nodes;
    std::string where;  // "FILE:LINE: key 'topology.priority_matrix'", for messages
};

// The NUMA nodes of this machine that have memory, and those that the configuration names; in order. Never empty.
std::vector<int> numa_nodes(const PriorityMatrix& matrix, const Topology& topology);
// Tells the devices what the configuration does. kInvalidArgument: it names one that does not exist.
Status override_devices(const Topology& topology, std::span<Device> devices);

// As the machine is (libnuma), where nodes that it does not have are as far from all as others are by default; or of
// `nodes` nodes as `distance` tells.
Ranks numa_ranks(std::span<const Device> devices);
Ranks numa_ranks(std::span<const Device> devices, int nodes, const std::function<int(int, int)>& distance);
// Replaces, and adds where there is no such node, what the matrix names. kInvalidArgument: a device that does not
// exist.
Status override_ranks(const PriorityMatrix& matrix, std::span<const Device> devices, Ranks* ranks);

}  // namespace rove::tent
