// SPDX-License-Identifier: Apache-2.0
// The matrices that the Ultra Ethernet Consortium's reference simulations are told of: 1024 hosts at 100 Gb/s in a fat
// tree of three tiers with 1 us per hop. A permutation of 2 MB, the same with eight slow core links, two incasts. What
// counts is when the last flow is complete. All have NSCC's window (BX-9); what differs is which path a packet takes,
// and whether switches trim what a queue has no room for or drop it.
//
// As in their public simulator (ultraethernet/uet-htsim): queues of a bandwidth-delay product, of five where they do
// not trim, marks between a fifth and four fifths of it, windows of one and a half at most. Its slow links are those
// from the core to the first aggregation switch, at a quarter, though its titles say a tenth, with a quarter of the
// queue.
// Otherwise here: MTU 4096, headers of 86 bytes and 20 between frames (theirs have 64 and none), and who sends in the
// incast (drawn).
#include <algorithm>
#include <array>

#include "experiments.h"
#include "fabric/audit.h"
#include "fabric/workload.h"
#include "testbed.h"

namespace rove::sim {
namespace {

using Choice = transport::PathsConfig::Choice;

constexpr uint64_t kRate = 100 * kGbps;
constexpr uint32_t kPacket = 4096;
constexpr uint64_t kBytes = 2'000'000;
constexpr Time kRtt = 14 * kMicrosecond;  // six links each way, and a packet is sent on each
constexpr auto kProduct = static_cast<uint32_t>(kRate / 8 / 1'000'000 * (kRtt / kMicrosecond));
constexpr uint64_t kStream = 1'000'001;  // of random numbers; a network's are small
constexpr uint32_t kSlowLinks = 8, kSlow = 4;  // each at a quarter

struct Paths {
    const char* name;
    Choice choice;
    uint32_t vps;
    Balancer balancer;
};
constexpr std::array kChoices{Paths{"reps", Choice::kReps, 1u << 14, Balancer::kEcmp},
                              Paths{"random", Choice::kRandom, 1u << 14, Balancer::kEcmp},
                              Paths{"spray", Choice::kRandom, 1, Balancer::kSpray},
                              Paths{"one-path", Choice::kRandom, 1, Balancer::kEcmp}};

std::vector<FlowSpec> permutation_of_all(uint32_t hosts, Random random) {
    std::vector<uint32_t> to(hosts);
    for (uint32_t i = 0; i < hosts; ++i) to[i] = i;
    // Sattolo's: one cycle, so nobody sends to itself.
    for (uint32_t i = hosts - 1; i > 0; --i) std::swap(to[i], to[random.below(i)]);
    std::vector<FlowSpec> flows;
    for (uint32_t i = 0; i < hosts; ++i) flows.push_back({.from = i, .to = to[i], .bytes = kBytes});
    return flows;
}

std::vector<FlowSpec> incast(uint32_t hosts, uint32_t senders, uint64_t bytes, Random random) {
    std::vector<uint32_t> drawn(hosts);
    for (uint32_t i = 0; i < hosts; ++i) drawn[i] = i;
    std::vector<FlowSpec> flows;
    for (uint32_t i = 0; i <= senders; ++i) {
        std::swap(drawn[i], drawn[i + random.below(hosts - i)]);
        if (i > 0) flows.push_back({.from = drawn[i], .to = drawn[0], .bytes = bytes});
    }
    return flows;
}

std::vector<FlowSpec> incast_of_15(uint32_t hosts, Random random) {
    return incast(hosts, 15, kBytes, random);
}

std::vector<FlowSpec> incast_of_all(uint32_t hosts, Random random) {
    return incast(hosts, hosts - 1, kBytes / 20, random);
}

struct Matrix {
    const char* name;
    std::vector<FlowSpec> (*flows)(uint32_t hosts, Random random);
    double most;  // us: what was published with the worst choice of many paths
    uint32_t slow_links = 0;
};
const std::array kMatrices{
    Matrix{"permutation", permutation_of_all, 213},
    Matrix{"slow-links", permutation_of_all, 281, kSlowLinks},
    Matrix{"incast-15", incast_of_15, 2479},
    Matrix{"incast-all", incast_of_all, 10'556},
};
constexpr double kOnePath = 890;  // of the permutation
constexpr std::array kNetworks{"trimming", "drops"};

Values run(const PointRun& with, const Matrix& matrix, const Paths& paths, bool trims) {
    transport::Config transport;
    transport.batch_acks = false;
    transport.ordering = transport::Ordering::kReceiverHold;
    transport.reorder.cap_slots = 512;
    transport.paths.control = transport::PathsConfig::Control::kNscc;
    transport.paths.choice = paths.choice;
    transport.paths.vps = paths.vps;
    if (paths.vps == 1) transport.paths.first_vp = 0;
    transport.paths.infer_losses = paths.balancer == Balancer::kEcmp;  // by order on a path, which a switch may break
    transport.paths.initial_window = kProduct / kPacket;
    transport.paths.max_window = 256;
    transport.paths.min_rto_ns = 100'000;
    SwitchConfig the_switch{.buffer_bytes = 64 << 20, .queue_bytes = trims ? kProduct : 5 * kProduct};
    the_switch.red = {1.0, kProduct / 5, kProduct * 4 / 5};
    the_switch.balancer = paths.balancer;
    if (trims) the_switch.trim = Trim{.queue_bytes = 2 * kProduct};
    FatTreeConfig config{.k = with.quick ? 8u : 16u};  // 128 or 1024 hosts
    config.rack.host = {.transport = transport, .control_class = true};
    config.rack.access = config.uplink = {.bits_per_s = kRate, .delay = kMicrosecond};
    config.rack.tor = config.upper = the_switch;

    Network network(with.seed);
    const FatTree tree = fat_tree(network, config);
    Random random(with.seed, kStream);
    // The ways down to the first aggregation switch, with queues as slow.
    for (uint32_t i = 0; i < matrix.slow_links; ++i) {
        Link& link = tree.core_links[i].backward;
        link.set_rate(kRate / kSlow);
        auto& core = static_cast<Switch&>(link.from());
        core.set_queue_bytes(link, the_switch.queue_bytes / kSlow);
        core.set_red(link, {1.0, the_switch.red.k_min / kSlow, the_switch.red.k_max / kSlow});
    }
    const std::vector<Host*> hosts = tree.hosts();
    Workload workload(network, hosts, matrix.flows(static_cast<uint32_t>(hosts.size()), random),
                      {.qp = {.multipath = true, .mtu = kPacket}});
    Time last = 0;
    workload.on_record = [&](const FlowRecord& record) {
        last = std::max(last, record.took);
        if (with.flows != nullptr) write_csv(*with.flows, record);
        if (workload.done()) network.stop();
    };
    network.run_until(kSecond);
    check_conservation(network);
    double again = 0, sent = 0, timeouts = 0;
    for (const Host* host : hosts) {
        again += static_cast<double>(host->counters()[transport::Counter::kRetransmittedPackets]);
        sent += static_cast<double>(host->counters()[transport::Counter::kTxPackets]);
        if (const transport::MultipathShared* shared = host->multipath())
            timeouts += static_cast<double>(shared->paths.counters().resent_timeout);
    }
    return {{"last", static_cast<double>(last) / kMicrosecond},
            {"unfinished", static_cast<double>(workload.started() - workload.completed())},
            {"sent again", again / std::max(sent, 1.0)},
            {"by timeout", timeouts},
            {"trimmed", static_cast<double>(network.total(&LinkStats::trimmed_packets))},
            {"dropped", static_cast<double>(network.total(&LinkStats::dropped_packets))}};
}

std::string name_of(const Matrix& matrix, const Paths& paths, const char* network) {
    return std::string(matrix.name) + "-" + paths.name + "-" + network;
}

}  // namespace

std::vector<Point> uec_points() {
    std::vector<Point> points;
    for (const Matrix& matrix : kMatrices) {
        for (const Paths& paths : kChoices) {
            for (const char* network : kNetworks) {
                points.push_back({name_of(matrix, paths, network), [&matrix, &paths, network](const PointRun& with) {
                                      return run(with, matrix, paths, network == kNetworks[0]);
                                  }});
            }
        }
    }
    return points;
}

Report uec(const Results& results) {
    Report report;
    report.plot = {"UEC's matrices: the last flow, by what was published at most", "", "", {}, {}};
    for (const Matrix& matrix : kMatrices) report.plot.categories.emplace_back(matrix.name);
    for (const char* network : kNetworks) {
        for (const Paths& paths : kChoices) {
            Curve& curve = report.plot.add(paths.name + std::string(", ") + network);
            const bool one_path = paths.vps == 1 && paths.balancer == Balancer::kEcmp;
            const bool by_host = paths.vps != 1;  // theirs always is
            for (size_t i = 0; i < kMatrices.size(); ++i) {
                const Matrix& matrix = kMatrices[i];
                const std::string point = name_of(matrix, paths, network);
                const bool published = by_host || (one_path && i == 0);
                const double most = one_path ? kOnePath : matrix.most;
                Measure measure = results.measure("last flow, " + point, "us", point, "last");
                curve.points.emplace_back(i, measure.ours / most);
                if (published) {
                    measure.paper = most;
                    measure.bar = "at most 5 % more";
                    measure.holds = measure.ours <= 1.05 * most && results.mean(point, "unfinished") == 0;
                }
                report.measures.push_back(measure);
                for (const char* metric : {"sent again", "by timeout", "trimmed", "dropped"})
                    report.measures.push_back(results.measure(metric + std::string(", ") + point, "", point, metric));
            }
        }
    }
    report.notes = {
        "Published for NSCC, depending on the choice of paths: 193 to 213 us; slow links 207 to 281; one path 890; "
        "incast of 15 2479, of 1023 10556 (with credits of the receiver, which are not here, 2463 and 8803). The upper "
        "ends are the bars. What they publish is of switches that trim.",
        "One path is as slow as its fullest link: six flows of 2 MB take 1000 us, five 840.",
        "Quick: 128 hosts, the same bars."};
    return report;
}

}  // namespace rove::sim
