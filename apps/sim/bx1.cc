// SPDX-License-Identifier: Apache-2.0
// BX-1, which is in no paper: losses inferred from the order on each path, compared with the overflow of the bitmap
// alone.
#include <algorithm>

#include "experiments.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr Time kRun = 200 * kMillisecond;
constexpr std::array kLossPercent{0.1, 0.5, 1.0, 5.0, 10.0};
constexpr size_t kSenders = 8;

struct Outcome {
    double goodput;  // Gb/s
    double tail_us;  // 99.9th percentile of a message's completion time
};

// Runs one connection with loss on three paths (Fig. 11a), or incast with loss on the receiver's cable.
Outcome run(uint64_t seed, bool is_incast, double loss_percent, bool infers) {
    transport::Config transport = mp_rdma();
    transport.paths.infer_losses = infers;
    Testbed testbed(seed, transport);
    const Cable& last = testbed.racks.right.access[0];
    for (size_t i = 0; i + 1 < kPaths; ++i) {
        const Cable& lossy = is_incast ? Cable{last.backward, last.forward} : testbed.racks.paths[i];
        lossy.forward.set_loss(loss_percent / 100);
        lossy.backward.set_loss(loss_percent / 100);
    }
    std::deque<Flow> flows;
    std::vector<Time> times;
    for (size_t i = 0; i < (is_incast ? kSenders : 1); ++i) {
        Host& from = i < 5 ? testbed.left(i) : testbed.right(i - 4);
        Flow& flow = flows.emplace_back(testbed.network, from, testbed.right(0), FlowConfig{.qp = kMp});
        flow.on_message = [&](Time took) { times.push_back(took); };
        flow.start();
    }
    const double all = goodput(testbed.network, flows, kRun);
    const size_t rank = times.size() * 999 / 1000;
    std::ranges::nth_element(times, times.begin() + static_cast<ptrdiff_t>(rank));
    return {all, seconds(times[rank]) * 1e6};
}

}  // namespace

Report bx1(uint64_t seed) {
    Report report;
    report.plot = {"BX-1 on and off", "loss, %", "goodput, Gb/s", {}, {}};
    for (const bool is_incast : {false, true}) {
        const std::string name = is_incast ? "incast of 8" : "Fig. 11a";
        Curve on{name + ", on", {}}, off{name + ", off", {}};
        for (const double loss : kLossPercent) {
            const Outcome with = run(seed, is_incast, loss, true), without = run(seed, is_incast, loss, false);
            on.points.emplace_back(loss, with.goodput);
            off.points.emplace_back(loss, without.goodput);
            const std::string at = name + format(", loss %g %%, BX-1 ", loss);
            report.measures.push_back({"goodput, " + at + "on", "Gb/s", with.goodput});
            report.measures.push_back({"goodput, " + at + "off", "Gb/s", without.goodput});
            report.measures.push_back({"99.9 % completion, " + at + "on", "us", with.tail_us});
            report.measures.push_back({"99.9 % completion, " + at + "off", "us", without.tail_us});
        }
        report.plot.curves.push_back(on);
        report.plot.curves.push_back(off);
    }
    report.notes = {
        "Messages of 64 KiB, eight in flight on each connection, from their posting on; 0.2 s with its start. Loss "
        "is on three of four paths, or on the receiver's cable; always both ways."};
    return report;
}

}  // namespace rove::sim
