// SPDX-License-Identifier: Apache-2.0
// `rove-sim flows`: somebody's own flows, by a file, over Eunomia's network (eunomia.h).
#pragma once

#include <string>

#include "experiment.h"
#include "fabric/topology.h"

namespace rove::sim {

struct FlowsConfig {
    std::string sizes;      // a CDF file; empty: AliStorage's
    std::string trace;      // a file of flows; empty: Poisson flows of `sizes` at `load`
    double load = 0.5;      // of the uplinks
    std::string scheme;     // by name
    fabric::Ports ports{};  // of each host
};

// The names of schemes, with commas.
std::string scheme_names();
// Throws fabric::BadInput, which names file, line and what is allowed; std::invalid_argument for a scheme there is none
// of.
Report run_flows(const FlowsConfig& config, const RunContext& with);

}  // namespace rove::sim
