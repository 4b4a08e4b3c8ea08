// SPDX-License-Identifier: Apache-2.0
// Implements report.h; docs/guide/tebench.md explains the columns.
#include "report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

namespace rove::tebench {

namespace {

using Json = nlohmann::json;

constexpr int kSchemaVersion = 1;

struct Times {
    explicit Times(std::vector<uint64_t> ns) : ns_(std::move(ns)) { std::sort(ns_.begin(), ns_.end()); }

    size_t count() const { return ns_.size(); }
    double mean_us() const {
        return ns_.empty() ? 0 : std::accumulate(ns_.begin(), ns_.end(), 0.0) / static_cast<double>(ns_.size()) / 1e3;
    }
    // Interpolates linearly between the two neighbours, like Mooncake.
    double quantile_us(double q) const {
        if (ns_.empty()) return 0;
        const double rank = q * static_cast<double>(ns_.size() - 1);
        const auto below = static_cast<size_t>(rank);
        const size_t above = std::min(below + 1, ns_.size() - 1);
        const auto low = static_cast<double>(ns_[below]), high = static_cast<double>(ns_[above]);
        return (low + (high - low) * (rank - static_cast<double>(below))) / 1e3;
    }
    // Returns the mean of `bytes` / duration over all batches.
    double mean_rate(double bytes) const {
        double sum = 0;
        for (const uint64_t ns : ns_) sum += bytes * 1e9 / static_cast<double>(std::max<uint64_t>(ns, 1));
        return ns_.empty() ? 0 : sum / static_cast<double>(ns_.size());
    }
    double share_within_us(double us) const {
        const auto end = std::upper_bound(ns_.begin(), ns_.end(), static_cast<uint64_t>(us * 1e3));
        return ns_.empty() ? 0 : static_cast<double>(end - ns_.begin()) / static_cast<double>(ns_.size());
    }

  private:
    std::vector<uint64_t> ns_;
};

Times all_times(const PointResult& result) {
    std::vector<uint64_t> all;
    for (const ClassResult& one : result.classes) all.insert(all.end(), one.times_ns.begin(), one.times_ns.end());
    return Times(std::move(all));
}

double bytes_per_s(const PointResult& result) {
    uint64_t bytes = 0;
    for (const ClassResult& one : result.classes) bytes += one.bytes;
    return static_cast<double>(bytes) / result.seconds;
}

std::optional<double> if_any(double value) {
    return value > 0 ? std::optional(value) : std::nullopt;
}

// An unknown value becomes null in JSON and N/A in the table.
Json json(const std::optional<double>& value) {
    return value ? Json(*value) : Json(nullptr);
}

std::string text(const std::optional<double>& value) {
    return value ? std::to_string(*value) : "N/A";
}

struct ClassSummary {
    const Class* of;
    const ClassResult* found;
    Times times;
    double gbps, goodput = gbps;  // GB/s
    std::optional<double> attainment, leakage;
};

// The statistics of classes that Mooncake's tebench prints, with rates in GB/s.
struct Summary {
    Summary(const Options& options, const PointResult& result) {
        double shares = 0, squares = 0;
        for (size_t i = 0; i < result.classes.size(); ++i) {
            const Class& of = options.classes[i];
            const ClassResult& found = result.classes[i];
            ClassSummary one{&of, &found, Times(found.times_ns),
                             static_cast<double>(found.bytes) * 1e-9 / result.seconds};
            const auto all = static_cast<double>(one.times.count() + found.missed);
            if (of.slo_us > 0 && all > 0)
                one.attainment = one.times.share_within_us(of.slo_us) * static_cast<double>(one.times.count()) / all;
            one.goodput = one.gbps * one.attainment.value_or(1);
            if (of.isolated_gbps > 0) {
                one.leakage = std::max(0.0, 1 - one.gbps / of.isolated_gbps);
                leakage = std::max(leakage.value_or(0), *one.leakage);
            }
            weighted_goodput += one.goodput * of.weight;
            shares += one.gbps / of.weight;
            squares += one.gbps / of.weight * (one.gbps / of.weight);
            classes.push_back(std::move(one));
        }
        if (squares > 0) fairness = shares * shares / (static_cast<double>(classes.size()) * squares);
        if (options.link_gbps > 0) utilization = bytes_per_s(result) * 1e-9 / options.link_gbps;
    }

    std::vector<ClassSummary> classes;
    double weighted_goodput = 0, fairness = 1;
    std::optional<double> leakage, utilization;
};

// Returns the time of a thread for each batch, including everything that is not transfer.
double latency_us(const PointResult& result, const Times& times) {
    return times.count() == 0
               ? 0
               : result.seconds * 1e6 * static_cast<double>(result.threads) / static_cast<double>(times.count());
}

}  // namespace

std::string table_heading() {
    char line[160];
    std::snprintf(line, sizeof(line), "%12s %8s %8s %12s %18s %14s %14s %14s %14s", "BlkSize (B)", "Batch", "Threads",
                  "BW (GB/s)", "Avg Inst BW (GB/s)", "Avg Lat (us)", "Avg Tx (us)", "P99 Tx (us)", "P999 Tx (us)");
    return line;
}

std::string table_line(const PointResult& result) {
    const Times times = all_times(result);
    char line[160];
    std::snprintf(line, sizeof(line), "%12zu %8zu %8zu %12.3f %18.3f %14.1f %14.1f %14.1f %14.1f", result.block,
                  result.batch, result.threads, bytes_per_s(result) / 1e9,
                  times.mean_rate(static_cast<double>(result.block * result.batch)) / 1e9, latency_us(result, times),
                  times.mean_us(), times.quantile_us(0.99), times.quantile_us(0.999));
    return line;
}

std::string detail_lines(const Options& options, const PointResult& result) {
    std::string lines;
    char line[320];
    if (options.has_classes) {
        const Summary sum(options, result);
        std::snprintf(line, sizeof(line),
                      "  [qos-summary] throughput=%.6f GB/s weighted_goodput=%.6f GB/s jain_fairness=%.6f "
                      "max_isolation_leakage=%s total_utilization=%s\n",
                      bytes_per_s(result) * 1e-9, sum.weighted_goodput, sum.fairness, text(sum.leakage).c_str(),
                      text(sum.utilization).c_str());
        lines += line;
        for (const ClassSummary& one : sum.classes) {
            std::snprintf(line, sizeof(line),
                          "  [qos-class] name=%s threads=%zu operations=%zu transferred_bytes=%zu throughput=%.6f GB/s "
                          "p99_us=%.1f slo_attainment=%s isolation_leakage=%s\n",
                          one.of->name.c_str(), one.found->streams, one.times.count(),
                          static_cast<size_t>(one.found->bytes), one.gbps, one.times.quantile_us(0.99),
                          text(one.attainment).c_str(), text(one.leakage).c_str());
            lines += line;
        }
    }
    if (options.deadline_us == 0) return lines;
    for (const auto& [name, group] : {std::pair{"tight", &result.tight}, {"loose", &result.loose}}) {
        if (group->streams == 0) continue;
        const std::string deadline =
            group == &result.tight ? " deadline_us=" + std::to_string(static_cast<uint64_t>(options.deadline_us)) : "";
        std::snprintf(line, sizeof(line),
                      "  [deadline-%s] threads=%zu%s operations=%zu throughput=%.6f GB/s missed=%zu\n", name,
                      group->streams, deadline.c_str(), group->operations,
                      static_cast<double>(group->bytes) * 1e-9 / result.seconds, group->missed);
        lines += line;
    }
    return lines;
}

std::string json_line(const Options& options, const PointResult& result) {
    const Summary sum(options, result);
    Json classes = Json::array();
    for (const ClassSummary& one : sum.classes) {
        classes.push_back({{"name", one.of->name},
                           {"priority", one.of->priority},
                           {"threads", one.found->streams},
                           {"slo_us", one.of->slo_us},
                           {"weight", one.of->weight},
                           {"operations", one.times.count()},
                           {"deadline_missed", one.found->missed},
                           {"transferred_bytes", one.found->bytes},
                           {"throughput_gbps", one.gbps},
                           {"avg_us", one.times.mean_us()},
                           {"p50_us", one.times.quantile_us(0.5)},
                           {"p99_us", one.times.quantile_us(0.99)},
                           {"p999_us", one.times.quantile_us(0.999)},
                           {"max_us", one.times.quantile_us(1)},
                           {"slo_attainment", json(one.attainment)},
                           {"goodput_gbps", one.goodput},
                           {"weighted_goodput_gbps", one.goodput * one.of->weight},
                           {"isolated_throughput_gbps", json(if_any(one.of->isolated_gbps))},
                           {"isolation_leakage", json(one.leakage)}});
    }
    const Times times = all_times(result);
    return Json{{"schema_version", kSchemaVersion},
                {"block_size", result.block},
                {"batch_size", result.batch},
                {"num_threads", result.threads},
                {"seconds", result.seconds},
                {"operations", times.count()},
                {"aggregate_throughput_gbps", bytes_per_s(result) * 1e-9},
                {"avg_latency_us", latency_us(result, times)},
                {"avg_us", times.mean_us()},
                {"p50_us", times.quantile_us(0.5)},
                {"p99_us", times.quantile_us(0.99)},
                {"p999_us", times.quantile_us(0.999)},
                {"weighted_goodput_gbps", sum.weighted_goodput},
                {"jain_fairness", sum.fairness},
                {"max_isolation_leakage", json(sum.leakage)},
                {"link_capacity_gbps", json(if_any(options.link_gbps))},
                {"total_utilization", json(sum.utilization)},
                {"classes", classes}}
        .dump();
}

}  // namespace rove::tebench
