// SPDX-License-Identifier: Apache-2.0
// See report.h; the README says what the columns are.
#include "report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

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
    double quantile_us(double q) const {
        if (ns_.empty()) return 0;
        return static_cast<double>(
                   ns_[std::min(ns_.size() - 1, static_cast<size_t>(q * static_cast<double>(ns_.size())))]) /
               1e3;
    }
    // Mean of `bytes` / time.
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

// Of each thread, per batch, with all that is not transfer.
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

std::string json_line(const Options& options, const PointResult& result) {
    Json classes = Json::array();
    double weighted_goodput = 0, sum = 0, sum_of_squares = 0, leakage = 0;
    for (size_t i = 0; i < result.classes.size(); ++i) {
        const Class& of = options.classes[i];
        const ClassResult& found = result.classes[i];
        const Times times(found.times_ns);
        const double gbps = static_cast<double>(found.bytes) * 1e-9 / result.seconds;
        const double attainment = of.slo_us > 0 ? times.share_within_us(of.slo_us) : 1;
        const double lost = of.isolated_gbps > 0 ? std::max(0.0, 1 - gbps / of.isolated_gbps) : 0;
        weighted_goodput += gbps * attainment * of.weight;
        sum += gbps / of.weight;
        sum_of_squares += gbps / of.weight * (gbps / of.weight);
        leakage = std::max(leakage, lost);
        classes.push_back({{"name", of.name},
                           {"priority", of.priority},
                           {"threads", found.streams},
                           {"slo_us", of.slo_us},
                           {"weight", of.weight},
                           {"operations", times.count()},
                           {"transferred_bytes", found.bytes},
                           {"throughput_gbps", gbps},
                           {"avg_us", times.mean_us()},
                           {"p50_us", times.quantile_us(0.5)},
                           {"p99_us", times.quantile_us(0.99)},
                           {"p999_us", times.quantile_us(0.999)},
                           {"max_us", times.quantile_us(1)},
                           {"slo_attainment", attainment},
                           {"goodput_gbps", gbps * attainment},
                           {"weighted_goodput_gbps", gbps * attainment * of.weight},
                           {"isolated_throughput_gbps", of.isolated_gbps},
                           {"isolation_leakage", lost}});
    }
    const Times times = all_times(result);
    const double gbps = bytes_per_s(result) * 1e-9;
    const double fairness = sum_of_squares > 0 ? sum * sum / (static_cast<double>(classes.size()) * sum_of_squares) : 1;
    return Json{{"schema_version", kSchemaVersion},
                {"block_size", result.block},
                {"batch_size", result.batch},
                {"num_threads", result.threads},
                {"seconds", result.seconds},
                {"operations", times.count()},
                {"aggregate_throughput_gbps", gbps},
                {"avg_latency_us", latency_us(result, times)},
                {"avg_us", times.mean_us()},
                {"p50_us", times.quantile_us(0.5)},
                {"p99_us", times.quantile_us(0.99)},
                {"p999_us", times.quantile_us(0.999)},
                {"weighted_goodput_gbps", weighted_goodput},
                {"jain_fairness", fairness},
                {"max_isolation_leakage", leakage},
                {"link_capacity_gbps", options.link_gbps},
                {"total_utilization", options.link_gbps > 0 ? gbps / options.link_gbps : 0},
                {"classes", classes}}
        .dump();
}

}  // namespace rove::tebench
