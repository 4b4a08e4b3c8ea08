// SPDX-License-Identifier: Apache-2.0
// The flows of a workload and their start times. Units: bytes, picoseconds, bits per second.
#pragma once

#include <string>
#include <vector>

#include "fabric/flow_sizes.h"
#include "fabric/units.h"

namespace rove::fabric {

struct FlowSpec {
    uint32_t from = 0, to = 0;  // index in the workload's list of hosts
    uint64_t bytes = 1;
    Time start = 0;
    uint32_t query = 0;  // incast: the number of the flow's query; otherwise 0
};

// Flows that start at each host as a Poisson process, each to one of the others with equal probability.
struct PoissonConfig {
    uint32_t hosts = 2;
    double bits_per_s = 0;  // payload that each host starts: the load times its link, or its share of the uplinks
    Time until = 0;         // flows start from 0 on and before this time
};
std::vector<FlowSpec> poisson(const PoissonConfig& config, const FlowSizes& sizes, Random random);

// Queries of the whole network as a Poisson process. In each, `senders` hosts send to one host at the same time, all
// drawn at random.
struct IncastConfig {
    uint32_t hosts = 2, senders = 1;  // fewer than hosts
    uint64_t bytes = 40'000;          // from each sender
    double queries_per_s = 0;
    Time until = 0;
};
std::vector<FlowSpec> incast(const IncastConfig& config, Random random);

// Reads a file of flows: lines of `src dst pg size start`, as ns-3's RDMA simulators read them, with hosts from 0 on, a
// priority group that is ignored, bytes, and seconds. The first line may be the number of flows alone. Throws BadInput.
std::vector<FlowSpec> read_trace(std::istream& lines, const std::string& name, uint32_t hosts);
std::vector<FlowSpec> load_trace(const std::string& file, uint32_t hosts);

// Sorts flows by their start, in a stable way.
void sort_by_start(std::vector<FlowSpec>& flows);

}  // namespace rove::fabric
