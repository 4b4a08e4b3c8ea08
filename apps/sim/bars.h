// SPDX-License-Identifier: Apache-2.0
// The bars of all figures, and their count. bars.json has them with the claims of the papers; results.json has the
// committed results. tools/figures.py makes both into a table of the program.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "experiment.h"

namespace rove::sim {

// A condition on one measure. Without a limit the measure is only shown.
struct Bar {
    const char* figure;
    const char* metric;
    std::optional<double> paper;              // the paper's number
    std::optional<double> at_least, at_most;  // inclusive limits
    std::optional<double> above, below;       // exclusive limits
    std::optional<double> full, quick;        // the committed results of both forms

    bool is_judged() const { return at_least || at_most || above || below; }
    bool holds(double value) const;
    std::string text() const;  // for example "at least 38"
};

// A row of a figure: a claim of a paper, which holds if all its bars do.
struct Row {
    const char* figure;
    const char* paper_name;  // "MP-RDMA", "Eunomia", "UEC", or "rove" for a bar of our own
    const char* metric;
    const char* claim;   // a summary in our words
    const char* paper;   // the number or the claim in short
    bool is_quick;       // only the quick form was run
    const char* note;    // may be empty
    const char* reason;  // set if the row misses; else empty
    std::span<const Bar> bars;
};

struct Erratum {
    const char* figure;
    const char* where;
    const char* claim;
    const char* why;
};

std::span<const Row> rows();
std::span<const Erratum> errata();

// Gives each measure the paper's number and its bar, if there is one for it, and judges it.
void apply_bars(const std::string& figure, Report& report);

// Returns the sentence with the count of rows that hold, by the committed results.
std::string count_rows();
// Returns the table of all rows by the committed results; in Markdown also the rows that miss with their reasons, and
// the errata.
std::string table_of_rows();
std::string markdown_of_rows();

}  // namespace rove::sim
