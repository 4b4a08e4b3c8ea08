// SPDX-License-Identifier: Apache-2.0
// Tests how rove-sim runs its points: means and intervals, processes, result files, and failures.
#include "runner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "completion_times.h"
#include "experiments.h"

namespace rove::sim {
namespace {

namespace fs = std::filesystem;

TEST(ResultsTest, MeanAndIntervalAreStudents) {
    const std::vector<double> values{1, 2, 3, 4, 5};
    const auto [mean, half] = mean_and_interval(values);
    EXPECT_DOUBLE_EQ(mean, 3);
    EXPECT_NEAR(half, 2.776 * std::sqrt(2.5 / 5), 1e-3);
    EXPECT_EQ(mean_and_interval(std::vector<double>{7}), (std::pair<double, double>{7, 0}));
    Results results;
    results.add("a", {{"x", 1}});
    EXPECT_FALSE(results.interval("a", "x"));
    results.add("a", {{"x", 3}});
    EXPECT_DOUBLE_EQ(results.mean("a", "x"), 2);
    EXPECT_NEAR(results.interval("a", "x").value(), 12.706, 1e-3);
    EXPECT_THROW(results.mean("a", "y"), std::out_of_range);
    EXPECT_THROW(results.mean("b", "x"), std::out_of_range);
}

TEST(CompletionTimesTest, PercentilesAndClasses) {
    CompletionTimes times(5 * fabric::kMicrosecond);
    for (uint64_t i = 1; i <= 1000; ++i) {
        fabric::FlowRecord record{.flow = {.bytes = i <= 500 ? 10u : 1000u, .start = 5 * fabric::kMicrosecond}};
        record.took = i * fabric::kMicrosecond;
        record.ideal = fabric::kMicrosecond;
        times.add(record);
        record.flow.start = 1;  // starts too early to be counted
        times.add(record);
    }
    EXPECT_EQ(times.count(), 1000u);
    EXPECT_DOUBLE_EQ(times.mean_us(), 500.5);
    EXPECT_DOUBLE_EQ(times.mean_slowdown(0, 100), 250.5);
    EXPECT_DOUBLE_EQ(times.slowdown(0.99), 990);
    EXPECT_DOUBLE_EQ(times.slowdown(0.5, 100), 750);
    EXPECT_EQ(times.slowdown(0.5, 5000), 0);
    fabric::FlowRecord fast{.took = 1, .ideal = 2};
    EXPECT_EQ(fast.slowdown(), 1);
}

// The points count their own runs in files of the test's folder.
struct RunnerTest : testing::Test {
    static inline fs::path folder;
    RunnerTest() {
        std::string name = (fs::temp_directory_path() / "rove-runner-XXXXXX").string();
        folder = mkdtemp(name.data());
        config.results = folder / "kept";
    }
    ~RunnerTest() override { fs::remove_all(folder); }

    static size_t runs(const std::string& point) {
        std::ifstream in(folder / ("runs-" + point));
        std::string line;
        size_t count = 0;
        while (std::getline(in, line)) ++count;
        return count;
    }
    static Values counted(const std::string& point, const RunContext& with) {
        std::ofstream(folder / ("runs-" + point), std::ios::app) << with.seed << '\n';
        if (with.flows != nullptr) *with.flows << "flow " << with.seed << '\n';
        return {{"seed", static_cast<double>(with.seed)}, {"quick", with.quick}};
    }
    static std::vector<Point> good() {
        return {{"one", [](const RunContext& with) { return counted("one", with); }},
                {"two", [](const RunContext& with) { return counted("two", with); }}};
    }
    static std::vector<Point> bad() {
        std::vector<Point> points = good();
        points.insert(points.begin(),
                      {"broken", [](const RunContext&) -> Values { throw std::runtime_error("broken"); }});
        points.insert(points.begin(), {"killed", [](const RunContext&) -> Values { _exit(3); }});
        return points;
    }
    RunnerConfig config{.seed = 5, .seeds = 3, .jobs = 2};
};

TEST_F(RunnerTest, EveryPointIsRunWithEverySeed) {
    const Results results = run_points({"fake", "", nullptr, good, nullptr}, config);
    EXPECT_DOUBLE_EQ(results.mean("one", "seed"), 6);
    EXPECT_DOUBLE_EQ(results.mean("two", "quick"), 0);
    EXPECT_EQ(runs("one"), 3u);
}

TEST_F(RunnerTest, WhatIsThereIsNotRunAgain) {
    const Experiment experiment{"fake", "", nullptr, good, nullptr};
    run_points(experiment, config);
    fs::remove(config.results / "fake" / "one.6.json");
    std::ofstream(config.results / "fake" / "two.7.json") << "{\"values\": {\"se";  // the disk was full
    const Results results = run_points(experiment, config);
    EXPECT_EQ(runs("one"), 4u);
    EXPECT_EQ(runs("two"), 4u);
    EXPECT_DOUBLE_EQ(results.mean("two", "seed"), 6);
    config.quick = true;  // has results of its own
    EXPECT_DOUBLE_EQ(run_points(experiment, config).mean("one", "quick"), 1);
    EXPECT_EQ(runs("one"), 7u);
}

TEST_F(RunnerTest, FlowsGoIntoAFileBesideIt) {
    config.flows = true;
    run_points({"fake", "", nullptr, good, nullptr}, config);
    std::ifstream in(config.results / "fake" / "two.7.csv");
    std::string line;
    std::getline(in, line);
    EXPECT_EQ(line, "src,dst,sport,size,start,fct,ideal");
    std::getline(in, line);
    EXPECT_EQ(line, "flow 7");
}

TEST_F(RunnerTest, AFailedPointIsToldWhenTheOthersHaveRun) {
    try {
        run_points({"fake", "", nullptr, bad, nullptr}, config);
        FAIL() << "not told";
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("6 points"), std::string::npos) << error.what();
    }
    EXPECT_EQ(runs("one"), 3u);
    config.results = "/proc/nowhere";
    EXPECT_THROW(run_points({"fake", "", nullptr, good, nullptr}, config), std::runtime_error);
}

Report measured(uint64_t seed) {
    Report report;
    report.measures = {{"value", "", static_cast<double>(seed), std::nullopt, "below 7", seed < 7}};
    report.notes = {"a note"};
    return report;
}

TEST_F(RunnerTest, AFunctionIsRunWithSeveralSeedsToo) {
    const Report report = run_seeds({"function", "", measured, nullptr, nullptr}, config);
    ASSERT_EQ(report.measures.size(), 1u);
    EXPECT_DOUBLE_EQ(report.measures[0].ours, 6);
    EXPECT_NEAR(report.measures[0].interval.value(), 4.303 / std::sqrt(3), 1e-3);
    EXPECT_FALSE(report.measures[0].holds);
    EXPECT_NE(report.measures[0].bar.find("2 of 3"), std::string::npos);
    EXPECT_EQ(report.notes.size(), 1u);
}

// Runs 128 hosts instead of 1024. In an empty network a flow of 2 MB takes 178 us.
TEST(UecTest, APermutationOverRecycledPathsEndsWhenItShould) {
    const std::vector<Point> points = uec_points();
    const auto point = std::ranges::find(points, "permutation-reps-trimming", &Point::name);
    ASSERT_NE(point, points.end());
    const Values values = point->run({.quick = true});
    EXPECT_EQ(values.at("unfinished"), 0);
    EXPECT_GT(values.at("last"), 178);
    EXPECT_LT(values.at("last"), 1.05 * 213);
}

}  // namespace
}  // namespace rove::sim
