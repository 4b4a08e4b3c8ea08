// SPDX-License-Identifier: Apache-2.0
// One point of the sweep: all streams of a block size, a batch size and a number of threads, for `duration_s`.
#pragma once

#include <cstdint>
#include <optional>
#include <rove/tent.hpp>
#include <string>
#include <vector>

#include "options.h"
#include "timeline.h"

namespace rove::tebench {

// The largest registered memory of a target.
struct Target {
    tent::SegmentID segment = 0;
    uint64_t address = 0, bytes = 0;
};

struct ClassResult {
    size_t streams = 0;
    uint64_t bytes = 0;              // that arrived while it was measured
    std::vector<uint64_t> times_ns;  // of batches submitted meanwhile
    size_t missed = 0;               // ... that ended because of their deadline
};

// Streams with the command line's deadline, or without it.
struct DeadlineGroup {
    size_t streams = 0, operations = 0, missed = 0;
    uint64_t bytes = 0;
};

struct PointResult {
    size_t block = 0, batch = 0, threads = 0;
    double seconds = 0;
    std::vector<ClassResult> classes;  // as in Options
    DeadlineGroup tight, loose;
    std::string error;  // empty: all is well
};

struct Memory {
    uint8_t* address = nullptr;
    size_t bytes = 0;
};

// Nothing if the buffers are too small for it.
std::optional<PointResult> run_point(tent::TransferEngine& engine, const Options& options, Memory memory,
                                     const std::vector<Target>& targets, size_t block, size_t batch, size_t threads,
                                     Timeline* timeline);

}  // namespace rove::tebench
