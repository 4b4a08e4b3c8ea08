// SPDX-License-Identifier: Apache-2.0
// MP-RDMA Fig. 14: the out-of-order degree under permutation traffic when path 4 marks late or is slow, and its cost
// with a bitmap of 64 packets. The degree of a packet is its distance ahead of the expected one.
#include "experiments.h"
#include "testbed.h"

namespace rove::sim {
namespace {

struct Scenario {
    const char* name;
    uint64_t red_bytes;  // RED threshold of path 4
    uint64_t gbps;       // rate of path 4
};
constexpr std::array kScenarios{Scenario{"normal", 20'000, 40}, Scenario{"ECN misconfigured", 240'000, 40},
                                Scenario{"path at 1G", 20'000, 1}};
constexpr uint32_t kWindow = 4096;  // packets: all can be kept, and no delta is exceeded, so nothing is controlled
constexpr Time kWarmUp = 10 * kMillisecond, kRun = 40 * kMillisecond;
constexpr double kTail = 0.999;

// A literal reading of the paper gives MP-RDMA's sender no state per packet, for which a NIC has no room: its window
// counts ACKs (MP-2), and recovery retransmits everything (MP-9). Rove's sender has a record per packet and needs
// neither.
enum class Sender : uint8_t { kLetter, kRecords };

// The slow hop of a path that has a switch of its own in the middle.
enum class Hop : uint8_t { kNoSwitch, kFirst, kSecond, kBoth };

// Details that the text leaves open or that might matter otherwise.
struct Variation {
    const char* name;
    Sender sender = Sender::kRecords;
    uint32_t mtu = kSmallMtu;
    uint32_t initial_packets = 0;  // 0: a bandwidth-delay product
    uint32_t probe_permille = transport::PathsConfig{}.probe_permille;
    uint64_t red_bytes = 0;  // RED threshold of path 4, instead of the scenario's
    uint32_t red_weight = 0;
    bool marks_arrivals = false;
    bool pfc = true;
    bool acks_go_back = false;  // ACKs return by the path of their packet
    Hop hop = Hop::kNoSwitch;
    bool degrades_late = false;  // path 4 gets its rate and marks in the middle of the run
};

struct Outcome {
    std::vector<uint64_t> packets;  // indexed by degree
    double goodput;                 // Gb/s of all connections

    // Returns a percentile of the degree, counting degrees from `least` on.
    uint32_t percentile(double part, size_t least = 0) const {
        double all = 0, below = 0;
        for (size_t i = least; i < packets.size(); ++i) all += static_cast<double>(packets[i]);
        size_t at = least;
        while (at + 1 < packets.size() && (below += static_cast<double>(packets[at])) < part * all) ++at;
        return static_cast<uint32_t>(at);
    }
    uint32_t degree() const { return percentile(kTail); }
};

struct Hosts {
    std::vector<Host*> left, right;
    std::vector<Cable> slow;  // slow cables of path 4; forward is from the left
};

// Builds the hosts as in the testbed (testbed.h), which has no switches in the middle.
Hosts build(Network& network, const Variation& how, const transport::Config& transport) {
    const uint32_t cables = how.hop == Hop::kNoSwitch ? 3 : 4, frame = kMtu + 150;
    RackConfig rack{.hosts = 5};
    rack.host.transport = transport;
    rack.access = {.bits_per_s = 40 * kGbps, .delay = (kBaseRtt - cables * frame * Time{200}) / (2 * cables)};
    rack.tor.red = kRed;
    rack.tor.red_weight = how.red_weight;
    if (how.pfc) rack.tor.pfc = Pfc{};
    if (how.marks_arrivals) {
        rack.tor.mark_on_arrival_bytes = kRed.k_min;
        rack.tor.red = {};
    }
    if (how.acks_go_back) rack.tor.balancer = Balancer::kSourcePort;
    if (how.hop == Hop::kNoSwitch) {
        const TwoRacks made = parallel_paths(network, rack, std::vector<PathConfig>(kPaths, {rack.access, {}}));
        return {made.left.hosts, made.right.hosts, {made.paths.back()}};
    }
    const LeafSpine made =
        leaf_spine(network, {.leaves = 2, .spines = kPaths, .rack = rack, .uplink = rack.access, .spine = rack.tor});
    Hosts hosts{made.racks[0].hosts, made.racks[1].hosts, {}};
    const Cable &first = made.uplinks[0].back(), &second = made.uplinks[1].back();
    if (how.hop != Hop::kSecond) hosts.slow.push_back(first);
    if (how.hop != Hop::kFirst) hosts.slow.push_back({second.backward, second.forward});
    return hosts;
}

Outcome run(uint64_t seed, const Scenario& scenario, uint32_t delta, uint32_t slots, const Variation& how) {
    transport::Config transport = mp_rdma(how.mtu);
    if (how.sender == Sender::kLetter) {
        transport.paths.count_acks = true;
        transport.paths.recovery = transport::PathsConfig::Recovery::kGoBackN;
    }
    transport.paths.delta = delta;
    transport.paths.max_window = kWindow;
    transport.paths.probe_permille = how.probe_permille;
    if (how.initial_packets != 0) transport.paths.initial_window = how.initial_packets;
    transport.reorder.static_slots = slots;
    Network network(seed);
    const Hosts hosts = build(network, how, transport);
    const auto degrade = [&] {
        const uint64_t k = how.red_bytes != 0 ? how.red_bytes : scenario.red_bytes;
        for (const Cable& cable : hosts.slow) {
            cable.set_rate(scenario.gbps * kGbps);
            if (!how.marks_arrivals) static_cast<Switch&>(cable.forward.from()).set_red(cable.forward, {1.0, k, k});
        }
    };
    if (!how.degrades_late) degrade();
    std::deque<Flow> flows;
    Outcome outcome{std::vector<uint64_t>(2 * kWindow), 0};
    for (size_t i = 0; i < 5; ++i) {
        const FlowConfig config{.message_bytes = 256 << 10, .in_flight = 48, .qp = {.multipath = true, .mtu = how.mtu}};
        flows.emplace_back(network, *hosts.left[i], *hosts.right[i], config).start();
    }
    network.run_for(kWarmUp);
    network.world().trace = [&](TraceEvent what, const Link& link, const Packet& packet) {
        if (what != TraceEvent::kDelivered || !link.to().is_destination()) return;
        for (Flow& flow : flows) {
            const wire::Bth& bth = packet.frame.headers.bth;
            const transport::QueuePair& qp = flow.receiver();
            if (bth.dest_qpn != qp.qpn) continue;
            const int32_t ahead = transport::Psn(bth.psn) - qp.mp()->requests_in.expected;
            ++outcome.packets[std::min<size_t>(static_cast<size_t>(std::max(ahead, 0)), outcome.packets.size() - 1)];
        }
    };
    if (how.degrades_late) network.at(network.now() + kRun / 2, degrade);
    outcome.goodput = goodput(network, flows, kRun);
    return outcome;
}

constexpr Variation kAsTold{.name = "as told"};
// Variations for the map of the cut at 1G.
constexpr std::array kVariations{
    Variation{.name = "MP-2 and MP-9 by their letter", .sender = Sender::kLetter},
    Variation{.name = "packets of 2048 bytes", .mtu = 2048},
    Variation{.name = "packets of 512 bytes", .mtu = 512},
    Variation{.name = "packets of 256 bytes", .mtu = 256},
    Variation{.name = "twice the initial window", .initial_packets = 116},
    Variation{.name = "no probes", .probe_permille = 0},
    Variation{.name = "probes by the slowest path's round trip", .probe_permille = 2},
    Variation{.name = "probes by the base round trip", .probe_permille = 25},
    Variation{.name = "path 4 marks from 40 KB on", .red_bytes = 40'000},
    Variation{.name = "path 4 marks from 60 KB on", .red_bytes = 60'000},
    Variation{.name = "path 4 marks from 80 KB on", .red_bytes = 80'000},
    Variation{.name = "RED sees a mean, weight 1/16", .red_weight = 4},
    Variation{.name = "RED sees a mean, weight 1/512", .red_weight = 9},
    Variation{.name = "marks on arrival", .marks_arrivals = true},
    Variation{.name = "no PFC", .pfc = false},
    Variation{.name = "ACKs go back as packets came", .acks_go_back = true},
    Variation{.name = "switches in the middle, first hop slow", .hop = Hop::kFirst},
    Variation{.name = "switches in the middle, second hop slow", .hop = Hop::kSecond},
    Variation{.name = "switches in the middle, both hops slow", .hop = Hop::kBoth},
    Variation{.name = "slow from the middle of the run on", .degrades_late = true},
};

double optimum(const Scenario& scenario) {
    return static_cast<double>(120 + scenario.gbps) * mp_share(kSmallMtu);
}

}  // namespace

Report fig14a(uint64_t seed) {
    Report report;
    report.plot = {
        "MP-RDMA Fig. 14a: 99.9th percentile of the out-of-order degree", "delta, packets", "packets", {}, {}};
    const auto degree = [&](const Scenario& scenario, uint32_t delta) {
        return run(seed, scenario, delta, kWindow, kAsTold).degree();
    };
    for (const Scenario& scenario : kScenarios) {
        Curve& curve = report.plot.add(scenario.name);
        uint32_t controlled = 0;
        for (const uint32_t delta : {8u, 16u, 32u, 64u, 128u}) {
            const uint32_t packets = degree(scenario, delta);
            curve.points.emplace_back(delta, packets);
            if (delta == 32) controlled = packets;
        }
        const uint32_t without = degree(scenario, kWindow);
        const std::string name = std::string(", ") + scenario.name;
        report.measures.push_back({"degree, delta 32" + name, "packets", static_cast<double>(controlled)});
        report.measures.push_back({"degree, no control" + name, "packets", static_cast<double>(without)});
        if (&scenario == &kScenarios[0]) continue;
        report.measures.push_back({"cut by" + name, "times", static_cast<double>(without) / controlled});
    }
    // The sensitivity map of the cut at 1G, first by the way of counting, then by details that the text leaves open or
    // fixes.
    const Scenario& slow = kScenarios.back();
    const auto cut = [&](const std::string& name, double without, double with) {
        report.measures.push_back({"cut at 1G, " + name, "times", without / std::max(with, 1.0)});
        report.measures.push_back({"... its degree with control", "packets", with});
    };
    const Outcome on = run(seed, slow, 32, kWindow, kAsTold), off = run(seed, slow, kWindow, kWindow, kAsTold);
    for (const double part : {0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999})
        cut(format("%.2f %%", 100 * part), off.percentile(part), on.percentile(part));
    cut("99.9 % of those out of order", off.percentile(kTail, 1), on.percentile(kTail, 1));
    for (const Variation& how : kVariations)
        cut(how.name, run(seed, slow, kWindow, kWindow, how).degree(), run(seed, slow, 32, kWindow, how).degree());
    report.notes = {
        "Packets are of 1 KB: why, is said in testbed.h. With control the degree is delta's. Without, it is what goes "
        "by the other paths while a packet stands in the slowest queue: 240 KB at 40 Gb/s are 48 us, 20 KB at 1 Gb/s "
        "160.",
        "The cut at 1G is short because that queue is: RED keeps it at 20 KB, and below 23 in 99.9 % of the time. Its "
        "closed form is a queue's time by a sender's rate by delta, and 50 needs 60 KB. The bitmap of 1.2 KB that the "
        "paper's introduction tells of, 4800 slots of two bits, is 220 KB in that queue; why there is so much its "
        "text does not say. Ours has 89 KB at the start, for a millisecond, with control as without.",
        "What is left with control comes from probes of the slow path (MP-5): some 0.1 to 0.3 % of the packets arrive "
        "behind one, beside the 0.1 % that the percentile leaves out; so it jumps by what moves either.",
        "Not tried: packets of 1500 bytes, which verbs have not; ACKs by one port for each connection; percentiles of "
        "the most in each millisecond.",
        "Rove's own rules are off. Degrees at 1G with them on, controlled and not: BX-1 34 and 155, "
        "BX-4 225 and 1010, both 120 and 190. BX-4 keeps asking slow paths, which costs order.",
    };
    return report;
}

Report fig14b(uint64_t seed) {
    constexpr uint64_t kRuns = 5;
    Report report;
    report.plot = {"MP-RDMA Fig. 14b: goodput with 64 slots", "", "of the optimum", {}, {}};
    for (const Sender sender : {Sender::kLetter, Sender::kRecords}) {
        const bool is_letter = sender == Sender::kLetter;
        const std::string whose = is_letter ? "" : ", rove's sender";
        Curve controlled{"delta 32" + whose, {}}, uncontrolled{"no control" + whose, {}};
        for (size_t i = 0; i < kScenarios.size(); ++i) {
            const Scenario& scenario = kScenarios[i];
            const auto mean = [&](uint32_t delta) {
                double sum = 0;
                for (uint64_t k = 0; k < kRuns; ++k)
                    sum += run(seed * kRuns + k, scenario, delta, 64, {.name = "", .sender = sender}).goodput;
                return sum / kRuns / optimum(scenario);
            };
            const double with = mean(32), without = mean(kWindow);
            controlled.points.emplace_back(i, with);
            uncontrolled.points.emplace_back(i, without);
            if (is_letter) report.plot.categories.push_back(scenario.name);
            const std::string name = std::string(", ") + scenario.name + whose;
            report.measures.push_back({"delta 32" + name, "of optimum", with});
            report.measures.push_back({"no control" + name, "of optimum", without});
        }
        report.plot.curves.push_back(controlled);
        report.plot.curves.push_back(uncontrolled);
    }
    report.notes = {
        "The optimum is the payload that all four paths can carry. Packets are of 1 KB: why, is said in testbed.h. "
        "The mean of 5 runs of 40 ms each.",
        "MP-RDMA by its letter: a window that counts ACKs (MP-2), and recovery that repeats everything (MP-9), since "
        "a NIC has no record by packet. So what is repeated although it was only late widens the window, and its ACKs "
        "keep the slow path busy. With control nothing is late, and it makes no difference.",
        "Rove's sender counts packets, which it has records of: what was late is known when its ACK comes, and lets "
        "nothing out on the slow path, which so loses its share even without control. Other figures are of this "
        "sender: by the letter an ACK that is lost narrows the window for good, and Fig. 11 would not come out.",
    };
    return report;
}

}  // namespace rove::sim
