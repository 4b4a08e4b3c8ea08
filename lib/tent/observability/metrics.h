// SPDX-License-Identifier: Apache-2.0
// Serves an engine's figures to Prometheus over HTTP: /metrics
// ("tent_rail_read_bytes_total{rail="127.0.0.1:15000/rove0-rove1"} 65536"), and /health, which answers while the engine
// progresses.
#pragma once

#include <prometheus/exposer.h>

#include <memory>

#include "rove/tent_status.h"
#include "tent/config/config.h"

namespace rove::tent {

class Engine;

class Metrics {
  public:
    // Starts the server. Returns kInvalidArgument if it cannot listen on the configured address.
    static Status start(const MetricsConfig& config, Engine& engine, std::unique_ptr<Metrics>* out);

  private:
    std::shared_ptr<prometheus::Collectable> figures_, health_;
    std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace rove::tent
