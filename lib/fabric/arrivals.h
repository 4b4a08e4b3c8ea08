// SPDX-License-Identifier: Apache-2.0
// Which flows there are, and when they begin. Units: bytes, picoseconds, bits per second.
#pragma once

#include <string>
#include <vector>

#include "fabric/flow_sizes.h"
#include "fabric/units.h"

namespace rove::fabric {

struct FlowSpec {
    uint32_t from = 0, to = 0;  // hosts, by their place in the workload's list
    uint64_t bytes = 1;
    Time start = 0;
    uint32_t query = 0;  // incast: flows of one query have one number; else 0
};

// Flows of a Poisson process at each host, each to one of the others, all equally likely.
struct PoissonConfig {
    uint32_t hosts = 2;
    double bits_per_s = 0;  // that each host begins, in payload: the load times its link, or its share of the uplinks
    Time until = 0;         // flows begin from 0 on, and before this
};
std::vector<FlowSpec> poisson(const PoissonConfig& config, const FlowSizes& sizes, Random random);

// Queries, a Poisson process of the whole network: as many hosts send to one at the same time, all drawn at random.
struct IncastConfig {
    uint32_t hosts = 2, senders = 1;  // fewer than hosts
    uint64_t bytes = 40'000;          // from each
    double queries_per_s = 0;
    Time until = 0;
};
std::vector<FlowSpec> incast(const IncastConfig& config, Random random);

// A file of flows: lines of `src dst pg size start`, as ns-3's RDMA simulators read them, with hosts from 0 on, a
// priority group that is not looked at, bytes, and seconds. The first line may be their number alone. Throws BadInput.
std::vector<FlowSpec> read_trace(std::istream& lines, const std::string& name, uint32_t hosts);
std::vector<FlowSpec> load_trace(const std::string& file, uint32_t hosts);

// By their start; those of the same start stay as they are.
void sort_by_start(std::vector<FlowSpec>& flows);

}  // namespace rove::fabric
