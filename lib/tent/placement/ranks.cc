// SPDX-License-Identifier: Apache-2.0
// Ranks from NUMA distances, and their overrides in the configuration.
#include "tent/placement/ranks.h"

#include <numa.h>

#include <algorithm>
#include <limits>
#include <set>

namespace rove::tent {

namespace {

std::string names_of(std::span<const Device> devices) {
    std::string names;
    for (const Device& device : devices) names += (names.empty() ? "" : ", ") + device.name;
    return names;
}

}  // namespace

std::vector<int> numa_nodes(const PriorityMatrix& matrix, const Topology& topology) {
    std::set<int> nodes;
    for (const Nic& nic : topology.nics)
        if (nic.numa_node && *nic.numa_node >= 0) nodes.insert(*nic.numa_node);
    for (const auto& [node, lists] : matrix.nodes) nodes.insert(node);
    const bool available = numa_available() >= 0;
    for (int node = 0; available && node <= numa_max_node(); ++node)
        if (numa_bitmask_isbitset(numa_all_nodes_ptr, static_cast<unsigned>(node)) != 0) nodes.insert(node);
    if (!available || nodes.empty()) nodes.insert(0);
    return {nodes.begin(), nodes.end()};
}

Ranks numa_ranks(std::span<const Device> devices) {
    const int here = numa_available() < 0 ? 1 : numa_max_node() + 1;
    int nodes = here;
    for (const Device& device : devices) nodes = std::max(nodes, device.numa_node + 1);
    return numa_ranks(devices, nodes, [here](int from, int to) {
        constexpr int kLocal = 10, kRemote = 20;  // defaults of ACPI's SLIT, for nodes that the machine does not have
        if (from < here && to < here && here > 1) return numa_distance(from, to);
        return from == to ? kLocal : kRemote;
    });
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

Status override_devices(const Topology& topology, std::span<Device> devices) {
    for (const Nic& nic : topology.nics) {
        const auto found =
            std::find_if(devices.begin(), devices.end(), [&](const Device& device) { return device.name == nic.name; });
        if (found == devices.end())
            return {Code::kInvalidArgument,
                    topology.where + ": got \"" + nic.name + "\", allowed " + names_of(devices)};
        found->numa_node = nic.numa_node.value_or(found->numa_node);
        if (nic.bandwidth_gbps) found->bandwidth_bytes_per_s = *nic.bandwidth_gbps * 1e9 / 8;
    }
    return {};
}

Status override_ranks(const PriorityMatrix& matrix, std::span<const Device> devices, Ranks* ranks) {
    Ranks changed = *ranks;
    for (const auto& [node, lists] : matrix.nodes) {
        // A gap between the machine's nodes and this one is filled with nodes that are near to all devices.
        if (changed.size() <= static_cast<size_t>(node))
            changed.resize(static_cast<size_t>(node) + 1, std::vector<uint8_t>(devices.size(), 0));
        auto& row = changed[static_cast<size_t>(node)];
        row.assign(devices.size(), kRanks - 1);
        for (size_t rank = 0; rank < lists.size(); ++rank) {
            for (const std::string& name : lists[rank]) {
                const auto found = std::find_if(devices.begin(), devices.end(),
                                                [&](const Device& device) { return device.name == name; });
                if (found == devices.end())
                    return {Code::kInvalidArgument,
                            matrix.where + ": got \"" + name + "\", allowed " + names_of(devices)};
                row[static_cast<size_t>(found - devices.begin())] = static_cast<uint8_t>(rank);
            }
        }
    }
    *ranks = std::move(changed);
    return {};
}

}  // namespace rove::tent
