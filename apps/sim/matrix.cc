// SPDX-License-Identifier: Apache-2.0
// `rove-sim matrix`: runs cells and prints them.
#include "matrix.h"

#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace rove::sim {
namespace {

struct Result {
    std::string name;
    double bar;
    std::optional<Values> values;  // unset: the cell crashed
    std::vector<std::string> missed;
};

std::string joined(const std::vector<std::string>& parts) {
    std::string all;
    for (const std::string& part : parts) all += (all.empty() ? "" : ", ") + part;
    return all;
}

// Returns a value, or a dash if the cell does not have it.
std::string text(const Values& values, const char* name, const char* how) {
    const auto value = values.find(name);
    return value == values.end() ? "-" : format(how, value->second);
}

void print_row(const Result& result) {
    if (!result.values) {
        std::printf("%-46s %s\n", result.name.c_str(), "misses: it crashed");
        return;
    }
    const Values& values = *result.values;
    std::printf("%-46s %5g %8.4g %6.3f %5.2f %8.3f %6s %6s %9s %7s %4.0f  %s\n", result.name.c_str(), values.at("rate"),
                values.at("goodput"), values.at("by limit"), result.bar, 100 * values.at("repeated"),
                text(values, "jain", "%.3f").c_str(), text(values, "least", "%.2f").c_str(),
                text(values, "p99", "%.4g").c_str(), text(values, "p99 by limit", "%.2f").c_str(), values.at("errors"),
                result.missed.empty() ? "holds" : ("misses: " + joined(result.missed)).c_str());
}

// Prints, for each value of each dimension, how many cells hold and the median of their goodput by the limit.
void print_summary(const std::vector<Result>& results) {
    struct Group {
        std::vector<double> by_limit;
        size_t cells = 0, held = 0;
    };
    std::array<std::vector<std::pair<std::string, Group>>, 7> dimensions;
    for (const Result& result : results) {
        std::istringstream in(result.name);
        for (auto& groups : dimensions) {
            std::string value;
            std::getline(in, value, '-');
            auto group = std::ranges::find(groups, value, &std::pair<std::string, Group>::first);
            if (group == groups.end()) group = groups.insert(groups.end(), {value, {}});
            ++group->second.cells;
            group->second.held += result.missed.empty();
            if (result.values) group->second.by_limit.push_back(result.values->at("by limit"));
        }
    }
    std::printf("\n%-16s %6s %6s  %s\n", "", "cells", "hold", "goodput by limit: least, tenth, median");
    for (auto& groups : dimensions) {
        for (auto& [value, group] : groups) {
            std::ranges::sort(group.by_limit);
            const auto rank = [&](double part) {
                if (group.by_limit.empty()) return 0.0;
                return group.by_limit[static_cast<size_t>(part * static_cast<double>(group.by_limit.size() - 1))];
            };
            std::printf("%-16s %6zu %6zu  %5.3f %5.3f %5.3f\n", value.c_str(), group.cells, group.held, rank(0),
                        rank(0.1), rank(0.5));
        }
    }
}

nlohmann::json json_of(const std::vector<Result>& results, uint64_t seed) {
    nlohmann::json all = nlohmann::json::array();
    for (const Result& result : results) {
        nlohmann::json cell{{"cell", result.name},
                            {"seed", seed},
                            {"goodput bar", result.bar},
                            {"holds", result.missed.empty()},
                            {"misses", result.missed}};
        if (result.values) cell.update(nlohmann::json(*result.values));
        all.push_back(std::move(cell));
    }
    return all;
}

}  // namespace

void run_matrix(const MatrixConfig& config, const RunnerConfig& runner) {
    const std::vector<MatrixCell> cells = matrix_cells(config.set, config.filter);
    std::ofstream json;
    if (!config.json.empty()) {
        json.open(config.json);
        if (!json) throw std::runtime_error("cannot write " + config.json);
    }
    std::vector<Point> points;
    for (const MatrixCell& cell : cells)
        points.push_back({cell.name(), [cell](const RunContext& with) { return run_cell(cell, with.seed); }});
    static constexpr Experiment kMatrix{"matrix", "the definition of done of the transport"};
    RunnerConfig with = runner;
    with.quick = false;  // a cell does not depend on its set
    const Results results = run_points(kMatrix, points, with, Failed::kSkip);

    std::vector<Result> all;
    size_t held = 0;
    for (const MatrixCell& cell : cells) {
        Result result{cell.name(), goodput_bar(cell), results.values(cell.name()), {}};
        result.missed = result.values ? misses(cell, *result.values) : std::vector<std::string>{"it crashed"};
        held += result.missed.empty();
        all.push_back(std::move(result));
    }
    if (json.is_open() && !(json << json_of(all, runner.seed).dump(1) << '\n'))
        throw std::runtime_error("cannot write " + config.json);
    double cpu = 0;
    for (const Result& result : all) cpu += result.values ? result.values->at("cpu") : 0;
    std::fprintf(stderr, "%zu cells took %.0f s of CPU\n", cells.size(), cpu);
    if (config.misses) {
        for (const Result& result : all) {
            if (!result.missed.empty()) std::printf("%-46s %s\n", result.name.c_str(), joined(result.missed).c_str());
        }
        return;
    }
    std::printf("seed %lu; rates and goodput in Gb/s, by: goodput by the limit, repeated in %%, P99 in us\n\n",
                runner.seed);
    std::printf("%-46s %5s %8s %6s %5s %8s %6s %6s %9s %7s %4s\n", "cell", "rate", "goodput", "by", "bar", "repeated",
                "Jain", "least", "P99", "P99/lim", "err");
    for (const Result& result : all) print_row(result);
    if (config.summary) print_summary(all);
    std::printf("\n%zu of %zu cells hold\n", held, cells.size());
}

}  // namespace rove::sim
