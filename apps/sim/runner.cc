// SPDX-License-Identifier: Apache-2.0
#include "runner.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bars.h"
#include "fabric/workload.h"

namespace rove::sim {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

struct Task {
    const Point* point;
    RunContext run;
    fs::path file, flows;  // its results and its flows; empty: it writes no flows
};

// A folder that is removed with the object.
struct TemporaryFolder {
    TemporaryFolder() {
        std::string name = (fs::temp_directory_path() / "rove-sim-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot write " + name);
        path = name;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    fs::path path;
};

// Returns nothing if the file does not exist or is incomplete.
std::optional<Values> read(const fs::path& file) {
    std::ifstream in(file);
    if (!in) return std::nullopt;
    const Json json = Json::parse(in, nullptr, false);
    if (json.is_discarded() || !json.contains("values")) return std::nullopt;
    return json["values"].get<Values>();
}

// Runs in the child. The file gets its name only when it is complete.
void run_task(const Experiment& experiment, Task task) {
    const auto begin = Clock::now();
    std::ofstream flows;
    if (!task.flows.empty()) {
        flows.open(task.flows);
        flows << fabric::kFlowCsvHeader << '\n';
        task.run.flows = &flows;
    }
    const Values values = task.point->run(task.run);
    const std::chrono::duration<double> took = Clock::now() - begin;
    const Json json{{"experiment", experiment.name}, {"point", task.point->name}, {"seed", task.run.seed},
                    {"quick", task.run.quick},       {"seconds", took.count()},   {"values", values}};
    const fs::path partial = task.file.string() + ".partial";
    std::ofstream out(partial);
    out << json.dump(2) << '\n';
    out.close();
    if (flows.is_open()) flows.close();
    if (!out || !flows) throw std::runtime_error("cannot write " + task.file.string());
    fs::rename(partial, task.file);
}

pid_t start(const Experiment& experiment, const Task& task) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("no process for one more point");
    if (child != 0) return child;
    try {
        run_task(experiment, task);
        _exit(0);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "rove-sim: %s: %s\n", task.point->name.c_str(), error.what());
    }
    _exit(1);
}

std::string minutes(double seconds) {
    return seconds < 90 ? format("%.0f s", seconds) : format("%.0f min", seconds / 60);
}

// Runs the points without results. Returns those that failed.
std::vector<std::string> run_all(const Experiment& experiment, const std::vector<Task>& tasks,
                                 const RunnerConfig& config) {
    std::vector<const Task*> left;
    for (const Task& task : tasks) {
        if (!read(task.file)) left.push_back(&task);
    }
    std::map<pid_t, const Task*> running;
    std::vector<std::string> failed;
    const auto begin = Clock::now();
    size_t next = 0, done = 0;
    while (next != left.size() || !running.empty()) {
        while (next != left.size() && running.size() < config.jobs) {
            running.emplace(start(experiment, *left[next]), left[next]);
            ++next;
        }
        int status = 0;
        const pid_t ended = waitpid(-1, &status, 0);
        const auto task = running.find(ended);
        if (task == running.end()) continue;
        if (status != 0) failed.push_back(task->second->point->name);
        ++done;
        if (config.progress) {
            const std::chrono::duration<double> took = Clock::now() - begin;
            const double rest = took.count() / static_cast<double>(done) * static_cast<double>(left.size() - done);
            std::fprintf(stderr, "%s: %zu of %zu points, some %s left (%s)\n", experiment.name,
                         tasks.size() - left.size() + done, tasks.size(), minutes(rest).c_str(),
                         task->second->point->name.c_str());
        }
        running.erase(task);
    }
    return failed;
}

}  // namespace

Results run_points(const Experiment& experiment, const std::vector<Point>& points, const RunnerConfig& config,
                   Failed when_failed) {
    std::optional<TemporaryFolder> temporary;
    if (config.results.empty()) temporary.emplace();
    const fs::path folder =
        (temporary ? temporary->path : config.results) / (experiment.set != nullptr ? experiment.set : experiment.name);
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw std::runtime_error("cannot write " + folder.string());
    std::vector<Task> tasks;
    for (const Point& point : points) {
        for (uint32_t i = 0; i < config.seeds; ++i) {
            const uint64_t seed = config.seed + i;
            const std::string name = point.name + (config.quick ? ".quick" : "") + "." + std::to_string(seed);
            tasks.push_back({&point,
                             {.seed = seed, .quick = config.quick},
                             folder / (name + ".json"),
                             config.flows ? folder / (name + ".csv") : fs::path()});
        }
    }
    const std::vector<std::string> failed = run_all(experiment, tasks, config);
    if (!failed.empty() && when_failed == Failed::kThrow)
        throw std::runtime_error(std::to_string(failed.size()) + " points have failed, the first is " + failed.front());
    Results results;
    for (const Task& task : tasks) {
        if (auto values = read(task.file)) results.add(task.point->name, std::move(*values));
    }
    return results;
}

Results run_points(const Experiment& experiment, const RunnerConfig& config) {
    return run_points(experiment, experiment.points(), config);
}

Report run_seeds(const Experiment& experiment, const RunnerConfig& config) {
    const auto judged = [&](uint64_t seed) {
        Report report = experiment.run(seed);
        apply_bars(experiment.name, report);
        return report;
    };
    const auto all = [&](const RunContext& with) {
        Values values;
        for (const Measure& measure : judged(with.seed).measures) {
            values[measure.metric] = measure.ours;
            if (!measure.bar.empty()) values["holds: " + measure.metric] = measure.holds;
        }
        return values;
    };
    const Results results = run_points(experiment, {{"all", all}}, config);
    Report report = judged(config.seed);  // for its notes and figure
    for (Measure& measure : report.measures) {
        measure.ours = results.mean("all", measure.metric);
        measure.interval = results.interval("all", measure.metric);
        if (measure.bar.empty()) continue;
        const double held = results.mean("all", "holds: " + measure.metric);
        measure.holds = held == 1;
        measure.bar += format(" (with %.0f", held * config.seeds) + format(" of %.0f seeds)", config.seeds);
    }
    return report;
}

}  // namespace rove::sim
