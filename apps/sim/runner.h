// SPDX-License-Identifier: Apache-2.0
// Runs the points of an experiment, each in a process of its own, several at a time, and keeps the results of each in a
// file. Points with a result are not run again, so that an interrupted run can be resumed.
#pragma once

#include <filesystem>

#include "experiment.h"

namespace rove::sim {

struct RunnerConfig {
    uint64_t seed = 1;   // the first seed
    uint32_t seeds = 1;  // the number of consecutive seeds
    uint32_t jobs = 1;   // processes at a time
    bool quick = false;
    std::filesystem::path results;  // a folder; empty: results are not kept
    bool flows = false;             // each point also writes its flows there as CSV
    bool progress = false;          // to stderr
};

// Throws std::runtime_error if a file cannot be written or a point has failed, after the other points have run.
Results run_points(const Experiment& experiment, const RunnerConfig& config);
// Says whether a point that fails is an exception, or has no result.
enum class Failed : uint8_t { kThrow, kSkip };
// Runs these points, as points of the experiment.
Results run_points(const Experiment& experiment, const std::vector<Point>& points, const RunnerConfig& config,
                   Failed failed = Failed::kThrow);
// Runs an experiment of one function with several seeds, and merges the reports.
Report run_seeds(const Experiment& experiment, const RunnerConfig& config);

}  // namespace rove::sim
