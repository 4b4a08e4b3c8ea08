// SPDX-License-Identifier: Apache-2.0
// The k shortest ways between two nodes of a graph without weights.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/random.h"

namespace rove::fabric {

// By node: its neighbours.
using Graph = std::vector<std::vector<uint32_t>>;

// Up to k paths without loops, from shortest to longest, each as the nodes from `from` to `to` (Yen 1971). Which of
// equally long ones are found is drawn at random: the first by number would be the same few for all pairs.
std::vector<std::vector<uint32_t>> k_shortest_paths(const Graph& graph, uint32_t from, uint32_t to, uint32_t k,
                                                    Random random);

}  // namespace rove::fabric
