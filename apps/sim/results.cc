// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>

#include "experiment.h"

namespace rove::sim {
namespace {

// Student's t for 95 %, by degrees of freedom from 1 on; beyond the table it is that of the normal distribution.
constexpr std::array kStudent{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                              2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                              2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
constexpr double kNormal = 1.960;

std::vector<double> of_seeds(const std::vector<Values>& seeds, const std::string& metric) {
    std::vector<double> values;
    for (const Values& one : seeds) values.push_back(one.at(metric));
    return values;
}

}  // namespace

std::pair<double, double> mean_and_interval(std::span<const double> values) {
    const auto count = static_cast<double>(values.size());
    double sum = 0, squares = 0;
    for (const double value : values) sum += value;
    const double mean = sum / count;
    if (values.size() < 2) return {mean, 0};
    for (const double value : values) squares += (value - mean) * (value - mean);
    const size_t freedom = values.size() - 1;
    const double t = freedom <= kStudent.size() ? kStudent[freedom - 1] : kNormal;
    return {mean, t * std::sqrt(squares / static_cast<double>(freedom) / count)};
}

double Results::mean(const std::string& point, const std::string& metric) const {
    return mean_and_interval(of_seeds(all_.at(point), metric)).first;
}

std::optional<double> Results::interval(const std::string& point, const std::string& metric) const {
    const std::vector<double> values = of_seeds(all_.at(point), metric);
    if (values.size() < 2) return std::nullopt;
    return mean_and_interval(values).second;
}

}  // namespace rove::sim
