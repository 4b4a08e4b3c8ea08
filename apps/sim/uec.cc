// SPDX-License-Identifier: Apache-2.0
// The traffic matrices of the Ultra Ethernet Consortium's reference simulations: 1024 hosts at 100 Gb/s in a fat tree
// of three tiers with 1 us per hop. They are a permutation of 2 MB, the same with eight slow core links, and two
// incasts. The measure is the completion of the last flow. All variants have NSCC's window (BX-9); they differ in the
// path that a packet takes, and in switches that trim or drop packets without room.
//
// Further, its 24 runs of 8192 hosts at 400 Gb/s in two tiers, where each leaf has one of its 64 links at a quarter of
// its rate: a permutation of 1 to 100 MB over 32, 64 or 128 entropies. A target is 1.2 times the optimum of the
// remaining links.
//
// The parameters come from the consortium's public simulator (ultraethernet/uet-htsim). Queues hold one bandwidth-delay
// product, or five if switches do not trim. Marking begins at a fifth of the product and reaches its maximum at four
// fifths (in two tiers at one and three quarters). A window is limited to one and a half products. The slow links lead
// from the core to the first aggregation switch, at a quarter of the rate, though the simulator's titles say a tenth,
// and with a quarter of the queue. Differences here: MTU 4096, headers of 86 bytes and gaps of 20 (theirs have 64 and
// 0), windows of less than a packet (BX-11), and random senders in the incast.
#include <algorithm>
#include <array>
#include <unordered_map>

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
constexpr Time kRtt = 14 * kMicrosecond;  // six links each way, and a packet is transmitted on each
constexpr uint32_t product_of(uint64_t bits_per_s, Time round_trip) {
    return static_cast<uint32_t>(bits_per_s / 8 / 1'000'000 * round_trip / kMicrosecond);
}
constexpr uint32_t kProduct = product_of(kRate, kRtt);
constexpr uint64_t kStream = 1'000'001;        // stream of random numbers; a network uses small numbers
constexpr uint32_t kSlowLinks = 8, kSlow = 4;  // each at a quarter of the rate
constexpr uint32_t kHeaderBytes = Trim{}.header_bytes;

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

std::vector<FlowSpec> permutation(uint32_t hosts, uint64_t bytes, Random random) {
    std::vector<uint32_t> to(hosts);
    for (uint32_t i = 0; i < hosts; ++i) to[i] = i;
    // Sattolo's algorithm makes one cycle, so that no host sends to itself.
    for (uint32_t i = hosts - 1; i > 0; --i) std::swap(to[i], to[random.below(i)]);
    std::vector<FlowSpec> flows;
    for (uint32_t i = 0; i < hosts; ++i) flows.push_back({.from = i, .to = to[i], .bytes = bytes});
    return flows;
}

std::vector<FlowSpec> permutation_of_all(uint32_t hosts, Random random) {
    return permutation(hosts, kBytes, random);
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
    double most;  // us: the published time with the worst choice of many paths
    uint32_t slow_links = 0;
};
const std::array kMatrices{
    Matrix{"permutation", permutation_of_all, 213},
    Matrix{"slow-links", permutation_of_all, 281, kSlowLinks},
    Matrix{"incast-15", incast_of_15, 2479},
    Matrix{"incast-all", incast_of_all, 10'556},
};
constexpr double kOnePath = 890;  // time of the permutation
constexpr std::array kNetworks{"trimming", "drops"};

// `product` is the bandwidth-delay product of a path in bytes.
transport::Config transport_of(const Paths& paths, uint32_t product) {
    transport::Config transport;
    transport.batch_acks = false;
    transport.ordering = transport::Ordering::kReceiverHold;
    transport.reorder = {.block_slots = 16, .cap_slots = 512};
    transport.paths.control = transport::PathsConfig::Control::kNscc;
    transport.paths.choice = paths.choice;
    transport.paths.vps = paths.vps;
    if (paths.vps == 1) transport.paths.first_vp = 0;
    // Infers losses from the order on a path, which a switch may break.
    transport.paths.infer_losses = paths.balancer == Balancer::kEcmp;
    transport.paths.initial_window = product / kPacket;
    transport.paths.max_window = 256;
    transport.paths.min_rto_ns = 100'000;
    return transport;
}

// Makes a link four times as slow, and its queue as much shorter.
void slow_down(Link& link, const SwitchConfig& config) {
    link.set_rate(link.config().bits_per_s / kSlow);
    auto& from = static_cast<Switch&>(link.from());
    from.set_queue_bytes(link, config.queue_bytes / kSlow);
    from.set_red(link, {config.red.p_max, config.red.k_min / kSlow, config.red.k_max / kSlow});
}

// Returns the maximum number of flows that share a link when each stays on the path of its source port.
uint32_t fullest_link(const std::vector<FlowSpec>& flows, const std::vector<uint16_t>& ports,
                      const std::vector<Host*>& hosts) {
    std::unordered_map<const Link*, uint32_t> shared;
    uint32_t most = 0;
    for (size_t i = 0; i < flows.size(); ++i) {
        const Host &from = *hosts[flows[i].from], &to = *hosts[flows[i].to];
        const uint64_t hash = flow_hash(from.flow_to(to, ports[i]));
        for (const Link* link = &from.link();;) {
            most = std::max(most, ++shared[link]);
            const auto* const node = dynamic_cast<const Switch*>(&link->to());
            if (node == nullptr) break;
            link = node->links()[node->next_hop(hash, to.index())];
        }
    }
    return most;
}
bool is_one_path(const Paths& paths) {
    return paths.vps == 1 && paths.balancer == Balancer::kEcmp;
}
constexpr uint32_t kDraws = 200, kMinShared = 4, kMaxShared = 8;
std::string shared_by(uint32_t flows) {
    return "fullest link shared by " + std::to_string(flows);
}
// Returns the time that these take: one packet after another on that link.
double fullest_us(double flows) {
    const double bytes = static_cast<double>(kBytes) * (kPacket + kHeaderBytes + kGapBytes) / kPacket;
    return flows * bytes * 8 / static_cast<double>(kRate / 1'000'000) + static_cast<double>(kRtt / kMicrosecond);
}

// `ports` are the source ports of the flows, if not null.
Values play(const RunContext& with, Network& network, const std::vector<Host*>& hosts,
            const std::vector<FlowSpec>& flows, std::vector<uint16_t>* ports = nullptr) {
    Workload workload(network, hosts, flows, {.qp = {.multipath = true, .mtu = kPacket}});
    Time last = 0;
    workload.on_record = [&](const FlowRecord& record) {
        last = std::max(last, record.took);
        if (ports != nullptr) (*ports)[record.flow.from] = record.udp_src;
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
            {"hops", static_cast<double>(network.total(&LinkStats::sent_packets))},
            {"trimmed", static_cast<double>(network.total(&LinkStats::trimmed_packets))},
            {"dropped", static_cast<double>(network.total(&LinkStats::dropped_packets))}};
}

Values run(const RunContext& with, const Matrix& matrix, const Paths& paths, bool trims) {
    SwitchConfig the_switch{.buffer_bytes = 64 << 20, .queue_bytes = trims ? kProduct : 5 * kProduct};
    the_switch.red = {1.0, kProduct / 5, kProduct * 4 / 5};
    the_switch.balancer = paths.balancer;
    if (trims) the_switch.trim = Trim{.queue_bytes = 2 * kProduct};
    FatTreeConfig config{.k = with.quick ? 8u : 16u};  // 128 or 1024 hosts
    config.rack.host = {.transport = transport_of(paths, kProduct), .control_class = true};
    config.rack.access = config.uplink = {.bits_per_s = kRate, .delay = kMicrosecond};
    config.rack.tor = config.upper = the_switch;

    Network network(with.seed);
    const FatTree tree = fat_tree(network, config);
    Random random(with.seed, kStream);
    for (uint32_t i = 0; i < matrix.slow_links; ++i) slow_down(tree.core_links[i].backward, the_switch);  // downwards
    const std::vector<Host*> hosts = tree.hosts();
    const std::vector<FlowSpec> flows = matrix.flows(static_cast<uint32_t>(hosts.size()), random);
    if (!is_one_path(paths) || matrix.flows != permutation_of_all) return play(with, network, hosts, flows);
    std::vector<uint16_t> ports(flows.size());  // one flow from each host, in their order
    Values values = play(with, network, hosts, flows, &ports);
    values["fullest"] = fullest_link(flows, ports, hosts);
    for (uint32_t draw = 0; draw < kDraws; ++draw) {
        for (uint16_t& port : ports) port = static_cast<uint16_t>(transport::kFirstVp + random.below(transport::kVps));
        const uint32_t fullest = std::clamp(fullest_link(flows, ports, hosts), kMinShared, kMaxShared);
        values[shared_by(fullest)] += 1.0 / kDraws;
    }
    for (uint32_t i = kMinShared; i <= kMaxShared; ++i) values.try_emplace(shared_by(i), 0);
    return values;
}

// A leaf's first link up and down is slow. Their windows are 150 packets from the start, one and a half products.
constexpr uint32_t kFailedWindow = 150;
Values run_failed(const RunContext& with, uint64_t bytes, const Paths& paths) {
    constexpr uint64_t rate = 400 * kGbps;
    constexpr uint32_t product = product_of(rate, 9 * kMicrosecond - 600 * kNanosecond);
    SwitchConfig the_switch{.buffer_bytes = 256 << 20, .queue_bytes = product};
    the_switch.red = {1.0, product / 4, product * 3 / 4};
    the_switch.trim = Trim{.queue_bytes = 2 * product};
    the_switch.balancer = paths.balancer;
    transport::Config transport = transport_of(paths, product);
    transport.paths.initial_window = kFailedWindow;
    const LinkConfig link{.bits_per_s = rate, .delay = kMicrosecond};
    Network network(with.seed);
    const LeafSpine made = leaf_spine(network, {.leaves = with.quick ? 4u : 128u,
                                                .spines = 64,
                                                .rack = {.hosts = 64,
                                                         .access = link,
                                                         .host = {.transport = transport, .control_class = true},
                                                         .tor = the_switch},
                                                .uplink = link,
                                                .spine = the_switch});
    for (const std::vector<Cable>& uplinks : made.uplinks) {
        slow_down(uplinks.front().forward, the_switch);
        slow_down(uplinks.front().backward, the_switch);
    }
    const std::vector<Host*> hosts = made.hosts();
    return play(with, network, hosts,
                permutation(static_cast<uint32_t>(hosts.size()), bytes, Random(with.seed, kStream)));
}

// A row by megabytes: the target, and the published times over 32, 64 and 128 entropies, all in us.
struct FailedRow {
    uint32_t megabytes;
    double target;
    std::array<double, 3> theirs;
};
constexpr std::array kFailedRows{
    FailedRow{1, 34, {42.0, 44.6, 45.4}},          FailedRow{2, 58, {69.0, 66.0, 66.2}},
    FailedRow{4, 108, {141.8, 123.2, 112.7}},      FailedRow{8, 205, {291.4, 257.2, 219.4}},
    FailedRow{16, 398, {580.1, 529.2, 466.1}},     FailedRow{32, 787, {1059.3, 992.7, 969.8}},
    FailedRow{64, 1564, {2064.9, 1956.5, 1861.3}}, FailedRow{100, 2438, {3300.0, 3093.3, 2895.0}}};
// The first three are from the publication. DRILL has no entropies: one run is compared with their three.
constexpr std::array kFailedChoices{
    Paths{"32", Choice::kReps, 32, Balancer::kEcmp}, Paths{"64", Choice::kReps, 64, Balancer::kEcmp},
    Paths{"128", Choice::kReps, 128, Balancer::kEcmp}, Paths{"drill", Choice::kRandom, 1, Balancer::kDrill}};
constexpr size_t kTheirs = 3;

std::string failed_name(const FailedRow& row, const Paths& paths) {
    return std::to_string(row.megabytes) + "MB-" + paths.name;
}

std::string name_of(const Matrix& matrix, const Paths& paths, const char* network) {
    return std::string(matrix.name) + "-" + paths.name + "-" + network;
}

}  // namespace

std::vector<Point> uec_points() {
    std::vector<Point> points;
    const auto add = [&](const Matrix& matrix, const Paths& paths, const char* network) {
        points.push_back({name_of(matrix, paths, network), [&matrix, &paths, network](const RunContext& with) {
                              return run(with, matrix, paths, network == kNetworks[0]);
                          }});
    };
    for (const Matrix& matrix : kMatrices) {
        for (const Paths& paths : kChoices) {
            for (const char* network : kNetworks) add(matrix, paths, network);
        }
    }
    return points;
}

Report uec(const Results& results) {
    Report report;
    report.plot = {"UEC's matrices: the last flow, by what was published at most", "", "", {}, {}};
    for (const Matrix& matrix : kMatrices) report.plot.categories.emplace_back(matrix.name);
    const auto measure = [&](const std::string& point) {
        const Measure made = results.measure("last flow, " + point, "us", point, "last");
        report.measures.push_back(made);
        for (const char* metric : {"unfinished", "sent again", "by timeout", "trimmed", "dropped"})
            report.measures.push_back(results.measure(metric + std::string(", ") + point, "", point, metric));
        return made.ours;
    };
    for (const char* network : kNetworks) {
        for (const Paths& paths : kChoices) {
            Curve& curve = report.plot.add(paths.name + std::string(", ") + network);
            for (size_t i = 0; i < kMatrices.size(); ++i) {
                const Matrix& matrix = kMatrices[i];
                const std::string point = name_of(matrix, paths, network);
                const double most = is_one_path(paths) ? kOnePath : matrix.most;
                const double ours = measure(point);
                curve.points.emplace_back(i, ours / most);
                if (!is_one_path(paths) || i != 0) continue;
                const double fullest = results.mean(point, "fullest"), bound = fullest_us(fullest);
                report.measures.push_back({"by what its fullest link takes, " + point, "", ours / bound});
                report.measures.push_back(results.measure("flows of that link, " + point, "", point, "fullest"));
                double likely = 0;  // the probability that the fullest link of a draw takes no longer than theirs
                for (uint32_t flows = kMinShared; flows <= kMaxShared; ++flows) {
                    const std::string metric = shared_by(flows);
                    report.measures.push_back(results.measure(metric + ", " + point, "of draws", point, metric));
                    if (fullest_us(flows) <= kOnePath) likely += results.mean(point, metric);
                }
                report.measures.push_back(
                    {"draws whose fullest link takes no longer than the published run, " + point, "", likely});
            }
        }
    }
    report.notes = {
        "Published for NSCC, depending on the choice of paths: 193 to 213 us; slow links 207 to 281; one path 890; "
        "incast of 15 2479, of 1023 10556 (with credits of the receiver, which are not here, 2463 and 8803). The upper "
        "ends are the bars. What they publish is of switches that trim.",
        "By choice, with queues of a product and of five: permutation, REPS 198 and 198 us, each entropy in turn 213 "
        "and 222; slow links 207 and 210, 281 and 565. \"random\" here draws each time.",
        "One path is as slow as its fullest link: six flows of 2 MB take 1000 us, five 840. Which there is the hash "
        "decides; the draws are of other source ports in the same permutation.",
        "Quick: 128 hosts, the same bars."};
    return report;
}

std::vector<Point> uec_failed_points() {
    std::vector<Point> points;
    for (const FailedRow& row : kFailedRows) {
        for (const Paths& paths : kFailedChoices) {
            points.push_back({failed_name(row, paths), [&row, &paths](const RunContext& with) {
                                  return run_failed(with, row.megabytes * uint64_t{1'000'000}, paths);
                              }});
        }
    }
    return points;
}

Report uec_failed(const Results& results) {
    Report report;
    report.plot = {"A slow link at each leaf: the last flow, by its target", "MB", "", {}, {}};
    uint32_t met = 0, met_by_drill = 0;
    for (const FailedRow& row : kFailedRows) report.plot.categories.push_back(std::to_string(row.megabytes));
    for (size_t k = 0; k < kFailedChoices.size(); ++k) {
        Curve& curve = report.plot.add(k < kTheirs ? kFailedChoices[k].name + std::string(" entropies") : "DRILL");
        for (size_t i = 0; i < kFailedRows.size(); ++i) {
            const FailedRow& row = kFailedRows[i];
            const std::string point = failed_name(row, kFailedChoices[k]);
            const Measure measure = results.measure("last flow, " + point, "us", point, "last");
            curve.points.emplace_back(i, measure.ours / row.target);
            const bool meets = measure.ours <= row.target && results.mean(point, "unfinished") == 0;
            (k < kTheirs ? met : met_by_drill) += meets;
            report.measures.push_back(measure);
            report.measures.push_back({"its target by it, " + point, "", row.target / measure.ours});
            if (k < kTheirs) report.measures.push_back({"the published time, " + point, "us", row.theirs[k]});
            for (const char* metric : {"unfinished", "sent again", "by timeout", "trimmed", "hops"})
                report.measures.push_back(results.measure(metric + std::string(", ") + point, "", point, metric));
        }
    }
    report.measures.push_back({"targets met with recycled entropies, of 24", "", static_cast<double>(met)});
    report.measures.push_back({"targets met with DRILL, of 8 sizes", "", static_cast<double>(met_by_drill)});
    report.notes = {
        "8192 hosts: 128 leaves of 64, 64 spines, 400 Gb/s, 1 us; NSCC, recycled entropies or DRILL, switches that "
        "trim. "
        "The whole of it takes some two hours of one core. Quick: 256 hosts of four leaves, the same bars."};
    return report;
}

}  // namespace rove::sim
