// SPDX-License-Identifier: Apache-2.0
// Runs the points of an experiment, each in a process of its own, so many at a time, and keeps what each gave in a
// file. What is there already is not run again: a run that was interrupted goes on where it was.
#pragma once

#include <filesystem>

#include "experiment.h"

namespace rove::sim {

struct RunnerConfig {
    uint64_t seed = 1;   // the first
    uint32_t seeds = 1;  // so many, one after the other
    uint32_t jobs = 1;   // processes at a time
    bool quick = false;
    std::filesystem::path results;  // a folder; empty: nothing is kept
    bool flows = false;             // each point writes its flows there as CSV, too
    bool progress = false;          // to stderr
};

// Throws std::runtime_error when a file cannot be written or a point has failed; the others have then run.
Results run_points(const Experiment& experiment, const RunnerConfig& config);
// An experiment of one function, with several seeds: its report by each, in one.
Report run_seeds(const Experiment& experiment, const RunnerConfig& config);

}  // namespace rove::sim
