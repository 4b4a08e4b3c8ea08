// SPDX-License-Identifier: Apache-2.0
// `rove-sim prediction`: what rove-testpmd will measure between two ports whose configurations impair their paths. The
// configuration files are those that the two processes get.
#pragma once

#include <string>
#include <vector>

#include "experiment.h"

namespace rove::sim {

struct PredictionConfig {
    std::string sender, receiver;      // configuration files
    std::vector<std::string> changes;  // SECONDS:PATH:key=value,...: of both directions of a path
    uint32_t flows = 1;                // rove-testpmd's --qps
    uint32_t message_bytes = 65536;    // --size, --depth, --mtu, --duration
    uint32_t depth = 16;
    uint32_t mtu = 4096;
    double seconds = 1;
};

// Measures have the names that rove-testpmd's JSON has. Throws std::invalid_argument for a configuration or a change
// that is wrong, or that the network has no model of.
Report run_prediction(const PredictionConfig& config, uint64_t seed);

}  // namespace rove::sim
