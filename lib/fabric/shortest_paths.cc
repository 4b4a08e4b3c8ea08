// SPDX-License-Identifier: Apache-2.0
#include "fabric/shortest_paths.h"

#include <algorithm>
#include <cstddef>

namespace rove::fabric {
namespace {

using Path = std::vector<uint32_t>;

constexpr uint32_t kNone = UINT32_MAX;

struct Search {
    const Graph& graph;
    std::vector<uint32_t> before, found;

    // Appends to `begin` the shortest path from its last node to `to` that avoids the earlier nodes and does not start
    // with a node of `forbidden`. Returns an empty path if there is no such path.
    Path extend(Path begin, uint32_t to, const std::vector<uint32_t>& forbidden) {
        constexpr uint32_t kClosed = kNone - 1;
        const uint32_t start = begin.back();
        before.assign(graph.size(), kNone);
        for (const uint32_t node : begin) before[node] = kClosed;
        found.assign(1, start);
        for (size_t i = 0; i < found.size() && before[to] == kNone; ++i) {
            for (const uint32_t next : graph[found[i]]) {
                if (before[next] != kNone) continue;
                if (i == 0 && std::ranges::find(forbidden, next) != forbidden.end()) continue;
                before[next] = found[i];
                found.push_back(next);
            }
        }
        if (before[to] == kNone) return {};
        const auto at = static_cast<std::ptrdiff_t>(begin.size());
        for (uint32_t node = to; node != start; node = before[node]) begin.insert(begin.begin() + at, node);
        return begin;
    }
};

}  // namespace

std::vector<Path> k_shortest_paths(const Graph& graph, uint32_t from, uint32_t to, uint32_t k, Random random) {
    Graph shuffled = graph;
    for (auto& neighbours : shuffled) {
        for (size_t i = neighbours.size(); i > 1; --i) std::swap(neighbours[i - 1], neighbours[random.below(i)]);
    }
    Search search{shuffled, {}, {}};
    std::vector<Path> paths;
    if (Path first = search.extend({from}, to, {}); k != 0 && !first.empty()) paths.push_back(std::move(first));
    std::vector<Path> candidates;
    while (!paths.empty() && paths.size() < k) {
        const Path& last = paths.back();
        // Adds all paths that leave the last one at its i-th node and have not been found.
        for (size_t i = 1; i < last.size(); ++i) {
            std::vector<uint32_t> forbidden;
            for (const Path& path : paths) {
                if (path.size() > i &&
                    std::equal(last.begin(), last.begin() + static_cast<std::ptrdiff_t>(i), path.begin()))
                    forbidden.push_back(path[i]);
            }
            Path path = search.extend(Path(last.begin(), last.begin() + static_cast<std::ptrdiff_t>(i)), to, forbidden);
            if (!path.empty() && std::ranges::find(candidates, path) == candidates.end())
                candidates.push_back(std::move(path));
        }
        if (candidates.empty()) break;
        const auto shortest = std::ranges::min_element(candidates, {}, &Path::size);
        paths.push_back(std::move(*shortest));
        candidates.erase(shortest);
    }
    return paths;
}

}  // namespace rove::fabric
