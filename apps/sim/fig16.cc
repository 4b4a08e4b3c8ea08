// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 16: one to eight connections join and leave one bottleneck.
#include <algorithm>

#include "experiments.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr size_t kFlows = 8;
constexpr Time kPhase = 100 * kMillisecond, kSettle = 20 * kMillisecond, kStep = 10 * kMillisecond;

double jain(const std::vector<double>& shares) {
    double sum = 0, squares = 0;
    for (const double share : shares) {
        sum += share;
        squares += share * share;
    }
    return sum * sum / (static_cast<double>(shares.size()) * squares);
}

}  // namespace

Report fig16(uint64_t seed) {
    Testbed testbed(seed, mp_rdma());
    Network& network = testbed.network;
    std::deque<Flow> flows;
    Sampler sampler(network, kStep);
    for (size_t i = 0; i < kFlows; ++i) {
        Flow& flow = flows.emplace_back(network, testbed.left(i % 2), testbed.left(2), FlowConfig{.qp = kMp});
        sampler.watch([&flow] { return flow.completed_bytes(); });
        network.at(i * kPhase, [&flow] { flow.start(); });
        network.at((kFlows + i) * kPhase, [&flow] { flow.stop(); });
    }
    network.run_until((2 * kFlows - 1) * kPhase);

    Report report;
    double worst = 1;
    for (size_t phase = 0; phase + 1 < 2 * kFlows; ++phase) {
        const size_t first = phase < kFlows ? 0 : phase - kFlows + 1, end = std::min(phase + 1, kFlows);
        const size_t from = (phase * kPhase + kSettle) / kStep, to = (phase + 1) * kPhase / kStep;
        std::vector<double> shares;
        for (size_t flow = first; flow < end; ++flow)
            shares.push_back(static_cast<double>(sampler.value(to, flow) - sampler.value(from, flow)));
        const double index = jain(shares);
        worst = std::min(worst, index);
        report.measures.push_back({format("Jain index, %.0f", static_cast<double>(shares.size())) +
                                       (phase < kFlows ? " (joining)" : " (leaving)"),
                                   "", index});
    }
    report.measures.insert(report.measures.begin(), {"Jain index, least", "", worst});
    report.notes = {
        "Every 100 ms instead of 30 s a connection joins or leaves; indices are of the last 80 ms of each phase."};
    report.plot = {"MP-RDMA Fig. 16: connections share a link", "time, s", "goodput, Gb/s", {}, {}};
    for (size_t flow = 0; flow < kFlows; ++flow) {
        Curve& curve = report.plot.add("flow " + std::to_string(flow + 1));
        for (size_t row = 1; row < sampler.rows(); ++row)
            curve.points.emplace_back(seconds(row * kStep), sampler.bits_per_s(row, flow) / kGbps);
    }
    return report;
}

}  // namespace rove::sim
