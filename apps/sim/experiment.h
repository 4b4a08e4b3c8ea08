// SPDX-License-Identifier: Apache-2.0
// An experiment: a function that repeats a figure of a paper from a seed, and its report.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rove::sim {

struct Measure {
    std::string metric, unit;
    double ours;
    // Set by apply_bars() (bars.h).
    std::optional<double> paper{};  // unset: the paper gives no such number
    std::string bar{};              // the condition that must hold; empty: the measure is only for comparison
    bool holds = true;
    std::optional<double> interval{};  // half of the 95 % interval of the mean over seeds; unset with one seed
};

struct Curve {
    std::string name;
    std::vector<std::pair<double, double>> points;
};

struct Plot {
    std::string title, x, y;
    std::vector<Curve> curves;
    std::vector<std::string> categories;  // if not empty: bars, one group at x = 0, 1, ... for each

    Curve& add(std::string name) { return curves.emplace_back(Curve{std::move(name), {}}); }
};

struct Report {
    std::vector<Measure> measures;
    std::vector<std::string> notes;  // open or different details of the set-up, with reasons
    Plot plot;
};

// The context of one simulation of an experiment.
struct RunContext {
    uint64_t seed = 1;
    bool quick = false;             // a tenth of the length: wider intervals, the same bars
    std::ostream* flows = nullptr;  // receives a line of CSV per flow, unless null
};
using Values = std::map<std::string, double>;  // keyed by metric
struct Point {
    std::string name;  // letters, digits, '-' and '.': it becomes a file name
    std::function<Values(const RunContext&)> run;
};

// The results of an experiment's points, each with one or more seeds.
class Results {
  public:
    void add(const std::string& point, Values values) { all_[point].push_back(std::move(values)); }
    // Returns the values of the first seed, or nothing if the point has no result.
    std::optional<Values> values(const std::string& point) const {
        const auto found = all_.find(point);
        if (found == all_.end()) return std::nullopt;
        return found->second.front();
    }
    // Returns the mean over the seeds. Throws std::out_of_range for a point or metric without a result.
    double mean(const std::string& point, const std::string& metric) const;
    // Returns half of the 95 % interval of the mean, by Student's t, or nothing with one seed.
    std::optional<double> interval(const std::string& point, const std::string& metric) const;
    // Returns both as a measure.
    Measure measure(const std::string& name, const std::string& unit, const std::string& point,
                    const std::string& metric) const {
        Measure made{name, unit, mean(point, metric)};
        made.interval = interval(point, metric);
        return made;
    }

  private:
    std::map<std::string, std::vector<Values>> all_;
};
// Returns the mean and half of its 95 % interval (0 for one value).
std::pair<double, double> mean_and_interval(std::span<const double> values);

// Either one function of a seed, or points that are simulated separately, in parallel where there are cores, and a
// report of them all.
struct Experiment {
    const char* name;
    const char* what;
    Report (*run)(uint64_t seed) = nullptr;
    std::vector<Point> (*points)() = nullptr;
    Report (*report)(const Results& results) = nullptr;
    const char* set = nullptr;  // name of a set of points that several experiments share; null: its own
};

std::span<const Experiment> experiments();

// Formats a number.
inline std::string format(const char* how, double value) {
    char text[128];
    std::snprintf(text, sizeof text, how, value);
    return text;
}

}  // namespace rove::sim
