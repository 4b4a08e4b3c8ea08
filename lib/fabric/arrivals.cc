// SPDX-License-Identifier: Apache-2.0
#include "fabric/arrivals.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

namespace rove::fabric {
namespace {

// Returns the time until the next event of a Poisson process.
Time draw_gap(double per_s, Random& random) {
    return static_cast<Time>(-std::log1p(-random.uniform()) / per_s * static_cast<double>(kSecond)) + 1;
}

}  // namespace

void sort_by_start(std::vector<FlowSpec>& flows) {
    std::ranges::stable_sort(flows, {}, &FlowSpec::start);
}

std::vector<FlowSpec> poisson(const PoissonConfig& config, const FlowSizes& sizes, Random random) {
    std::vector<FlowSpec> flows;
    const double per_s = config.bits_per_s / 8 / sizes.mean();
    if (per_s <= 0) return flows;
    for (uint32_t from = 0; from < config.hosts; ++from) {
        for (Time at = draw_gap(per_s, random); at < config.until; at += draw_gap(per_s, random)) {
            const auto other = static_cast<uint32_t>(random.below(config.hosts - 1));
            flows.push_back({.from = from, .to = other + (other >= from), .bytes = sizes.draw(random), .start = at});
        }
    }
    sort_by_start(flows);
    return flows;
}

std::vector<FlowSpec> incast(const IncastConfig& config, Random random) {
    std::vector<FlowSpec> flows;
    if (config.queries_per_s <= 0) return flows;
    uint32_t query = 0;
    for (Time at = draw_gap(config.queries_per_s, random); at < config.until;
         at += draw_gap(config.queries_per_s, random)) {
        ++query;
        const auto to = static_cast<uint32_t>(random.below(config.hosts));
        std::set<uint32_t> senders;
        while (senders.size() < config.senders) {
            const auto from = static_cast<uint32_t>(random.below(config.hosts));
            if (from == to || !senders.insert(from).second) continue;
            flows.push_back({.from = from, .to = to, .bytes = config.bytes, .start = at, .query = query});
        }
    }
    return flows;
}

std::vector<FlowSpec> read_trace(std::istream& lines, const std::string& name, uint32_t hosts) {
    const std::string allowed = "'src dst pg size start': two different hosts from 0 to " + std::to_string(hosts - 1) +
                                ", a priority group, bytes from 1 on, seconds from 0 on";
    std::vector<FlowSpec> flows;
    std::string line;
    size_t number = 0;
    bool first = true;
    while (std::getline(lines, line)) {
        ++number;
        const std::vector<std::string_view> words = words_of(line);
        if (words.empty()) continue;
        double values[5] = {};
        const bool is_count = first && words.size() == 1;
        first = false;
        bool good = words.size() == 5 || is_count;
        for (size_t i = 0; good && i < words.size(); ++i) good = parse_number(words[i], values[i]) && values[i] >= 0;
        if (good && is_count) continue;
        const auto is_host = [&](double value) { return value < hosts && value == std::floor(value); };
        if (!good || !is_host(values[0]) || !is_host(values[1]) || values[0] == values[1] || values[3] < 1 ||
            values[3] > 1e15 || values[4] > 1e6) {
            throw BadInput(name, number, "'" + line + "'", allowed);
        }
        flows.push_back({.from = static_cast<uint32_t>(values[0]),
                         .to = static_cast<uint32_t>(values[1]),
                         .bytes = static_cast<uint64_t>(values[3]),
                         .start = static_cast<Time>(std::llround(values[4] * static_cast<double>(kSecond)))});
    }
    sort_by_start(flows);
    return flows;
}

std::vector<FlowSpec> load_trace(const std::string& file, uint32_t hosts) {
    std::ifstream lines(file);
    if (!lines) throw BadInput(file, 0, "it cannot be read", "a file of lines 'src dst pg size start'");
    return read_trace(lines, file, hosts);
}

}  // namespace rove::fabric
