// SPDX-License-Identifier: Apache-2.0
// `rove-sim flows`: the user's own flows from a file, over Eunomia's network (eunomia.h).
#pragma once

#include <string>

#include "experiment.h"
#include "fabric/topology.h"

namespace rove::sim {

struct FlowsConfig {
    std::string sizes;      // a CDF file; empty: AliStorage's
    std::string trace;      // a file of flows; empty: Poisson flows of `sizes` at `load`
    double load = 0.5;      // load of the uplinks
    std::string scheme;     // its name
    fabric::Ports ports{};  // per host
};

// Returns the names of the schemes, separated by commas.
std::string scheme_names();
// Throws fabric::BadInput with file, line and the allowed syntax, or std::invalid_argument for an unknown scheme.
Report run_flows(const FlowsConfig& config, const RunContext& with);

}  // namespace rove::sim
