// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 11a: one connection, random loss on three of four paths.
#include "experiments.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr Time kRun = kSecond, kSinglePathRun = 200 * kMillisecond;
constexpr std::array kLossPercent{0.1, 0.5, 1.0, 2.0, 5.0, 10.0};

double run(Testbed& testbed, const QpConfig& qp, double loss_percent, Time time) {
    for (uint32_t i = 0; i + 1 < kPaths; ++i) {
        testbed.racks.paths[i].forward.set_loss(loss_percent / 100);
        testbed.racks.paths[i].backward.set_loss(loss_percent / 100);
    }
    std::deque<Flow> flows;
    flows.emplace_back(testbed.network, testbed.left(0), testbed.right(0), FlowConfig{.qp = qp}).start();
    return goodput(testbed.network, flows, time);
}

// ECMP puts a connection on each of the paths with equal probability.
double single_path(uint64_t seed, bool is_irn, double loss_percent) {
    double sum = 0;
    for (const uint32_t path : {0u, kPaths - 1}) {
        const uint16_t port = Testbed(seed, mp_rdma()).port_via(path);
        Testbed testbed(seed, irn());
        QpConfig qp = is_irn ? kMp : kRc;
        qp.udp_src = port;
        sum += run(testbed, qp, loss_percent, kSinglePathRun) * (path == 0 ? kPaths - 1 : 1) / kPaths;
    }
    return sum;
}

}  // namespace

Report fig11a(uint64_t seed) {
    Report report;
    Curve mp{"MP-RDMA", {}}, rc{"rc, one path (ECMP)", {}}, irn{"IRN, one path (ECMP)", {}};
    for (const double loss : kLossPercent) {
        Testbed testbed(seed, mp_rdma());
        mp.points.emplace_back(loss, run(testbed, kMp, loss, kRun));
        rc.points.emplace_back(loss, single_path(seed, false, loss));
        irn.points.emplace_back(loss, single_path(seed, true, loss));
        const std::string at = ", loss " + format("%g %%", loss);
        const double ours = mp.points.back().second;
        report.measures.push_back({"goodput" + at, "Gb/s", ours});
        report.measures.push_back({"rc on one path" + at, "Gb/s", rc.points.back().second});
        report.measures.push_back({"rc by MP-RDMA" + at, "", rc.points.back().second / ours});
        report.measures.push_back({"IRN on one path" + at, "Gb/s", irn.points.back().second});
    }
    report.notes = {
        "Loss is on data and on ACKs of three of four paths. Each run is of 1 s, from its start on; on one path of "
        "0.2 s. The paper gives 38 for all rates; " +
            format("%.2f is what headers leave.", 40 * mp_share()),
        "One path: the mean over ECMP's choices, three lossy paths of four. rc's go-back-N (no congestion here) "
        "loses less below 1 % than the NIC that the paper measured: it goes on after one round trip.",
    };
    report.plot = {"MP-RDMA Fig. 11a: three of four paths are lossy", "loss, %", "goodput, Gb/s", {mp, rc, irn}, {}};
    return report;
}

}  // namespace rove::sim
