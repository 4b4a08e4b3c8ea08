// SPDX-License-Identifier: Apache-2.0
// What an experiment is: something that repeats a figure of a paper from a seed, and what it has to tell.
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
    std::optional<double> paper{};  // none: the paper gives no such number
    std::string bar{};              // what must hold; empty: nothing, it is there to compare with
    bool holds = true;
    std::optional<double> interval{};  // half of the 95 % interval of the mean over seeds; none: one seed
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

// One simulation of an experiment.
struct RunContext {
    uint64_t seed = 1;
    bool quick = false;             // a tenth of the length: wider intervals, the same bars
    std::ostream* flows = nullptr;  // a line of CSV for each flow goes there; null: nowhere
};
using Values = std::map<std::string, double>;  // by metric
struct Point {
    std::string name;  // of letters, digits, '-' and '.': it becomes a file's name
    std::function<Values(const RunContext&)> run;
};

// What the points of an experiment gave, each with one or more seeds.
class Results {
  public:
    void add(const std::string& point, Values values) { all_[point].push_back(std::move(values)); }
    // Over the seeds. Throws std::out_of_range for what was not run or measured.
    double mean(const std::string& point, const std::string& metric) const;
    // Half of the 95 % interval of the mean, by Student's t; none with one seed.
    std::optional<double> interval(const std::string& point, const std::string& metric) const;
    // Both as a measure.
    Measure measure(const std::string& name, const std::string& unit, const std::string& point,
                    const std::string& metric) const {
        Measure made{name, unit, mean(point, metric)};
        made.interval = interval(point, metric);
        return made;
    }

  private:
    std::map<std::string, std::vector<Values>> all_;
};
// Mean, and half of its 95 % interval (0 of one value).
std::pair<double, double> mean_and_interval(std::span<const double> values);

// Either one function of a seed, or points that are simulated one by one, at the same time where there are cores, and a
// report of them all.
struct Experiment {
    const char* name;
    const char* what;
    Report (*run)(uint64_t seed) = nullptr;
    std::vector<Point> (*points)() = nullptr;
    Report (*report)(const Results& results) = nullptr;
    const char* set = nullptr;  // of points, where several experiments have the same ones; null: its own, by its name
};

std::span<const Experiment> experiments();

// A number in a text.
inline std::string format(const char* how, double value) {
    char text[128];
    std::snprintf(text, sizeof text, how, value);
    return text;
}

}  // namespace rove::sim
