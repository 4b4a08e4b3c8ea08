// SPDX-License-Identifier: Apache-2.0
// Ranks from NUMA distances, and what the configuration makes of them.
#include "tent/ranks.h"

#include <numa.h>

#include <algorithm>
#include <limits>
#include <set>

namespace rove::tent {

std::vector<int> numa_nodes(const PriorityMatrix& matrix) {
    std::set<int> nodes;
    for (const auto& [node, lists] : matrix.nodes) nodes.insert(node);
    const bool available = numa_available() >= 0;
    for (int node = 0; available && node <= numa_max_node(); ++node)
        if (numa_bitmask_isbitset(numa_all_nodes_ptr, static_cast<unsigned>(node)) != 0) nodes.insert(node);
    if (!available || nodes.empty()) nodes.insert(0);
    return {nodes.begin(), nodes.end()};
}

Ranks numa_ranks(std::span<const Device> devices) {
    if (numa_available() < 0) return numa_ranks(devices, 1, [](int, int) { return 10; });
    return numa_ranks(devices, numa_max_node() + 1, [](int from, int to) { return numa_distance(from, to); });
}

Ranks numa_ranks(std::span<const Device> devices, int nodes, const std::function<int(int, int)>& distance) {
    Ranks ranks;
    for (int node = 0; node < nodes; ++node) {
        int nearest = std::numeric_limits<int>::max();
        for (int other = 0; other < nodes; ++other)
            if (other != node) nearest = std::min(nearest, distance(node, other));
        auto& row = ranks.emplace_back();
        for (const Device& device : devices) {
            const bool here = device.numa_node < 0 || device.numa_node == node;
            row.push_back(here ? 0 : distance(node, device.numa_node) <= nearest ? 1 : 2);
        }
    }
    return ranks;
}

Status override_ranks(const PriorityMatrix& matrix, std::span<const Device> devices, Ranks* ranks) {
    std::string names;
    for (const Device& device : devices) names += (names.empty() ? "" : ", ") + device.name;
    Ranks changed = *ranks;
    for (const auto& [node, lists] : matrix.nodes) {
        // Nodes that the machine does not have, between those that it has and this one, are near to all devices.
        if (changed.size() <= static_cast<size_t>(node))
            changed.resize(static_cast<size_t>(node) + 1, std::vector<uint8_t>(devices.size(), 0));
        auto& row = changed[static_cast<size_t>(node)];
        row.assign(devices.size(), kRanks - 1);
        for (size_t rank = 0; rank < lists.size(); ++rank) {
            for (const std::string& name : lists[rank]) {
                const auto found = std::find_if(devices.begin(), devices.end(),
                                                [&](const Device& device) { return device.name == name; });
                if (found == devices.end())
                    return {Code::kInvalidArgument, matrix.where + ": got \"" + name + "\", allowed " + names};
                row[static_cast<size_t>(found - devices.begin())] = static_cast<uint8_t>(rank);
            }
        }
    }
    *ranks = std::move(changed);
    return {};
}

}  // namespace rove::tent
