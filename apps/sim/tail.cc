// SPDX-License-Identifier: Apache-2.0
// MP-10, which no paper's figure shows: the time of single messages when the network loses packets and no later packet
// reveals the loss.
#include <algorithm>

#include "experiments.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr std::array kLossPercent{0.1, 0.5, 1.0, 2.0, 5.0};
constexpr std::array kPackets{1u, 2u, 4u, 8u, 16u, 32u, 64u};
constexpr size_t kMessages = 10'000;
constexpr size_t kFirst = 20;  // not counted: the round trip is not known yet

struct Outcome {
    double tail;            // the 99.9th percentile of a message's completion time, in base round trips
    double repeated;        // retransmitted packets per lost packet
    uint64_t false_alarms;  // among the retransmissions
};

// Sends one message at a time, with loss on every path in both directions.
Outcome run(uint64_t seed, const transport::Config& transport, uint32_t packets, double loss_percent) {
    Testbed testbed(seed, transport);
    for (const Cable& path : testbed.racks.paths) {
        path.forward.set_loss(loss_percent / 100);
        path.backward.set_loss(loss_percent / 100);
    }
    Flow flow(testbed.network, testbed.left(0), testbed.right(0),
              {.message_bytes = packets * kMtu, .in_flight = 1, .messages = kMessages, .qp = kMp});
    std::vector<Time> times;
    flow.on_message = [&](Time took) { times.push_back(took); };
    flow.start();
    while (!flow.ended()) testbed.network.run_for(kMillisecond);
    times.erase(times.begin(), times.begin() + kFirst);
    const auto percentile = [&](double part) {
        const auto at = times.begin() + static_cast<ptrdiff_t>(static_cast<double>(times.size()) * part);
        std::ranges::nth_element(times, at);
        return static_cast<double>(*at) / static_cast<double>(kBaseRtt);
    };
    uint64_t lost = 0;
    for (const Cable& path : testbed.racks.paths) lost += path.forward.stats().lost_packets;
    const auto again = static_cast<double>(testbed.left(0).counters()[transport::Counter::kRetransmittedPackets]);
    return {percentile(0.999), again / static_cast<double>(std::max<uint64_t>(lost, 1)),
            testbed.left(0).multipath()->paths.counters().false_alarms};
}

}  // namespace

Report tail(uint64_t seed) {
    Report report;
    report.plot = {
        "Single messages under loss: 99.9th percentile of completion", "packets", "base round trips", {}, {}};
    for (const bool paper : {false, true}) {
        const std::string mode = paper ? "as in the paper" : "rove";
        const transport::Config transport = paper ? mp_rdma() : transport::Config{};
        double most = 0;
        for (const double loss : kLossPercent) {
            Curve curve{mode + format(", loss %g %%", loss), {}};
            double repeated = 0;
            uint64_t false_alarms = 0;
            for (const uint32_t packets : kPackets) {
                const Outcome outcome = run(seed, transport, packets, loss);
                curve.points.emplace_back(packets, outcome.tail);
                repeated = std::max(repeated, outcome.repeated);
                false_alarms += outcome.false_alarms;
                most = std::max(most, outcome.tail);
                report.measures.push_back(
                    {mode + format(", loss %g %%", loss) + format(", %.0f packets", packets), "RTT", outcome.tail});
            }
            report.measures.push_back(
                {mode + format(", loss %g %%: sent again for each lost, most", loss), "packets", repeated});
            report.measures.push_back(
                {mode + format(", loss %g %%: false alarms", loss), "packets", static_cast<double>(false_alarms)});
            report.plot.curves.push_back(curve);
        }
        report.measures.push_back({mode + ", most", "RTT", most});
    }
    report.notes = {
        "One message at a time, 10 000 of each size, over four paths that all lose packets, data and acknowledgements "
        "alike. The 99.9th percentile of the time from posting to completion, in base round trips of 12 us. 64 packets "
        "take 2.3 of them to be sent.",
        "rove: its default configuration. As in the paper: without BX-1, BX-3 and BX-4, as in the figures of MP-RDMA.",
    };
    return report;
}

}  // namespace rove::sim
