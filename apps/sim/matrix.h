// SPDX-License-Identifier: Apache-2.0
// The matrix: the definition of done of the transport. A cell is a network, a load and a fault, with bars that the
// engine must reach. apps/sim/README.md has the formula of the limit by which goodput is divided. Units: picoseconds,
// bytes, bits per second, packets.
#pragma once

#include <string>
#include <vector>

#include "experiment.h"
#include "fabric/units.h"
#include "runner.h"

namespace rove::sim {

struct MatrixCell {
    enum class Protocol : uint8_t { kRc, kMp, kMixed };  // mixed: every second flow is mp
    enum class Signal : uint8_t { kNone, kEcn, kPfc };
    enum class Pattern : uint8_t { kPaths, kIncast, kAllToAll };
    enum class Condition : uint8_t {
        kHealthy,
        kLoss,   // independent losses
        kBurst,  // losses of several packets in a row, with the same mean
        kDead,   // some of the paths never work
        kDying,  // some of the paths fail in the middle of the time that counts
        kSlow,   // a path has a fraction of its rate
        kFlap,   // one path is down, each in turn
    };

    Protocol protocol = Protocol::kMp;
    uint32_t qps = 1;  // busy QPs of all hosts together; every pair of hosts that talks has at least one
    uint32_t message_bytes = 4096;
    fabric::Time rtt = 12 * fabric::kMicrosecond;  // propagation there and back
    Signal signal = Signal::kEcn;
    Condition condition = Condition::kHealthy;
    uint32_t degree = 0;  // one packet in `degree` is lost; or the number of paths, the factor, the period in ms
    Pattern pattern = Pattern::kPaths;
    uint32_t senders = 1;  // the hosts that send to one

    bool operator==(const MatrixCell&) const = default;
    // Returns the values of all dimensions, joined by '-', as in "mp-12qp-64K-12us-ecn-dead3-paths8".
    std::string name() const;
    // Returns true if the combination makes sense: only parallel paths die, and a path that flaps is up for long enough
    // to be found.
    bool is_possible() const;
};

// Runs a cell. The values are named in matrix_cell.cc.
Values run_cell(const MatrixCell& cell, uint64_t seed);
// Returns what the cell misses, each with its bar, or nothing if it holds.
std::vector<std::string> misses(const MatrixCell& cell, const Values& values);
// Returns the fraction of the limit that the goodput must reach.
double goodput_bar(const MatrixCell& cell);

enum class MatrixSet : uint8_t { kQuick, kFull, kAll };
// Returns the cells of a set that match the filter: words, separated by commas, all of which are values of the cell,
// or a pattern of fnmatch for its name. An empty filter matches all. Throws std::invalid_argument if no cell matches.
std::vector<MatrixCell> matrix_cells(MatrixSet set, const std::string& filter);

struct MatrixConfig {
    MatrixSet set = MatrixSet::kQuick;
    std::string filter;
    std::string json;      // a file for the numbers; empty: none
    bool misses = false;   // prints the cells that miss, as a file for the test, instead of the table
    bool summary = false;  // prints a line for each value of each dimension after the table
};
// Runs the cells and prints a table. Throws std::runtime_error if a file cannot be written.
void run_matrix(const MatrixConfig& config, const RunnerConfig& runner);

}  // namespace rove::sim
