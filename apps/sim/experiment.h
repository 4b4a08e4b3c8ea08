// SPDX-License-Identifier: Apache-2.0
// What an experiment is: a function of a seed that repeats a figure of a paper, and what it has to tell.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rove::sim {

struct Measure {
    std::string metric, unit;
    double ours;
    std::optional<double> paper{};  // none: the paper gives no such number
    std::string bar{};              // what must hold; empty: nothing, it is there to compare with
    bool holds = true;
};

struct Curve {
    std::string name;
    std::vector<std::pair<double, double>> points;
};

struct Plot {
    std::string title, x, y;
    std::vector<Curve> curves;
    std::vector<std::string> categories;  // if any: bars, one group at x = 0, 1, ... for each

    Curve& add(std::string name) { return curves.emplace_back(Curve{std::move(name), {}}); }
};

struct Report {
    std::vector<Measure> measures;
    std::vector<std::string> notes;  // where the set-up was open, or ours differs, and why
    Plot plot;
};

struct Experiment {
    const char* name;
    const char* what;
    Report (*run)(uint64_t seed);
};

std::span<const Experiment> experiments();

// A number in a text.
inline std::string format(const char* how, double value) {
    char text[128];
    std::snprintf(text, sizeof text, how, value);
    return text;
}

}  // namespace rove::sim
