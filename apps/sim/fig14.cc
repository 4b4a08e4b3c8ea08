// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 14: the out-of-order degree under permutation traffic when path 4 marks late, or is slow, and what that
// costs with a bitmap of 64 packets. The degree of a packet is how far it is ahead of the one that is expected.
#include "experiments.h"
#include "testbed.h"

namespace rove::sim {
namespace {

struct Scenario {
    const char* name;
    uint64_t red_bytes;  // of path 4
    uint64_t gbps;       // of path 4
};
constexpr std::array kScenarios{Scenario{"normal", 20'000, 40}, Scenario{"ECN misconfigured", 240'000, 40},
                                Scenario{"path at 1G", 20'000, 1}};
constexpr uint32_t kWindow = 4096;  // packets; as much as can be kept, and no control: a delta that nothing exceeds
constexpr Time kWarmUp = 10 * kMillisecond, kRun = 40 * kMillisecond;

struct Outcome {
    uint32_t degree;  // 99.9th percentile
    double goodput;   // Gb/s, of all
};

Outcome run(uint64_t seed, const Scenario& scenario, uint32_t delta, uint32_t slots, uint32_t mtu = kMtu) {
    transport::Config transport = mp_rdma();
    transport.paths.initial_window *= kMtu / mtu;
    transport.paths.delta = delta;
    transport.paths.max_window = kWindow;
    transport.reorder.static_slots = slots;
    Testbed testbed(seed, transport, {40, 40, 40, scenario.gbps});
    Network& network = testbed.network;
    testbed.racks.left.tor->set_red(testbed.racks.paths.back().forward, {1.0, scenario.red_bytes, scenario.red_bytes});
    std::deque<Flow> flows;
    std::vector<uint64_t> packets(2 * kWindow);  // by degree
    for (size_t i = 0; i < 5; ++i) {
        const FlowConfig config{.message_bytes = 256 << 10, .in_flight = 48, .qp = {.multipath = true, .mtu = mtu}};
        flows.emplace_back(network, testbed.left(i), testbed.right(i), config).start();
    }
    network.run_for(kWarmUp);
    network.world().trace = [&](Happening what, const Link& link, const Packet& packet) {
        if (what != Happening::kDelivered || !link.to().is_destination()) return;
        for (Flow& flow : flows) {
            const wire::Bth& bth = packet.frame.headers.bth;
            const transport::QueuePair& qp = flow.receiver();
            if (bth.dest_qpn != qp.qpn) continue;
            const int32_t ahead = transport::Psn(bth.psn) - qp.multipath->requests_in.expected;
            ++packets[std::min<size_t>(static_cast<size_t>(std::max(ahead, 0)), packets.size() - 1)];
        }
    };
    Outcome outcome{0, goodput(network, flows, kRun)};
    uint64_t all = 0, below = 0;
    for (const uint64_t count : packets) all += count;
    while ((below += packets[outcome.degree]) * 1000 < all * 999) ++outcome.degree;
    return outcome;
}

double optimum(const Scenario& scenario) {
    return static_cast<double>(120 + scenario.gbps) * kMpShare;
}

}  // namespace

Report fig14a(uint64_t seed) {
    Report report;
    report.plot = {
        "MP-RDMA Fig. 14a: 99.9th percentile of the out-of-order degree", "delta, packets", "packets", {}, {}};
    for (const Scenario& scenario : kScenarios) {
        Curve& curve = report.plot.add(scenario.name);
        uint32_t controlled = 0;
        for (const uint32_t delta : {8u, 16u, 32u, 64u, 128u}) {
            const uint32_t degree = run(seed, scenario, delta, kWindow).degree;
            curve.points.emplace_back(delta, degree);
            if (delta == 32) controlled = degree;
        }
        const uint32_t without = run(seed, scenario, kWindow, kWindow).degree;
        const std::string name = std::string(", ") + scenario.name;
        report.measures.push_back({"degree, delta 32" + name, "packets", static_cast<double>(controlled)});
        report.measures.push_back({"degree, no control" + name, "packets", static_cast<double>(without)});
        if (&scenario == &kScenarios[0]) continue;
        const double paper = scenario.gbps == 1 ? 50 : 5, cut = static_cast<double>(without) / controlled;
        report.measures.push_back({"cut by" + name, "times", cut, paper, format("at least %.0f", paper), cut >= paper});
        const auto small = [&](uint32_t delta) { return run(seed, scenario, delta, kWindow, 1024).degree; };
        report.measures.push_back(
            {"cut by" + name + ", MTU 1024", "times", static_cast<double>(small(kWindow)) / small(32), paper});
    }
    report.notes = {
        "Without control the degree is the slowest queue's delay by the rate of a connection: 20 KB at 1 Gb/s, 170 "
        "us, in which 300 packets of 2 KB go by the other paths. Marks keep the queue so short whether there is "
        "control or not. Fifty times as much as 32 would be 1 ms, or 130 KB, and the text does not say where it "
        "comes from.",
        "The MTU is not given. Packets of 1 KB, which L = 64 and a product of 60 KB fit to, are twice as many in "
        "the same delay, but with control they are not.",
    };
    return report;
}

Report fig14b(uint64_t seed) {
    constexpr std::array<std::array<double, 2>, 3> kPaper{{{1, 1}, {1, 1 - 0.251}, {1 - 0.0394, 1 - 0.675}}};
    Report report;
    report.plot = {
        "MP-RDMA Fig. 14b: goodput with 64 slots", "", "of the optimum", {{"delta 32", {}}, {"no control", {}}}, {}};
    for (size_t i = 0; i < kScenarios.size(); ++i) {
        const Scenario& scenario = kScenarios[i];
        const double with = run(seed, scenario, 32, 64).goodput / optimum(scenario);
        const double without = run(seed, scenario, kWindow, 64).goodput / optimum(scenario);
        report.plot.categories.push_back(scenario.name);
        report.plot.curves[0].points.emplace_back(i, with);
        report.plot.curves[1].points.emplace_back(i, without);
        const std::string name = std::string(", ") + scenario.name;
        report.measures.push_back({"delta 32" + name, "of optimum", with, kPaper[i][0], "at least 0.95", with >= 0.95});
        report.measures.push_back({"no control" + name, "of optimum", without, kPaper[i][1],
                                   i == 0 ? "" : "clearly worse: at least 0.1 less", without <= with - 0.1});
    }
    report.notes = {
        "The optimum is the payload that all four paths can carry. " + std::string(kWhyNotFull),
        "Without control a path at 1G costs nothing here: when the bitmap is full, the missing packet is repeated "
        "first, and by a path on which ACKs come back (MP-9), so the slow path loses its share by itself.",
    };
    return report;
}

}  // namespace rove::sim
