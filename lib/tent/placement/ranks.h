// SPDX-License-Identifier: Apache-2.0
// The distance of a device from memory (T-8): rank 0 is the same NUMA node, rank 1 the nearest other nodes, and rank 2
// all further ones.
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
    double bandwidth_bytes_per_s = 0;  // link speed that the port reports; 0: unknown
    int numa_node = -1;                // -1: unknown, near to all memory
};

// An entry of topology.nics: facts about a device that the configuration knows better than its port, for example for a
// virtual device.
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

// The section `[topology.priority_matrix]`: for memory of a node, the names of devices by rank. Devices that it does
// not name have the last rank.
struct PriorityMatrix {
    std::map<int, std::vector<std::vector<std::string>>> nodes;
    std::string where;  // "FILE:LINE: key 'topology.priority_matrix'", for messages
};

// Returns the NUMA nodes of this machine that have memory and the nodes that the configuration names, in ascending
// order. The result is never empty.
std::vector<int> numa_nodes(const PriorityMatrix& matrix, const Topology& topology);
// Overrides the properties of devices with those in the configuration. Returns kInvalidArgument if it names a device
// that does not exist.
Status override_devices(const Topology& topology, std::span<Device> devices);

// Returns the ranks by the machine's distances (libnuma), or for `nodes` nodes by the function `distance`. In the first
// case a node that the machine does not have is at the default remote distance from all others.
Ranks numa_ranks(std::span<const Device> devices);
Ranks numa_ranks(std::span<const Device> devices, int nodes, const std::function<int(int, int)>& distance);
// Replaces the rows that the matrix names, and adds rows for nodes that do not exist. Returns kInvalidArgument if it
// names a device that does not exist.
Status override_ranks(const PriorityMatrix& matrix, std::span<const Device> devices, Ranks* ranks);

}  // namespace rove::tent
