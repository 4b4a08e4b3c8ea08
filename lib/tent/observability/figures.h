// SPDX-License-Identifier: Apache-2.0
// What the engine counts, in all its shards, by device, rail, priority, slot and transport (T-24): for DPDK's telemetry
// and for Prometheus.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tent/observability/histogram.h"

namespace rove::tent {

class Engine;

struct Figure {
    const char* name;  // with its unit
    uint64_t value;
    bool counts = true;  // it only grows
};

struct FigureRow {
    std::string of;  // "rove0"
    std::vector<Figure> figures;
};

struct FigureTable {
    const char* name;  // "devices"
    const char* row;   // "device"
    const char* help;
    std::vector<FigureRow> (*read)(Engine& engine);  // takes the locks of the shards
};

std::span<const FigureTable> figure_tables();

// Rows as a reader wants them who looks again and again: one for each `of`, the sum of those that share it, and counts
// that never go back, though peers go and come again under the same name. One for each reader, who calls it for all
// tables; not thread-safe.
class SteadyFigures {
  public:
    std::vector<FigureRow> read(const FigureTable& table, Engine& engine);

  private:
    struct Count {
        uint64_t last = 0;  // as it was counted
        uint64_t gone = 0;  // what was counted before it fell
    };
    std::map<std::string, Count> counts_;  // "rails/NAME/read_bytes"
};

// Of the requests that a transport completed with a priority, where there are any.
struct HistogramRow {
    std::string priority, transport;  // "high", "rdma"
    RequestHistograms seen;
};
std::vector<HistogramRow> read_histograms(Engine& engine);

}  // namespace rove::tent
