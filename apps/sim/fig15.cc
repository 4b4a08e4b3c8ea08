// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 15: a connection that is bound to one path joins one that uses all four paths of 10 Gb/s.
#include "experiments.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr Time kStep = 10 * kMillisecond, kJoin = 300 * kMillisecond, kEnd = 800 * kMillisecond;
constexpr Time kSettle = 100 * kMillisecond;
constexpr double kFull = 10 * mp_share();

// The testbed with one more host on the left, whose packets leave by one port only.
struct WithSpecial : Testbed {
    WithSpecial(uint64_t seed, uint16_t port) : Testbed(seed, mp_rdma(), std::vector<uint64_t>(kPaths, 10)) {
        HostConfig config{.transport = mp_rdma()};
        config.transport.paths.first_vp = port;
        config.transport.paths.vps = 1;
        special = &network.add_host(config);
        network.connect(*special, *racks.left.tor, racks.left.access[0].forward.config());
        network.route();
    }
    Host* special;
};

}  // namespace

Report fig15(uint64_t seed) {
    // This network is built twice. The first one finds the source port.
    const WithSpecial trial(seed, transport::kFirstVp);
    const uint16_t port =
        trial.network.source_port_via(trial.racks.paths.back().forward, *trial.special, trial.right(1));
    WithSpecial testbed(seed, port);
    Network& network = testbed.network;
    Flow flow(network, testbed.left(0), testbed.right(0), {.qp = kMp});
    Flow special(network, *testbed.special, testbed.right(1), {.qp = kMp});
    // Bytes of the first connection that arrive, by path.
    std::array<uint64_t, kPaths> arrived{};
    network.world().trace = [&](TraceEvent what, const Link& link, const Packet& packet) {
        if (what != TraceEvent::kDelivered || packet.frame.headers.bth.dest_qpn != flow.receiver().qpn) return;
        for (size_t path = 0; path < kPaths; ++path) {
            if (&link == &testbed.racks.paths[path].forward) arrived[path] += kMtu;
        }
    };
    Sampler sampler(network, kStep);
    for (uint64_t& bytes : arrived) sampler.watch([&bytes] { return bytes; });
    flow.start();
    network.at(kJoin, [&] { special.start(); });
    network.run_until(kEnd);

    const auto mean = [&](Time from, Time to, size_t path) {
        return gbps(sampler.value(to / kStep, path) - sampler.value(from / kStep, path), to - from);
    };
    double others = 0, others_before = 0;
    for (size_t path = 0; path + 1 < kPaths; ++path) {
        others += mean(kJoin + kSettle, kEnd, path) / (kPaths - 1);
        others_before += mean(kSettle, kJoin, path) / (kPaths - 1);
    }
    const double left = mean(kJoin + kSettle, kEnd, kPaths - 1);
    Report report;
    report.measures = {
        {"path 4 before", "Gb/s", mean(kSettle, kJoin, kPaths - 1)},
        {"path 4 after", "Gb/s", left},
        {"other paths before, mean", "Gb/s", others_before},
        {"other paths after, mean", "Gb/s", others},
    };
    report.notes = {"Payload: 10 Gb/s carry " + format("%.2f.", kFull) +
                    " The second joins after 0.3 s instead of 30 s; means leave out 0.1 s after each change."};
    report.plot = {"MP-RDMA Fig. 15: congestion on path 4", "time, s", "goodput, Gb/s", {}, {}};
    for (size_t path = 0; path < kPaths; ++path) {
        Curve& curve = report.plot.add("path " + std::to_string(path + 1));
        for (size_t row = 1; row < sampler.rows(); ++row)
            curve.points.emplace_back(seconds(row * kStep), sampler.bits_per_s(row, path) / kGbps);
    }
    return report;
}

}  // namespace rove::sim
