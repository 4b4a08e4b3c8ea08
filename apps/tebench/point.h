// SPDX-License-Identifier: Apache-2.0
// Measures one point of the sweep: all streams with one block size, batch size and number of threads, for `duration_s`.
#pragma once

#include <cstdint>
#include <optional>
#include <rove/tent.hpp>
#include <string>
#include <vector>

#include "options.h"
#include "timeline.h"

namespace rove::tebench {

// A target's largest registered memory.
struct Target {
    tent::SegmentID segment = 0;
    uint64_t address = 0, bytes = 0;
};

struct ClassResult {
    size_t streams = 0;
    uint64_t bytes = 0;              // bytes that arrived during the measurement
    std::vector<uint64_t> times_ns;  // durations of the batches that were submitted during the measurement
    size_t missed = 0;               // batches that ended because their deadline passed
};

// The results of the streams with, or without, the command line's deadline.
struct DeadlineGroup {
    size_t streams = 0, operations = 0, missed = 0;
    uint64_t bytes = 0;
};

struct PointResult {
    size_t block = 0, batch = 0, threads = 0;
    double seconds = 0;
    std::vector<ClassResult> classes;  // in the order of Options
    DeadlineGroup tight, loose;
    std::string error;  // empty without an error
};

struct Memory {
    uint8_t* address = nullptr;
    size_t bytes = 0;
};

// Runs the point. Returns nothing if the buffers are too small for it.
std::optional<PointResult> run_point(tent::TransferEngine& engine, const Options& options, Memory memory,
                                     const std::vector<Target>& targets, size_t block, size_t batch, size_t threads,
                                     Timeline* timeline);

}  // namespace rove::tebench
