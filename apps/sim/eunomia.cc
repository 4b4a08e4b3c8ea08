// SPDX-License-Identifier: Apache-2.0
#include "eunomia.h"

#include <algorithm>
#include <unordered_map>

#include "fabric/audit.h"
#include "fabric/failures.h"
#include "fabric/ring.h"

namespace rove::sim {
namespace {

constexpr uint32_t kLeaves = 8, kSpines = 8, kRackHosts = kEunomiaRackHosts;
static_assert(kLeaves * kRackHosts == kEunomiaHosts);
constexpr Time kArrivals = 20 * kMillisecond, kFirst = kMillisecond;  // earlier flows are not counted
constexpr Time kDrain = 20 * kMillisecond;                            // flows that take longer are unfinished
constexpr double kUplinksOfAHost = static_cast<double>(kSpines) / kRackHosts;
constexpr uint32_t kBdpPackets = kBdp / kEunomiaMtu;
constexpr Time kHeld = 5 * kMillisecond;      // no queue takes that long to drain
constexpr Time kSample = 100 * kMicrosecond;  // interval of the samples of reorder memory
// The streams of random numbers. A network uses small stream numbers.
constexpr uint64_t kFlowStream = 1'000'001, kFaultStream = 1'000'002, kQueryStream = 1'000'003,
                   kGraphStream = 1'000'004, kRingStream = 1'000'005;
constexpr uint32_t kQuerySenders = 50, kQueryBytes = 40'000;
// So that a flow of AliStorage is one message, whose size SRPT knows.
constexpr uint32_t kPieceBytes = Network::kScratchBytes;
// Ports of a fat tree, and switches of the Jellyfish that it is compared with.
constexpr uint32_t kPorts = 8, kSwitches = 80;
constexpr CountedBytes kTheirFrames{.headers = 48, .control = 60};  // the frame sizes of ConWeave's simulator

transport::DcqcnConfig dcqcn() {
    return {.reaction = transport::DcqcnReaction::kHpcc,
            .line_rate_bytes_per_s = kLinkRate / 8,
            .min_rate_bytes_per_s = 12'500'000,
            .cnp_interval_ns = 1'000,  // one for each interval of alpha: in their simulator every ACK carries one
            .decrease_interval_ns = 4'000,
            .alpha_timer_ns = 1'000,
            .rate_timer_ns = 300'000,
            .additive_bytes_per_s = 5'000'000,
            .hyper_bytes_per_s = 12'500'000,
            .fast_recovery_steps = 1};
}

bool is_lossless(const Scheme& scheme, const Variant& variant) {
    return variant.losses == Losses::kNone ||
           (variant.losses == Losses::kOfScheme && scheme.speaks != TransportScheme::kIrn);
}

SwitchConfig switch_of(const Scheme& scheme, const Variant& variant) {
    SwitchConfig the_switch;
    the_switch.buffer_bytes = 9 << 20;
    the_switch.alpha = 1;
    the_switch.red = {0.2, 100'000, 400'000};
    the_switch.balancer =
        scheme.balancer == Balancer::kDrill && !variant.follow_papers ? Balancer::kDrillByDestination : scheme.balancer;
    if (is_lossless(scheme, variant))
        the_switch.dynamic_pfc = DynamicPfc{.pause_time = variant.follow_papers ? Link::kForever : 5 * kMicrosecond};
    if (variant.losses == Losses::kTrims) the_switch.trim = Trim{.header_bytes = kMinFrameBytes};
    the_switch.max_deflections = variant.deflections;
    the_switch.srpt = variant.srpt;
    return the_switch;
}

struct Built {
    std::vector<Host*> hosts;
    std::vector<Cable> trunks;  // between switches
};

Built build(Network& network, const Scheme& scheme, const Variant& variant, uint64_t seed) {
    const SwitchConfig the_switch = switch_of(scheme, variant);
    const LinkConfig link{.bits_per_s = kLinkRate, .delay = kMicrosecond, .gap_bytes = 0};
    const RackConfig rack{.hosts = kRackHosts,
                          .ports = variant.ports,
                          .access = link,
                          .host = {.transport = transport_of(scheme, variant),
                                   .counted = kTheirFrames,
                                   .ring_packets = 1,
                                   .control_class = true},
                          .tor = the_switch};
    switch (variant.shape) {
        case TopologyKind::kLeafSpine: {
            const LeafSpine made = leaf_spine(
                network, {.leaves = kLeaves, .spines = kSpines, .rack = rack, .uplink = link, .spine = the_switch});
            return {made.hosts(), made.trunks()};
        }
        case TopologyKind::kFatTree: {
            FatTreeConfig config{.k = kPorts, .rack = rack, .uplink = link, .upper = the_switch};
            config.rack.hosts = kPorts / 2;
            FatTree made = fat_tree(network, config);
            for (const Cable& cable : made.core_links) made.edge_uplinks.push_back(cable);
            return {made.hosts(), made.edge_uplinks};
        }
        case TopologyKind::kJellyfish: {
            const Jellyfish made = jellyfish(network,
                                             {.switches = kSwitches,
                                              .ports = kPorts,
                                              .hosts = kEunomiaHosts,
                                              .access = link,
                                              .trunk = link,
                                              .host = rack.host,
                                              .a_switch = the_switch},
                                             Random(seed, kGraphStream));
            return {made.hosts(), made.trunks};
        }
    }
    __builtin_unreachable();
}

// A ring of all hosts, with the host number of each place.
struct RingOfAll {
    RingOfAll(Network& network, const std::vector<Host*>& hosts, const RingConfig& config, Random random) {
        for (uint32_t i = 0; i < hosts.size(); ++i) order.push_back(i);
        for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
        std::vector<Host*> members;
        for (const uint32_t host : order) members.push_back(hosts[host]);
        ring.emplace(network, members, config);
    }
    bool done() const { return ring->done() || ring->failed(); }

    std::vector<uint32_t> order;
    std::optional<Ring> ring;
};

// Completion times of queries, each of flows that begin together.
class Queries {
  public:
    explicit Queries(Time from) : from_(from) {}
    void add(const FlowRecord& record) {
        if (record.flow.query == 0 || record.flow.start < from_) return;
        auto& [flows, took] = all_[record.flow.query];
        ++flows;
        took = std::max(took, record.took);
    }
    void tell(Values& values) const {
        std::vector<double> us;
        for (const auto& [query, one] : all_) {
            if (one.first == kQuerySenders) us.push_back(static_cast<double>(one.second) / kMicrosecond);
        }
        std::ranges::sort(us);
        double sum = 0;
        for (const double one : us) sum += one;
        values["queries"] = static_cast<double>(us.size());
        values["query mean"] = us.empty() ? 0 : sum / static_cast<double>(us.size());
        values["query p99"] = us.empty() ? 0 : us[static_cast<size_t>(0.99 * static_cast<double>(us.size() - 1))];
    }

  private:
    Time from_;
    std::map<uint32_t, std::pair<uint32_t, Time>> all_;
};

// Records the flows that have lost a packet of either direction to a failed link.
class Hit {
  public:
    explicit Hit(Network& network) {
        network.world().trace = [&](TraceEvent what, const Link&, const Packet& packet) {
            if (what == TraceEvent::kCut) last_[packet.frame.headers.bth.dest_qpn] = network.now();
        };
    }
    // Returns true if a packet of this flow was lost. Queue pairs serve one flow after another, and the first flow of
    // the network began at 0.
    bool contains(const FlowRecord& record) const {
        for (const uint32_t qpn : {record.sender_qpn, record.receiver_qpn}) {
            const auto found = last_.find(qpn);
            if (found != last_.end() && found->second >= record.flow.start) return true;
        }
        return false;
    }

  private:
    std::unordered_map<uint32_t, Time> last_;  // the time at which a packet for a queue pair was last lost
};

void tell_transport(Values& values, const std::vector<Host*>& hosts) {
    using transport::Counter;
    double in_order = 0, early = 0, nacks = 0, again = 0, sent = 0, timeouts = 0, false_alarms = 0;
    for (const Host* host : hosts) {
        nacks += static_cast<double>(host->counters()[Counter::kTxNakSequence]);
        again += static_cast<double>(host->counters()[Counter::kRetransmittedPackets]);
        sent += static_cast<double>(host->counters()[Counter::kTxPackets]);
        timeouts += static_cast<double>(host->counters()[Counter::kResentTimeout]);
        const transport::MultipathShared* const shared = host->multipath();
        if (shared == nullptr) continue;
        timeouts += static_cast<double>(shared->paths.counters().resent_timeout);
        false_alarms += static_cast<double>(shared->paths.counters().false_alarms);
        in_order += static_cast<double>(shared->counters.degrees[0]);
        for (size_t i = 1; i < shared->counters.degrees.size(); ++i)
            early += static_cast<double>(shared->counters.degrees[i]);
    }
    values["nacks"] = nacks;
    values["resent"] = again / std::max(sent, 1.0);
    values["resent by timeout"] = timeouts;
    values["false alarms"] = false_alarms;
    values["early"] = early / std::max(early + in_order, 1.0);
}

}  // namespace

transport::Config transport_of(const Scheme& scheme, const Variant& variant) {
    using Control = transport::PathsConfig::Control;
    constexpr uint32_t kNoWindow = 1024;
    const bool is_irn = scheme.speaks == TransportScheme::kIrn;
    const bool drops = !is_lossless(scheme, variant), fails = variant.failed_part != 0;
    transport::Config config = mp_rdma(kEunomiaMtu);
    config.dcqcn = dcqcn();
    config.dcqcn.disorder_is_cnp = !variant.follow_papers && (scheme.speaks == TransportScheme::kGoBackN || is_irn);
    config.window_packets = kNoWindow;
    config.quantum_packets = 1;
    config.ordering = variant.ordering;
    config.paths.initial_window = kBdpPackets * (variant.ports.bonded ? variant.ports.count : 1);
    config.reorder.kind = transport::ReorderConfig::Kind::kEunomia;
    transport::PathsConfig& paths = config.paths;
    switch (scheme.speaks) {
        case TransportScheme::kGoBackN:
            break;
        case TransportScheme::kMpRdma:
            config.reorder.kind = transport::ReorderConfig::Kind::kStatic;
            config.ordering = transport::Ordering::kOptimistic;
            break;
        case TransportScheme::kIrn:
        case TransportScheme::kEunomia:
        case TransportScheme::kIdeal:
            paths.control = Control::kDcqcn;
            paths.first_vp = 0;
            paths.vps = 1;
            paths.max_window = kNoWindow;
            paths.initial_window = is_irn ? kBdpPackets : kNoWindow;
            paths.infer_losses = is_irn && variant.follow_papers;
            if (is_irn && !variant.follow_papers) paths.recovery = transport::PathsConfig::Recovery::kOfDisorder;
            paths.learn_patience = !is_irn;
            // In a network without loss, a late packet is not lost. Where links fail, Eunomia has IRN's timer (section
            // 3.2.3) and no other: packets that MP-10 would retransmit early are late there, not lost; they find
            // bitmaps full, and so cause the retransmission of a whole window. Where switches drop packets all the
            // time, it does retransmit early.
            paths.repeat_early = !is_irn && drops;
            paths.min_rto_ns = is_irn || (fails && !drops) ? 320'000 : drops ? 1'000'000 : 16'000'000;
            paths.low_rto_ns = is_irn || (fails && !drops) ? 100'000 : 0;
            if (scheme.speaks != TransportScheme::kEunomia) config.reorder.cap_slots = kNoWindow;
            config.reorder.arena_blocks = 1u << 14;
            break;
        case TransportScheme::kReps:
            paths.control = Control::kNscc;
            paths.choice = transport::PathsConfig::Choice::kReps;
            paths.infer_losses = true;
            break;
    }
    if (variant.static_bytes != 0) {
        config.reorder.kind = transport::ReorderConfig::Kind::kStatic;
        config.reorder.static_slots = variant.static_bytes * 4;
    }
    return config;
}

OfferedLoad poisson_load(const RunContext& with, const FlowSizes& sizes, double load, TopologyKind shape) {
    const Time parts = with.quick ? 10 : 1;
    OfferedLoad offered{
        .until = kArrivals / parts, .drain = kDrain / (with.quick ? 4 : 1), .counted_from = kFirst / parts};
    const PoissonConfig config{
        .hosts = kEunomiaHosts,
        .bits_per_s = load * (shape == TopologyKind::kLeafSpine ? kUplinksOfAHost : 1) * static_cast<double>(kLinkRate),
        .until = offered.until};
    offered.flows = poisson(config, sizes, Random(with.seed, kFlowStream));
    return offered;
}

OfferedLoad query_load(const RunContext& with, double load, double background) {
    OfferedLoad offered = poisson_load(with, ali_storage(), background);
    const std::vector<FlowSpec> queries =
        incast({.hosts = kEunomiaHosts,
                .senders = kQuerySenders,
                .bytes = kQueryBytes,
                .queries_per_s = load * kUplinksOfAHost * static_cast<double>(kLinkRate) * kEunomiaHosts /
                                 (8.0 * kQuerySenders * kQueryBytes),
                .until = offered.until},
               Random(with.seed, kQueryStream));
    offered.flows.insert(offered.flows.end(), queries.begin(), queries.end());
    sort_by_start(offered.flows);
    return offered;
}

Values run_flows(const RunContext& with, const Scheme& scheme, const OfferedLoad& offered, const Variant& variant) {
    Network network(with.seed);
    const Built built = build(network, scheme, variant, with.seed);
    const std::vector<Host*>& hosts = built.hosts;
    const std::vector<Cable>& trunks = built.trunks;
    Random random(with.seed, kFaultStream);
    for (uint32_t i = 0; i < variant.slow_uplinks; ++i) trunks[random.below(trunks.size())].set_rate(kLinkRate / 10);
    Failures failures(network, variant.reaction);
    if (variant.flaps != 0)
        failures.repeat(trunks, variant.failed_part, variant.flaps, random);
    else if (variant.failed_part != 0)
        failures.fail(draw(trunks, variant.failed_part, random));
    const bool is_rc = scheme.speaks == TransportScheme::kGoBackN;
    Workload workload(network, hosts, offered.flows,
                      {.qp = {.multipath = !is_rc, .mtu = kEunomiaMtu},
                       .piece_bytes = variant.srpt ? kPieceBytes : 1 << 20,
                       .synchronises = variant.synchronises});
    CompletionTimes times(offered.counted_from), hit_times(offered.counted_from);
    std::optional<Hit> hit;
    if (variant.failed_part != 0) hit.emplace(network);
    Queries queries(offered.counted_from);
    std::array<std::pair<double, double>, kSizeClasses.size()> degrees{};  // sum and count by size class
    double bytes = 0;
    Time last = 0;
    std::optional<RingOfAll> ring;
    const auto done = [&] { return workload.done() && (!ring || ring->done()); };
    workload.on_record = [&](const FlowRecord& record) {
        times.add(record);
        if (hit && hit->contains(record)) hit_times.add(record);
        queries.add(record);
        const auto of = std::ranges::lower_bound(kSizeClasses, record.flow.bytes) - kSizeClasses.begin();
        auto& [sum, count] = degrees[std::min<size_t>(static_cast<size_t>(of), degrees.size() - 1)];
        sum += record.degree;
        ++count;
        bytes += static_cast<double>(record.flow.bytes);
        last = network.now();
        if (with.flows != nullptr) write_csv(*with.flows, record);
        if (done() && network.now() >= offered.until) network.stop();
    };
    if (offered.ring_bytes != 0) {
        const RingConfig config{.bytes = offered.ring_bytes, .qp = {.multipath = !is_rc, .mtu = kEunomiaMtu}};
        ring.emplace(network, hosts, config, Random(with.seed, kRingStream));
        ring->ring->on_record = [&](FlowRecord record) {
            record.flow.from = ring->order[record.flow.from];
            record.flow.to = ring->order[record.flow.to];
            workload.on_record(record);
        };
        ring->ring->start();
    }
    double bitmap_bytes = 0, samples = 0;
    std::function<void()> sample = [&] {
        for (const Host* host : hosts) {
            if (host->multipath() != nullptr)
                bitmap_bytes += static_cast<double>(host->multipath()->reorder.usage().bytes);
        }
        samples += static_cast<double>(hosts.size());
        if (network.now() < offered.until) network.at(network.now() + kSample, sample);
    };
    network.at(kSample, sample);
    network.run_until(offered.until);
    if (!done()) network.run_until(offered.until + offered.drain);
    Values values;
    const auto lasted = static_cast<double>(network.now());
    values["paused hosts"] = pauses(network).host_time / lasted;
    values["paused switches"] = pauses(network).switch_time / lasted;
    values["held links"] = paused_links(network, kHeld);
    check_conservation(network);
    queries.tell(values);
    double hit_unfinished = 0;
    CompletionTimes begun = times;
    workload.for_each_running([&](const FlowRecord& record) {
        if (record.flow.start >= offered.counted_from) begun.add(record);
        if (!hit || !hit->contains(record) || record.flow.start < offered.counted_from) return;
        hit_times.add(record);
        ++hit_unfinished;
    });
    hit_times.tell(values, "hit ");
    values["hit unfinished"] = hit_unfinished;
    times.tell(values, "all ");
    begun.tell(values, "begun ");
    times.tell(values, "short ", 0, kBdp);
    times.tell(values, "long ", kBdp);
    uint64_t least = 0;
    for (size_t i = 0; i < kSizeClasses.size(); ++i) {
        const std::string name = "size-" + std::to_string(kSizeClasses[i]) + " ";
        times.tell(values, name, least, kSizeClasses[i]);
        values[name + "degree"] = degrees[i].first / std::max(degrees[i].second, 1.0);
        least = kSizeClasses[i];
    }
    tell_transport(values, hosts);
    values["bitmap bytes of a host"] = bitmap_bytes / std::max(samples, 1.0);
    values["last us"] = static_cast<double>(last) / kMicrosecond;
    values["goodput"] = bytes * 8 / seconds(done() ? std::max<Time>(last, 1) : network.now()) / kGbps / kEunomiaHosts;
    auto started = static_cast<double>(workload.started()), completed = static_cast<double>(workload.completed());
    if (ring) {
        started += static_cast<double>(hosts.size()) * ring->ring->steps();
        completed += static_cast<double>(ring->ring->records());
        values["ring"] = static_cast<double>(ring->ring->took()) / static_cast<double>(ring->ring->ideal());
    }
    values["unfinished"] = (started - completed) / started;
    values["failed"] = static_cast<double>(workload.failed());
    values["dropped"] = static_cast<double>(network.total(&LinkStats::dropped_packets));
    return values;
}

}  // namespace rove::sim
