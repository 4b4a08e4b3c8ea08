// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 18 and 19: messages with the synchronise flag under permutation traffic. How many arrive before their
// turn, by alpha (MP-12), and what keeping order costs, in each way that rove has.
#include <algorithm>
#include <ranges>
#include <set>

#include "experiments.h"
#include "testbed.h"

namespace rove::sim {
namespace {

constexpr uint64_t kRuns = 5;
constexpr Time kWarmUp = 5 * kMillisecond, kRun = 20 * kMillisecond;
constexpr std::array<uint32_t, 2> kMessageBytes{512 << 10, 32 << 10};
constexpr std::array kParts{0.0, 0.2, 0.4, 0.6, 0.8, 1.0};  // of messages that synchronise
// With such an alpha a synchronise message leaves when all before it is acknowledged: stop-and-wait.
constexpr double kStopWait = 100;

// Five connections from rack to rack.
class Permutation {
  public:
    Permutation(uint64_t seed, const transport::Config& transport, const FlowConfig& flow) : testbed_(seed, transport) {
        Random random = testbed_.network.world().new_stream();
        for (size_t i = 0; i < 5; ++i) {
            FlowConfig config = flow;
            config.qp.udp_src = static_cast<uint16_t>(0xC000 + random.below(0x4000));
            flows_.emplace_back(testbed_.network, testbed_.left(i), testbed_.right(i), config).start();
        }
        testbed_.network.run_for(kWarmUp);
    }

    // Of a connection, in Gb/s.
    double run() { return goodput(testbed_.network, flows_, kRun) / static_cast<double>(flows_.size()); }

    // Of the synchronise messages that arrive in a run, the part of which any packet is there before all that precedes
    // the message.
    double run_and_count_early() {
        std::set<std::pair<uint32_t, uint32_t>> all, early;  // QP and first PSN
        testbed_.network.world().trace = [&](Happening what, const Link& link, const Packet& packet) {
            const wire::Headers& headers = packet.frame.headers;
            if (what != Happening::kDelivered || !link.to().is_destination() || !headers.mp.sync) return;
            for (Flow& flow : flows_) {
                const transport::QueuePair& qp = flow.receiver();
                if (headers.bth.dest_qpn != qp.qpn) continue;
                const transport::Psn first(headers.bth.psn - headers.mp.ipsn);
                all.emplace(qp.qpn, first.value());
                if (first > qp.multipath->requests_in.expected) early.emplace(qp.qpn, first.value());
            }
        };
        run();
        return static_cast<double>(early.size()) / static_cast<double>(std::max<size_t>(all.size(), 1));
    }

  private:
    Testbed testbed_;
    std::deque<Flow> flows_;
};

FlowConfig workload(uint32_t message_bytes, double part, const QpConfig& qp = kMp) {
    return {.message_bytes = message_bytes, .in_flight = 32, .synchronise = part, .qp = qp};
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
                transport::Config transport = mp_rdma();
                transport.paths.sync_alpha = alpha;
                early += Permutation(seed * kRuns + i, transport, workload(bytes, 0.5)).run_and_count_early() / kRuns;
            }
            curve.points.emplace_back(alpha, 100 * early);
            const std::string name = "early, " + size(bytes) + format(", alpha %.1f", alpha);
            if (alpha == 1)
                report.measures.push_back({name, "%", 100 * early, 0, "none", early == 0});
            else
                report.measures.push_back({name, "%", 100 * early});
        }
        const bool falls = std::ranges::is_sorted(curve.points | std::views::values, std::greater());
        report.measures.push_back({"falls with alpha, " + size(bytes), "", falls ? 1.0 : 0, 1, "does", falls});
    }
    report.notes = {
        "Half of the messages synchronise. One is early if any of its packets arrives before all that precedes it.",
        "The mean of 5 runs of 20 ms. The load is what the connections can get.",
    };
    return report;
}

Report fig19(uint64_t seed) {
    using enum transport::Ordering;
    struct Way {
        const char* name;
        transport::Ordering ordering;
        double alpha;
        bool multipath;
    };
    constexpr std::array kWays{Way{"optimistic", kOptimistic, 1, true}, Way{"stop-wait", kOptimistic, kStopWait, true},
                               Way{"receiver-hold", kReceiverHold, 1, true},
                               Way{"sender-delay", kSenderDelay, 1, true}, Way{"DCQCN", kOptimistic, 1, false}};
    Report report;
    report.plot = {"MP-RDMA Fig. 19: goodput with synchronise messages", "part of synchronise messages, %",
                   "goodput of a connection, Gb/s", {}, {}};
    for (const uint32_t bytes : kMessageBytes) {
        std::array<std::array<double, kParts.size()>, kWays.size()> all{};
        for (size_t way = 0; way < kWays.size(); ++way) {
            Curve& curve = report.plot.add(std::string(kWays[way].name) + ", " + size(bytes));
            for (size_t part = 0; part < kParts.size(); ++part) {
                for (uint64_t i = 0; i < kRuns; ++i) {
                    transport::Config transport = mp_rdma();
                    transport.ordering = kWays[way].ordering;
                    transport.paths.sync_alpha = kWays[way].alpha;
                    const FlowConfig flow = workload(bytes, kParts[part], kWays[way].multipath ? kMp : kRc);
                    all[way][part] += Permutation(seed * kRuns + i, transport, flow).run() / kRuns;
                }
                curve.points.emplace_back(100 * kParts[part], all[way][part]);
                report.measures.push_back({size(bytes) + format(", %.0f %% synchronise, ", 100 * kParts[part]) + kWays[way].name, "Gb/s", all[way][part]});
            }
        }
    }
    return report;
}

}  // namespace rove::sim
