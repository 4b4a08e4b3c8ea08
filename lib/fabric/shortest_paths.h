// SPDX-License-Identifier: Apache-2.0
// The k shortest paths between two nodes of an unweighted graph.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/random.h"

namespace rove::fabric {

// The neighbours of each node.
using Graph = std::vector<std::vector<uint32_t>>;

// Returns up to k loop-free paths from shortest to longest, each as its nodes from `from` to `to` (Yen 1971). Ties are
// broken at random: by number, all pairs would use the same few nodes.
std::vector<std::vector<uint32_t>> k_shortest_paths(const Graph& graph, uint32_t from, uint32_t to, uint32_t k,
                                                    Random random);

}  // namespace rove::fabric
