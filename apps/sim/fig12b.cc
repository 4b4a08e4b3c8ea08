// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 12b: a permutation of 320 hosts over 32 leaves and 4 spines.
#include <algorithm>
#include <array>
#include <numeric>

#include "experiments.h"
#include "fabric/audit.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr Time kRtt = 16 * kMicrosecond;
constexpr uint64_t kAccess = 40 * kGbps, kUplink = 100 * kGbps;
constexpr uint32_t kBdp = 80'000;

constexpr Time time_of(uint32_t bytes, uint64_t rate) {
    return (bytes + kGapBytes) * 8 * kSecond / rate;
}

constexpr std::array<uint32_t, 2> kMtus{1392, kMtu};
constexpr double kSlow = 15;  // Gb/s

// Returns the goodput of each connection in ascending order, and the statistics in the figure's text.
Values run(const RunContext& with, uint32_t mtu, bool multipath) {
    const Time warm_up = (multipath ? 3 : 20) * kMillisecond;
    const Time measured = (multipath ? 7 : 10) * kMillisecond / (with.quick ? 4 : 1);
    Network network(with.seed);
    LeafSpineConfig config{.leaves = with.quick ? 8u : 32u, .spines = 4};
    config.rack.hosts = 10;
    config.rack.host.transport = mp_rdma(mtu);
    config.rack.host.transport.paths.initial_window = kBdp / mtu;
    // A lone packet and its ACK cross two access cables and two uplinks each.
    const Time sending =
        2 * (time_of(mtu + 86, kAccess) + time_of(mtu + 86, kUplink) + time_of(74, kAccess) + time_of(74, kUplink));
    config.rack.access = {.bits_per_s = kAccess, .delay = (kRtt - sending) / 8};
    config.uplink = {.bits_per_s = kUplink, .delay = config.rack.access.delay};
    config.rack.tor.red = config.spine.red = multipath ? kScaleRed : kDcqcnRed;
    config.rack.tor.dynamic_pfc = config.spine.dynamic_pfc = kScalePfc;
    const LeafSpine clos = leaf_spine(network, config);

    // Hosts of one half of the leaves send to hosts of the other half, as in Fig. 12a, so the uplinks are full.
    std::deque<Flow> flows;
    Random random = network.world().new_stream();
    std::vector<Host*> hosts = clos.hosts();
    const size_t half = hosts.size() / 2;
    for (size_t i = 0; i < half; ++i) {
        std::swap(hosts[half + i], hosts[half + i + random.below(half - i)]);
        const QpConfig qp{
            .multipath = multipath, .mtu = mtu, .udp_src = static_cast<uint16_t>(0xC000 + random.below(0x4000))};
        flows.emplace_back(network, *hosts[i], *hosts[half + i], FlowConfig{.qp = qp}).start();
    }
    network.run_for(warm_up);
    std::vector<uint64_t> before;
    for (const Flow& flow : flows) before.push_back(flow.completed_bytes());
    network.run_for(measured);
    check_conservation(network);
    std::vector<double> each;
    for (size_t i = 0; i < flows.size(); ++i) each.push_back(gbps(flows[i].completed_bytes() - before[i], measured));
    std::ranges::sort(each);
    Values values;
    values["mean"] = std::accumulate(each.begin(), each.end(), 0.0) / static_cast<double>(each.size());
    values["least"] = each.front();
    const auto slow = std::ranges::count_if(each, [](double rate) { return rate < kSlow; });
    values["slow"] = 100 * static_cast<double>(slow) / static_cast<double>(each.size());
    for (int percent = 0; percent <= 100; percent += 5)
        values["at " + std::to_string(percent)] = each[(each.size() - 1) * static_cast<size_t>(percent) / 100];
    return values;
}

std::string name_of(uint32_t mtu, bool multipath) {
    return (multipath ? "mp-" : "dcqcn-") + std::to_string(mtu);
}

}  // namespace

std::vector<Point> fig12b_points() {
    std::vector<Point> points;
    for (const uint32_t mtu : kMtus) {
        for (const bool multipath : {true, false}) {
            points.push_back(
                {name_of(mtu, multipath), [=](const RunContext& with) { return run(with, mtu, multipath); }});
        }
    }
    return points;
}

Report fig12b(const Results& results) {
    Report report;
    report.plot = {"MP-RDMA Fig. 12b: permutation of 320 hosts", "connections, %", "goodput, Gb/s", {}, {}};
    for (const uint32_t mtu : kMtus) {
        const std::string of = ", MTU " + std::to_string(mtu), mp = name_of(mtu, true), rc = name_of(mtu, false);
        const double gain = 100 * (results.mean(mp, "mean") / results.mean(rc, "mean") - 1);
        const double least = results.mean(mp, "least"), slow = results.mean(rc, "slow");
        report.measures.push_back(results.measure("mean, MP-RDMA" + of, "Gb/s", mp, "mean"));
        report.measures.push_back(results.measure("mean, DCQCN" + of, "Gb/s", rc, "mean"));
        report.measures.push_back({"gain of the mean" + of, "%", gain});
        report.measures.push_back({"least, MP-RDMA" + of, "Gb/s", least});
        report.measures.push_back({"DCQCN's below 15 Gb/s" + of, "%", slow});
        if (mtu != kMtus.front()) continue;
        for (const std::string& point : {mp, rc}) {
            Curve& curve = report.plot.add(point == mp ? "MP-RDMA" : "DCQCN");
            for (int percent = 0; percent <= 100; percent += 5)
                curve.points.emplace_back(percent, results.mean(point, "at " + std::to_string(percent)));
        }
    }
    report.notes = {
        "Which half of the hosts sends is open. Here it is that of 16 leaves, as in Fig. 12a, which loads the uplinks "
        "fully. Drawn from all leaves, five of ten at each, they are half loaded: DCQCN then gets 34.4 Gb/s a "
        "connection and none less than 15, MP-RDMA 37.1, and the gain is 8 %.",
        "The MTU is open. 54 paths for a window of 80 KB (section 5.1.3) mean 1481 bytes on the wire, which is an MTU "
        "of 1392; 2048 is what the goodput of Fig. 12a means.",
        "MP-RDMA is measured for 7 ms after 3, DCQCN, which takes longer to come to rest, for 10 ms after 20; quick: "
        "for a quarter of that in 8 racks.",
    };
    return report;
}

}  // namespace rove::sim
