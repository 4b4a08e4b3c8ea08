// SPDX-License-Identifier: Apache-2.0
// rove-sim: repeats figures of papers over the modelled network, with the engine that runs on ports. Exit status: 0
// when it ran, whatever the numbers are; 1 when a file cannot be written or a point fails; 2 for a wrong command line.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>

#include "bars.h"
#include "experiment.h"
#include "fabric/huge_pages.h"
#include "fabric/workload.h"
#include "flows.h"
#include "matrix.h"
#include "plot.h"
#include "prediction.h"
#include "runner.h"
#include "testbed.h"

namespace {

using namespace rove::sim;

constexpr int kFailed = 1, kBadUsage = 2;

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", value);
    return text;
}

// Returns a JSON string. Our names contain no quotes, but they are escaped in any case.
std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + '"';
}

std::string json(const Experiment& experiment, const Report& report) {
    std::string out = "[";
    for (const Measure& measure : report.measures) {
        out += out.size() == 1 ? "\n" : ",\n";
        out += "  {\"figure\": " + quoted(experiment.name) + ", \"metric\": " + quoted(measure.metric) +
               ", \"unit\": " + quoted(measure.unit) +
               ", \"paper\": " + (measure.paper ? number(*measure.paper) : "null") +
               ", \"ours\": " + number(measure.ours) +
               ", \"interval\": " + (measure.interval ? number(*measure.interval) : "null") + ", \"bar\": " +
               (measure.bar.empty() ? "null, \"holds\": null"
                                    : quoted(measure.bar) + ", \"holds\": " + (measure.holds ? "true" : "false")) +
               "}";
    }
    return out + "\n]\n";
}

void print(const Experiment& experiment, const Report& report, const RunnerConfig& runner) {
    const std::string seeds = runner.seeds == 1 ? "" : " to " + std::to_string(runner.seed + runner.seeds - 1);
    std::printf("%s: %s (seed %lu%s%s)\n\n", experiment.name, experiment.what, runner.seed, seeds.c_str(),
                runner.quick ? ", quick" : "");
    size_t width = 0;
    for (const Measure& measure : report.measures) width = std::max(width, measure.metric.size());
    const bool any = std::ranges::any_of(report.measures, [](const Measure& one) { return one.interval.has_value(); });
    std::printf("  %-*s  %10s  %10s  %s%-7s  bar\n", static_cast<int>(width), "", "paper", "ours",
                any ? "    +-      " : "", "unit");
    for (const Measure& measure : report.measures) {
        std::string interval(any ? 12 : 0, ' ');
        if (measure.interval) interval = format("%10.4g  ", *measure.interval);
        std::printf("  %-*s  %10s  %10s  %s%-7s  %s%s%s\n", static_cast<int>(width), measure.metric.c_str(),
                    measure.paper ? number(*measure.paper).c_str() : "-", number(measure.ours).c_str(),
                    interval.c_str(), measure.unit.c_str(), measure.bar.c_str(), measure.bar.empty() ? "" : "  holds: ",
                    measure.bar.empty() ? ""
                    : measure.holds     ? "yes"
                                        : "no");
    }
    if (!report.notes.empty()) std::puts("");
    for (const std::string& note : report.notes) std::printf("  - %s\n", note.c_str());
}

const Experiment* find(const std::string& name) {
    for (const Experiment& experiment : experiments()) {
        if (experiment.name == name) return &experiment;
    }
    return nullptr;
}

// Opens the file before the run, which takes long.
bool open(std::ofstream& file, const std::string& path) {
    if (path.empty()) return true;
    file.open(path);
    if (!file) std::fprintf(stderr, "rove-sim: cannot write %s\n", path.c_str());
    return static_cast<bool>(file);
}

int matrix_main(const MatrixConfig& config, const RunnerConfig& runner) {
    if (config.set == MatrixSet::kAll && config.filter.empty()) {
        std::fprintf(stderr, "rove-sim: matrix needs --quick, --full or --cells\n");
        return kBadUsage;
    }
    rove::fabric::prefer_huge_pages();
    try {
        run_matrix(config, runner);
    } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "rove-sim: %s\n", error.what());
        return kBadUsage;
    } catch (const std::runtime_error& error) {
        std::fprintf(stderr, "rove-sim: %s\n", error.what());
        return kFailed;
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Repeats a figure of a paper over the modelled network. The same seed gives the same numbers."};
    std::string figure, json_file, svg_file, png_file, results, csv_file;
    FlowsConfig flows{.scheme = "drill-eunomia"};
    RunnerConfig runner;
    PredictionConfig prediction;
    MatrixConfig matrix;
    bool list = false, letter = false, full = false, only_count = false, markdown = false;
    app.add_option("FIGURE", figure, "figure to run; --list shows all");
    app.add_option("--seed", runner.seed, "seed of all random numbers")->capture_default_str();
    app.add_option("--seeds", runner.seeds, "run this many seeds, and print means with 95 % intervals")
        ->check(CLI::Range(1, 1000));
    app.add_option("-j,--jobs", runner.jobs, "number of parallel processes")->check(CLI::Range(1, 1024));
    app.add_flag("--quick", runner.quick, "run a tenth of the length");
    app.add_flag("--letter", letter, "figures of MP-RDMA (mp-*): use a sender that follows MP-2 and MP-9 literally");
    app.add_option("--results", results,
                   "folder for the result of each point; points that are there are not run again");
    app.add_flag("--flows", runner.flows, "also write a CSV file of all flows of each point to the folder");
    app.add_option("--json", json_file, "write the numbers to this file");
    app.add_option("--svg", svg_file, "draw the figure to this file");
    app.add_option("--png", png_file, "draw it as PNG; needs rsvg-convert");
    app.add_flag("--list", list, "list the figures");
    const std::string with_figures = "with the FIGURE \"figures\", all rows with their bars and committed results: ";
    app.add_flag("--count", only_count, with_figures + "print only how many rows hold");
    app.add_flag("--markdown", markdown, "... print Markdown");
    const std::string with_flows = "with the FIGURE \"flows\", your own over Eunomia's network: ";
    app.add_option("--sizes", flows.sizes, with_flows + "a CDF file, lines of `size cumulative`");
    app.add_option("--load", flows.load, "... load of the uplinks")->check(CLI::Range(0.01, 2.0));
    app.add_option("--trace", flows.trace, "... instead of a CDF, a file of flows, lines of `src dst pg size start`");
    app.add_option("--scheme", flows.scheme, "... one of " + scheme_names())->capture_default_str();
    app.add_option("--ports", flows.ports.count, "... ports (rails) of each host, which its flows use in turn")
        ->check(CLI::Range(1, 16))
        ->capture_default_str();
    app.add_flag("--separate", flows.ports.separate, "... each rail connects to a different leaf");
    app.add_flag("--bonded", flows.ports.bonded, "... all rails have one address, and the NIC selects one by 5-tuple");
    app.add_option("--csv", csv_file, "... write every flow to this file");
    const std::string predicts = "with the FIGURE \"prediction\", what rove-testpmd will measure between two ports: ";
    app.add_option("--sender", prediction.sender, predicts + "the initiator's configuration file, with impair.paths");
    app.add_option("--receiver", prediction.receiver, "... the target's");
    app.add_option("--change", prediction.changes,
                   "... SECONDS:PATH:key=value,...: change the path at this time, in both directions; may be repeated")
        ->take_all();
    app.add_option("--qps", prediction.flows, "... queue pairs of rove-testpmd")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    app.add_option("--size", prediction.message_bytes, "... bytes of a message")
        ->check(CLI::Range(1u, rove::fabric::Network::kScratchBytes))
        ->capture_default_str();
    app.add_option("--depth", prediction.depth, "... messages of each QP in flight")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    app.add_option("--mtu", prediction.mtu, "... path MTU")
        ->check(CLI::IsMember({256, 512, 1024, 2048, 4096}))
        ->capture_default_str();
    app.add_option("--duration", prediction.seconds, "... duration in seconds")
        ->check(CLI::Range(0.001, 1e6))
        ->capture_default_str();
    const std::string of_matrix = "with the FIGURE \"matrix\", the transport over all networks, loads and faults: ";
    app.add_option("--cells", matrix.filter,
                   of_matrix + "only cells with all of these values, separated by commas, such as \"mp,12us,dead*\"");
    app.add_flag("--full", full, "... some thousand cells; --quick: some two hundred; neither: all that match");
    app.add_flag("--summary", matrix.summary, "... also print a line for each value of each dimension");
    app.add_flag("--misses", matrix.misses, "... print the cells that miss, as in tests/sim/matrix_misses.txt");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kBadUsage;
    }
    if (list) {
        for (const Experiment& experiment : experiments()) std::printf("%-12s %s\n", experiment.name, experiment.what);
        return 0;
    }
    if (figure == "figures") {
        std::printf("%s\n", (only_count ? count_rows() : markdown ? markdown_of_rows() : table_of_rows()).c_str());
        return 0;
    }
    if (only_count || markdown) {
        std::fprintf(stderr, "rove-sim: --count and --markdown go with the FIGURE \"figures\"\n");
        return kBadUsage;
    }
    runner.results = results;
    runner.progress = isatty(STDERR_FILENO) != 0;
    if (figure == "matrix") {
        matrix.set = full ? MatrixSet::kFull : runner.quick ? MatrixSet::kQuick : MatrixSet::kAll;
        matrix.json = json_file;
        return matrix_main(matrix, runner);
    }
    static constexpr Experiment kFlows{"flows", "your own flows"};
    static constexpr Experiment kPrediction{"prediction", "predicts the rates of two ports with impaired paths"};
    const Experiment* const experiment = figure == kFlows.name        ? &kFlows
                                         : figure == kPrediction.name ? &kPrediction
                                                                      : find(figure);
    if (experiment == nullptr) {
        std::fprintf(stderr, "rove-sim: %s; --list shows what there is\n",
                     figure.empty() ? "which FIGURE?" : ("no figure '" + figure + "'").c_str());
        return kBadUsage;
    }
    if (experiment->points == nullptr && runner.quick && experiment != &kFlows) {
        std::fprintf(stderr, "rove-sim: %s has no quick form\n", experiment->name);
        return kBadUsage;
    }
    if (runner.flows && (experiment->points == nullptr || results.empty())) {
        std::fprintf(stderr, "rove-sim: --flows goes with --results, and with figures of several points\n");
        return kBadUsage;
    }
    if (letter && (!figure.starts_with("mp-") || !results.empty())) {
        std::fprintf(stderr, "rove-sim: --letter goes with figures of MP-RDMA (mp-*), and not with --results\n");
        return kBadUsage;
    }
    if (!png_file.empty() && !can_draw_png()) {
        std::fprintf(stderr, "rove-sim: --png needs rsvg-convert on PATH (Debian: librsvg2-bin)\n");
        return kBadUsage;
    }
    if (letter) use_published_rules();
    rove::fabric::prefer_huge_pages();
    std::ofstream json_out, svg_out, csv_out;
    if (!open(json_out, json_file) || !open(svg_out, svg_file) || !open(csv_out, csv_file)) return kFailed;
    if (csv_out.is_open()) csv_out << rove::fabric::kFlowCsvHeader << '\n';
    try {
        const RunContext one{runner.seed, runner.quick, csv_out.is_open() ? &csv_out : nullptr};
        Report report = experiment == &kFlows           ? run_flows(flows, one)
                        : experiment == &kPrediction    ? run_prediction(prediction, runner.seed)
                        : experiment->points != nullptr ? experiment->report(run_points(*experiment, runner))
                        : runner.seeds > 1              ? run_seeds(*experiment, runner)
                                                        : experiment->run(runner.seed);
        if (experiment->points != nullptr || runner.seeds == 1) apply_bars(experiment->name, report);
        print(*experiment, report, runner);
        if (json_out.is_open()) json_out << json(*experiment, report);
        if (svg_out.is_open()) svg_out << svg(report.plot);
        if (!png_file.empty()) draw_png(svg(report.plot), png_file);
    } catch (const rove::fabric::BadInput& error) {
        std::fprintf(stderr, "rove-sim: %s\n", error.what());
        return kBadUsage;
    } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "rove-sim: %s\n", error.what());
        return kBadUsage;
    } catch (const std::runtime_error& error) {
        std::fprintf(stderr, "rove-sim: %s\n", error.what());
        return kFailed;
    }
    return 0;
}
