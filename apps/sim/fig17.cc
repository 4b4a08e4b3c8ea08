// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 17: incast of one to nine senders.
#include <algorithm>

#include "experiments.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr uint64_t kRuns = 5;
constexpr uint32_t kMessageBytes = 62'500;
constexpr uint64_t kMessages = 200;  // 100 Mb from each sender

// Returns the receiver's goodput until the last sender is done.
double run(uint64_t seed, size_t senders, bool multipath) {
    Testbed testbed(seed, mp_rdma());
    Network& network = testbed.network;
    Random random = network.world().new_stream();
    std::vector<Host*> hosts = testbed.racks.left.hosts;
    hosts.insert(hosts.end(), testbed.racks.right.hosts.begin(), testbed.racks.right.hosts.end());
    for (size_t i = hosts.size() - 1; i > 0; --i) std::swap(hosts[i], hosts[random.below(i + 1)]);
    std::deque<Flow> flows;
    size_t running = senders;
    for (size_t i = 1; i <= senders; ++i) {
        QpConfig qp = multipath ? kMp : kRc;
        qp.udp_src = static_cast<uint16_t>(0xC000 + random.below(0x4000));
        Flow& flow = flows.emplace_back(network, *hosts[i], *hosts[0],
                                        FlowConfig{.message_bytes = kMessageBytes, .messages = kMessages, .qp = qp});
        flow.on_end = [&](Flow&) {
            if (--running == 0) network.stop();
        };
        flow.start();
    }
    network.run_until(10 * kSecond);
    return gbps(senders * kMessages * kMessageBytes, network.now());
}

}  // namespace

Report fig17(uint64_t seed) {
    constexpr double kLine = 40 * mp_share();
    Report report;
    report.plot = {"MP-RDMA Fig. 17: incast", "senders", "goodput of the receiver, Gb/s", {}, {}};
    for (const bool multipath : {true, false}) {
        Curve& curve = report.plot.add(multipath ? "MP-RDMA" : "DCQCN");
        for (size_t senders = 1; senders <= 9; ++senders) {
            double mean = 0;
            for (uint64_t i = 0; i < kRuns; ++i) mean += run(seed * kRuns + i, senders, multipath) / kRuns;
            curve.points.emplace_back(senders, mean);
            if (multipath) report.measures.push_back({std::to_string(senders) + " senders", "Gb/s", mean});
        }
        double least = curve.points.front().second, most = least;
        for (const auto& [senders, mean] : curve.points) {
            least = std::min(least, mean);
            most = std::max(most, mean);
        }
        if (multipath) {
            report.measures.push_back({"least", "Gb/s", least});
            report.measures.push_back({"largest by least", "", most / least});
        } else {
            report.measures.push_back({"least of DCQCN", "Gb/s", least});
        }
    }
    report.notes = {
        "Each sends 100 Mb instead of 1 Gb, by WRITEs instead of being asked for it; the mean of 5 runs.",
        format("A line of 40 Gb/s carries %.2f Gb/s of payload; DCQCN's headers are smaller.", kLine),
    };
    return report;
}

}  // namespace rove::sim
