// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 18 and 19: messages with the synchronise flag under permutation traffic. Measures how many arrive early,
// by alpha (MP-12), and the cost of order in each of rove's modes.
#include <algorithm>
#include <functional>
#include <set>

#include "experiments.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr uint64_t kRuns = 3;
constexpr uint64_t kDcqcnRuns = 100;  // ECMP's placement makes means of ten differ by 7 %
constexpr Time kWarmUp = 5 * kMillisecond, kRun = 20 * kMillisecond;
constexpr std::array<uint32_t, 2> kMessageBytes{512 << 10, 32 << 10};
constexpr std::array kParts{0.0, 0.2, 0.4, 0.6, 0.8};  // the fraction of messages that synchronise
constexpr uint32_t kRing = 2;                          // testbed.h
// With such an alpha a synchronise message leaves when all messages before it are acknowledged: stop-and-wait.
constexpr double kStopWait = 100;

// Five connections from rack to rack.
class Permutation {
  public:
    Permutation(uint64_t seed, const transport::Config& transport, const FlowConfig& flow)
        : testbed_(seed, transport, std::vector<uint64_t>(kPaths, 40), kRing) {
        Random random = testbed_.network.world().new_stream();
        for (size_t i = 0; i < 5; ++i) {
            FlowConfig config = flow;
            config.qp.udp_src = static_cast<uint16_t>(0xC000 + random.below(0x4000));
            flows_.emplace_back(testbed_.network, testbed_.left(i), testbed_.right(i), config).start();
        }
        testbed_.network.run_for(kWarmUp);
    }

    // Returns the goodput of a connection in Gb/s.
    double run() { return goodput(testbed_.network, flows_, kRun) / static_cast<double>(flows_.size()); }

    // Returns the fraction of the synchronise messages that arrive in a run of which a packet arrives before all data
    // that precedes the message.
    double run_and_count_early() {
        std::set<std::pair<uint32_t, uint32_t>> all, early;  // QP and first PSN
        testbed_.network.world().trace = [&](TraceEvent what, const Link& link, const Packet& packet) {
            const wire::Headers& headers = packet.frame.headers;
            if (what != TraceEvent::kDelivered || !link.to().is_destination() || !headers.mp.sync()) return;
            for (Flow& flow : flows_) {
                const transport::QueuePair& qp = flow.receiver();
                if (headers.bth.dest_qpn != qp.qpn) continue;
                const transport::Psn first(headers.bth.psn - headers.mp.ipsn);
                all.emplace(qp.qpn, first.value());
                if (first > qp.mp()->requests_in.expected) early.emplace(qp.qpn, first.value());
            }
        };
        run();
        return static_cast<double>(early.size()) / static_cast<double>(std::max<size_t>(all.size(), 1));
    }

  private:
    Testbed testbed_;
    std::deque<Flow> flows_;
};

FlowConfig workload(uint32_t message_bytes, double part, const QpConfig& qp = kSmallMp) {
    return {.message_bytes = message_bytes, .in_flight = 32, .synchronise = part, .qp = qp};
}

// Returns a flow at 0.8 of the capacity of the four paths.
FlowConfig at_load(uint32_t message_bytes, double part) {
    FlowConfig flow = workload(message_bytes, part);
    flow.bits_per_s = 0.8 * 40e9 * kPaths / 5 * mp_share(kSmallMtu);
    return flow;
}

std::string size(uint32_t bytes) {
    return std::to_string(bytes >> 10) + " KB";
}

}  // namespace

Report fig18(uint64_t seed) {
    Report report;
    report.plot = {"MP-RDMA Fig. 18: early synchronise messages", "alpha", "of synchronise messages, %", {}, {}};
    for (const uint32_t bytes : kMessageBytes) {
        Curve& curve = report.plot.add(size(bytes));
        for (const double alpha : {0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2}) {
            double early = 0;
            for (uint64_t i = 0; i < kRuns; ++i) {
                transport::Config transport = mp_rdma(kSmallMtu);
                transport.paths.sync_alpha = alpha;
                early += Permutation(seed * kRuns + i, transport, at_load(bytes, 0.5)).run_and_count_early() / kRuns;
            }
            curve.points.emplace_back(alpha, 100 * early);
            const std::string name = "early, " + size(bytes) + format(", alpha %.1f", alpha);
            report.measures.push_back({name, "%", 100 * early});
        }
        const bool falls = std::ranges::is_sorted(curve.points, std::greater(), &std::pair<double, double>::second);
        report.measures.push_back({"falls with alpha, " + size(bytes), "", falls ? 1.0 : 0});
    }
    report.notes = {
        "Half of the messages synchronise. One is early if any of its packets arrives before all that precedes it.",
        "The mean of 3 runs of 20 ms. The load is 0.8, as in the paper: messages come as a Poisson process.",
        "At 32 KB it falls from alpha 0.2 on. Which of 0 and 0.2 is less depends on the seed: it is 17.7 and 17.2 % as "
        "the mean of seeds 1 to 7, of which five rise. At 512 KB two of seven rise there.",
    };
    return report;
}

Report fig19(uint64_t seed) {
    using enum transport::Ordering;
    struct Way {
        const char* name;
        transport::Ordering ordering;
        double alpha;
    };
    constexpr std::array kWays{Way{"optimistic", kOptimistic, 1}, Way{"stop-wait", kOptimistic, kStopWait},
                               Way{"receiver-hold", kReceiverHold, 1}, Way{"sender-delay", kSenderDelay, 1}};
    Report report;
    report.plot = {"MP-RDMA Fig. 19: goodput with synchronise messages",
                   "synchronise messages, %",
                   "goodput of a connection, Gb/s",
                   {},
                   {}};
    const auto mean = [&](uint64_t runs, const transport::Config& transport, const FlowConfig& flow) {
        double sum = 0;
        for (uint64_t i = 0; i < runs; ++i) sum += Permutation(seed * runs + i, transport, flow).run();
        return sum / static_cast<double>(runs);
    };
    for (const uint32_t bytes : kMessageBytes) {
        const std::string name = ", " + size(bytes);
        const double dcqcn = mean(kDcqcnRuns, mp_rdma(kSmallMtu), workload(bytes, 0, kSmallRc));
        std::array<std::array<double, kParts.size()>, kWays.size()> all{};
        for (size_t way = 0; way < kWays.size(); ++way) {
            Curve& curve = report.plot.add(kWays[way].name + name);
            for (size_t part = 0; part < kParts.size(); ++part) {
                transport::Config transport = mp_rdma(kSmallMtu);
                transport.ordering = kWays[way].ordering;
                transport.paths.sync_alpha = kWays[way].alpha;
                all[way][part] = mean(kRuns, transport, workload(bytes, kParts[part]));
                curve.points.emplace_back(100 * kParts[part], all[way][part]);
                report.measures.push_back(
                    {kWays[way].name + name + format(", %.0f %%", 100 * kParts[part]), "Gb/s", all[way][part]});
            }
        }
        Curve& single = report.plot.add("DCQCN" + name);
        for (const double part : kParts) single.points.emplace_back(100 * part, dcqcn);
        report.measures.push_back({"DCQCN" + name, "Gb/s", dcqcn});
        const auto &optimistic = all[0], &stop_wait = all[1];
        for (size_t part = 0; part < kParts.size(); ++part) {
            report.measures.push_back({"optimistic beyond DCQCN" + name + format(", %.0f %%", 100 * kParts[part]), "",
                                       optimistic[part] / dcqcn - 1});
        }
        const double kept = optimistic.back() / optimistic.front(), naive = stop_wait.back() / optimistic.back();
        report.measures.push_back({"optimistic, 80 % by 0 %" + name, "", kept});
        report.measures.push_back({"stop-wait by optimistic, 80 %" + name, "", naive});
    }
    report.notes = {
        "Five connections, always with 32 messages posted. Means of 3 runs of 20 ms, and for DCQCN, which depends on "
        "where ECMP puts the connections, of 100. DCQCN keeps order as it is: synchronise costs nothing there.",
        "Packets are of 1 KB: why, is said in testbed.h. So a header takes more, and less is left than the paper's 30 "
        "Gb/s when nothing waits.",
        "At 60 % and 32 KB it is DCQCN that differs: the paper's gets 20.5, and 13 % beyond that is 23.2 Gb/s, less "
        "than ours. Here it gets 14.4, 21.9 or 29.4 with the connections on 2, 3 or 4 paths; means of ten runs, which "
        "is what the paper has, are 21.1 to 24.1, and beyond 21.1 ours is 13 %. A message takes 7.2 us at a host's 40 "
        "Gb/s, and delta t is half a round trip as in the paper, 6 us: that is 24.2 Gb/s, and no sender gets 13 % "
        "beyond 22.1.",
        "What else was tried there (when it was 23.9 Gb/s with seed 1, with a window that each ACK narrowed which had "
        "to wait). MP-2 and MP-9 by their letter: 19.2. MP-7 without a floor: 4.2; without remembering ACKs: 17.2. "
        "BX-1: 24.0. BX-4: 24.0. Marks on arrival: 23.9. A NIC's ring of 8: 24.5. Packets of 2 KB: 17.7.",
        "Stop-wait waits for the network alone; the paper's loses more, and its text does not say by what.",
        "receiver-hold waits for nothing: the receiver keeps what is early, so all operations are in order, not only "
        "those that synchronise. sender-delay waits a round trip for each WRITE's last packet.",
    };
    return report;
}

}  // namespace rove::sim
