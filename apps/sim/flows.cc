// SPDX-License-Identifier: Apache-2.0
#include "flows.h"

#include <algorithm>
#include <stdexcept>

#include "eunomia.h"

namespace rove::sim {
namespace {

constexpr Time kWait = kSecond;  // time for a trace's last flows

std::vector<Scheme> schemes() {
    std::vector<Scheme> all{kEcmpScheme, kMpRdmaScheme, kIrnScheme, kRepsScheme};
    all.insert(all.end(), kFlowSchemes.begin(), kFlowSchemes.end());
    for (const auto& more : {kBareSchemes, kIdealSchemes, kEunomiaSchemes})
        all.insert(all.end(), more.begin(), more.end());
    return all;
}

}  // namespace

std::string scheme_names() {
    std::string names;
    for (const Scheme& scheme : schemes()) names += (names.empty() ? "" : ", ") + std::string(scheme.name);
    return names;
}

Report run_flows(const FlowsConfig& config, const RunContext& with) {
    const std::vector<Scheme> all = schemes();
    const auto scheme = std::ranges::find_if(all, [&](const Scheme& one) { return one.name == config.scheme; });
    if (scheme == all.end())
        throw std::invalid_argument("no scheme '" + config.scheme + "'; allowed: " + scheme_names());
    OfferedLoad offered;
    if (!config.trace.empty()) {
        offered.flows = load_trace(config.trace, kEunomiaHosts);
        offered.until = offered.flows.empty() ? 0 : offered.flows.back().start;
        offered.drain = kWait;
    } else {
        const FlowSizes sizes = config.sizes.empty() ? ali_storage() : FlowSizes::load(config.sizes);
        const uint32_t planes = config.ports.separate ? config.ports.count : 1;  // planes with uplinks of their own
        offered = poisson_load(with, sizes, config.load * planes);
    }
    Report report;
    for (const auto& [metric, value] : run_flows(with, *scheme, offered, {.ports = config.ports}))
        report.measures.push_back({metric, "", value});
    report.notes = {"128 hosts in 8 racks, 8 spines, 100 Gb/s (eunomia.h). Mean and p95 to p99.9 are slowdowns."};
    return report;
}

}  // namespace rove::sim
