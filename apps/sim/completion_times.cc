// SPDX-License-Identifier: Apache-2.0
#include "completion_times.h"

#include <algorithm>
#include <cmath>

namespace rove::sim {
namespace {

double mean_of(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double percentile_of(std::vector<double> values, double part) {
    if (values.empty()) return 0;
    const auto rank = static_cast<size_t>(std::ceil(part * static_cast<double>(values.size())));
    const auto at = values.begin() + static_cast<ptrdiff_t>(std::clamp<size_t>(rank, 1, values.size()) - 1);
    std::ranges::nth_element(values, at);
    return *at;
}

}  // namespace

void CompletionTimes::add(const fabric::FlowRecord& record) {
    if (record.flow.start < from_) return;
    all_.push_back({record.flow.bytes, static_cast<double>(record.took) / fabric::kMicrosecond, record.slowdown()});
}

std::vector<double> CompletionTimes::slowdowns(uint64_t least, uint64_t most) const {
    std::vector<double> values;
    for (const One& one : all_) {
        if (one.bytes >= least && one.bytes < most) values.push_back(one.slowdown);
    }
    return values;
}

double CompletionTimes::mean_us(uint64_t least, uint64_t most) const {
    std::vector<double> values;
    for (const One& one : all_) {
        if (one.bytes >= least && one.bytes < most) values.push_back(one.us);
    }
    return mean_of(values);
}

double CompletionTimes::mean_slowdown(uint64_t least, uint64_t most) const {
    return mean_of(slowdowns(least, most));
}

double CompletionTimes::slowdown(double part, uint64_t least, uint64_t most) const {
    return percentile_of(slowdowns(least, most), part);
}

void CompletionTimes::tell(Values& values, const std::string& prefix, uint64_t least, uint64_t most) const {
    const std::vector<double> all = slowdowns(least, most);
    values[prefix + "mean"] = mean_of(all);
    values[prefix + "p95"] = percentile_of(all, 0.95);
    values[prefix + "p99"] = percentile_of(all, 0.99);
    values[prefix + "p99.9"] = percentile_of(all, 0.999);
    values[prefix + "us"] = mean_us(least, most);
    values[prefix + "flows"] = static_cast<double>(all.size());
}

}  // namespace rove::sim
