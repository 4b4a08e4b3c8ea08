// SPDX-License-Identifier: Apache-2.0
// What the engine counts, by device, rail, priority, slot and transport (T-24): for DPDK's telemetry and for
// Prometheus.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

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
    std::vector<FigureRow> (*read)(Engine& engine);  // with the drive lock held
};

std::span<const FigureTable> figure_tables();

}  // namespace rove::tent
