// SPDX-License-Identifier: Apache-2.0
// An engine's figures for Prometheus: HTTP, /metrics ("tent_rail_read_bytes_total{rail="127.0.0.1:15000/rove0-rove1"}
// 65536"), and /health, which answers while the engine moves.
#pragma once

#include <prometheus/exposer.h>

#include <memory>

#include "rove/tent_status.h"
#include "tent/config/config.h"

namespace rove::tent {

class Engine;

class Metrics {
  public:
    // kInvalidArgument: it cannot listen there.
    static Status start(const MetricsConfig& config, Engine& engine, std::unique_ptr<Metrics>* out);

  private:
    std::shared_ptr<prometheus::Collectable> figures_, health_;
    std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace rove::tent
