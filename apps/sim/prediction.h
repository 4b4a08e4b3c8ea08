// SPDX-License-Identifier: Apache-2.0
// `rove-sim prediction`: predicts the results of rove-testpmd between two ports with fault injection on their paths.
// The configuration files are those that the two processes read.
#pragma once

#include <string>
#include <vector>

#include "experiment.h"

namespace rove::sim {

struct PredictionConfig {
    std::string sender, receiver;      // configuration files
    std::vector<std::string> changes;  // SECONDS:PATH:key=value,...: changes both directions of a path
    uint32_t flows = 1;                // rove-testpmd's --qps
    uint32_t message_bytes = 65536;    // --size, --depth, --mtu, --duration
    uint32_t depth = 16;
    uint32_t mtu = 4096;
    double seconds = 1;
};

// Measures have the names of rove-testpmd's JSON. Throws std::invalid_argument for a wrong configuration or change, and
// for one that the network cannot model.
Report run_prediction(const PredictionConfig& config, uint64_t seed);

}  // namespace rove::sim
