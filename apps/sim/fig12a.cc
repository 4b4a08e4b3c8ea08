// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 12a: permutation traffic, five connections of 40 Gb/s hosts over four paths of 40 Gb/s.
#include "experiments.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr uint64_t kRuns = 10;
constexpr Time kWarmUp = 20 * kMillisecond, kRun = 50 * kMillisecond;

// Returns the goodput of each connection, and of all together.
std::vector<double> run(uint64_t seed, bool multipath) {
    Testbed testbed(seed, mp_rdma());
    Random random = testbed.network.world().new_stream();
    std::deque<Flow> flows;
    for (size_t i = 0; i < 5; ++i) {
        QpConfig qp = multipath ? kMp : kRc;
        qp.udp_src = static_cast<uint16_t>(0xC000 + random.below(0x4000));
        flows.emplace_back(testbed.network, testbed.left(i), testbed.right(i), FlowConfig{.qp = qp}).start();
    }
    testbed.network.run_for(kWarmUp);
    std::vector<uint64_t> before;
    for (const Flow& flow : flows) before.push_back(flow.completed_bytes());
    std::vector<double> all{goodput(testbed.network, flows, kRun)};
    for (size_t i = 0; i < flows.size(); ++i) all.push_back(gbps(flows[i].completed_bytes() - before[i], kRun));
    return all;
}

}  // namespace

Report fig12a(uint64_t seed) {
    Report report;
    report.plot = {
        "MP-RDMA Fig. 12a: permutation, one run", "connection", "goodput, Gb/s", {}, {"1", "2", "3", "4", "5"}};
    double total[2] = {};
    for (const bool multipath : {true, false}) {
        for (uint64_t i = 0; i < kRuns; ++i) {
            const std::vector<double> each = run(seed * kRuns + i, multipath);
            total[multipath] += each[0] / kRuns;
            if (i != 0) continue;
            Curve& curve = report.plot.add(multipath ? "MP-RDMA" : "DCQCN");
            for (size_t flow = 1; flow < each.size(); ++flow) curve.points.emplace_back(flow - 1, each[flow]);
        }
    }
    report.measures = {
        {"goodput of all five", "Gb/s", total[1]},
        {"goodput of all five, DCQCN over ECMP", "Gb/s", total[0]},
        {"gain over DCQCN", "%", 100 * (total[1] / total[0] - 1)},
    };
    report.notes = {
        "The mean of 10 runs, of 50 ms each after 20 ms. The most that four paths can carry is " +
            format("%.2f Gb/s of payload in mp, ", 160 * mp_share()) + format("%.2f in rc.", 160 * rc_share()),
        "DCQCN's mean depends on how often ECMP puts connections on one path; the paper tells of a run that used 3 "
        "of 4.",
    };
    return report;
}

}  // namespace rove::sim
