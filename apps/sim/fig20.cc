// SPDX-License-Identifier: Apache-2.0
// The RDMA half of MP-RDMA Fig. 20: the bytes that a connection sends without a pause, by the length that counts as a
// pause.
#include <algorithm>

#include "experiments.h"
#include "fabric/audit.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr uint32_t kConnections = 8;
constexpr uint32_t kMessage = 1 << 20;
constexpr uint64_t kMessages = 100;  // instead of the paper's 2 GB
constexpr double kFlowMb = static_cast<double>(kMessage * kMessages) / 1e6;
constexpr std::array<Time, 8> kGaps{1, 2, 5, 10, 50, 100, 200, 500};  // us

}  // namespace

Report fig20(uint64_t seed) {
    Network network(seed);
    RackConfig rack{.hosts = 2 * kConnections};
    rack.access = {.bits_per_s = 40 * kGbps, .delay = kBaseRtt / 4};
    rack.tor.red = kRed;
    rack.tor.pfc = Pfc{};
    const Rack made = single_switch(network, rack);
    std::deque<Flow> flows;
    for (uint32_t i = 0; i < kConnections; ++i) {
        const FlowConfig config{.message_bytes = kMessage, .messages = kMessages, .qp = kRc};
        flows.emplace_back(network, *made.hosts[i], *made.hosts[kConnections + i], config);
    }

    // The number of times that a connection resumed after a longer pause, by gap.
    std::array<uint64_t, kGaps.size()> flowlets{};
    std::array<Time, kConnections> last{};
    Time longest = 0;
    network.world().trace = [&](TraceEvent what, const Link& link, const Packet& packet) {
        if (what != TraceEvent::kDelivered || packet.control) return;
        for (uint32_t i = 0; i < kConnections; ++i) {
            if (&link != &made.access[i].forward) continue;
            const Time pause = network.now() - last[i];
            if (last[i] != 0) longest = std::max(longest, pause);
            for (size_t gap = 0; gap < kGaps.size(); ++gap)
                flowlets[gap] += last[i] == 0 || pause > kGaps[gap] * kMicrosecond;
            last[i] = network.now();
        }
    };
    uint32_t running = kConnections;
    for (Flow& flow : flows) {
        flow.on_end = [&](Flow&) {
            if (--running == 0) network.stop();
        };
        flow.start();
    }
    network.run_until(kSecond);
    check_conservation(network);

    Report report;
    report.plot = {"MP-RDMA Fig. 20: flowlets of RDMA", "gap, us", "mean flowlet, MB", {}, {}};
    Curve& curve = report.plot.add("DCQCN");
    for (size_t gap = 0; gap < kGaps.size(); ++gap) {
        const double size = kConnections * kFlowMb / static_cast<double>(flowlets[gap]);
        curve.points.emplace_back(kGaps[gap], size);
        report.measures.push_back({"mean flowlet, gap of " + std::to_string(kGaps[gap]) + " us", "MB", size});
    }
    report.measures.push_back({"flows that have not ended", "", static_cast<double>(running)});
    report.measures.push_back({"longest pause", "us", seconds(longest) * 1e6});
    report.notes = {
        "Flows of 105 MB instead of 2 GB, each between two hosts of its own; the text does not say what the eight "
        "share. Where eight share a link of 40 Gb/s, each pauses for eight packets of 2 KB, 3.4 us, between two of its "
        "own.",
        "There is no model of TCP here, so the other half of the figure is not repeated.",
    };
    return report;
}

}  // namespace rove::sim
