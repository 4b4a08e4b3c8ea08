// SPDX-License-Identifier: Apache-2.0
// The figures of the engine, over all its shards, by device, rail, priority, slot and transport (T-24). DPDK's
// telemetry and Prometheus read them.
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
    const char* name;  // ends with its unit
    uint64_t value;
    bool counts = true;  // true: a counter that only grows; false: a gauge
};

struct FigureRow {
    std::string of;  // "rove0"
    std::vector<Figure> figures;
};

struct FigureTable {
    const char* name;  // "devices"
    const char* row;   // "device"
    const char* help;
    std::vector<FigureRow> (*read)(Engine& engine);  // acquires the locks of the shards
};

std::span<const FigureTable> figure_tables();

// Prepares rows for a reader that reads again and again. It returns one row for each `of`, the sum of the rows that
// share it, and counters that never decrease, although a peer may disconnect and return under the same name. Each
// reader has its own object and reads all tables with it. Not thread-safe.
class SteadyFigures {
  public:
    std::vector<FigureRow> read(const FigureTable& table, Engine& engine);

  private:
    struct Count {
        uint64_t last = 0;  // last value read from the engine
        uint64_t gone = 0;  // sum of the values lost when the counter fell
    };
    std::map<std::string, Count> counts_;  // "rails/NAME/read_bytes"
};

// The requests that a transport completed with a priority. There is a row only if there were any.
struct HistogramRow {
    std::string priority, transport;  // "high", "rdma"
    RequestHistograms seen;
};
std::vector<HistogramRow> read_histograms(Engine& engine);

}  // namespace rove::tent
