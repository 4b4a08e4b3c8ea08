// SPDX-License-Identifier: Apache-2.0
// A cell of the matrix: its network, its flows and its measures.
//
// DESIGN NOTES
// 1. The limit is what an ideal transport with the same windows would reach. It is integrated over time as the network
//    changes: at each change, account() adds the time that has passed at the rates of the state before.
// 2. Switches reroute rc around a dead path, because rc cannot leave its path. They do not reroute mp, which has to
//    find the paths that live.
// 3. The progress of a flow is the PSN that its receiver expects. Completions are too coarse where a thousand QPs send
//    messages of 1 MiB.
// 4. The rate of a path is the highest for which a cell stays cheap, because a round trip of 100 ms at 80 Gb/s is a
//    million packets.
#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <deque>
#include <numeric>

#include "fabric/audit.h"
#include "fabric/failures.h"
#include "fabric/flow.h"
#include "fabric/topology.h"
#include "matrix.h"
#include "matrix_limit.h"

namespace rove::sim {
namespace {

using namespace fabric;
using Condition = MatrixCell::Condition;
using Pattern = MatrixCell::Pattern;
using Protocol = MatrixCell::Protocol;
using Signal = MatrixCell::Signal;

constexpr uint32_t kPathCount = kMatrixPaths, kAllToAllHosts = 8;
// The queue of a port of 10 Gb/s: its length where it drops from the tail, and the lengths from which it marks and
// pauses. A slower port has less, but room for some packets.
constexpr uint64_t kTailBytes = 1 << 20, kMarkBytes = 64 << 10, kPauseBytes = 64 << 10;
constexpr uint64_t kLeastTailBytes = 128 << 10, kLeastMarkBytes = 20'000, kMostMarkBytes = 512 << 10;
constexpr uint64_t kLargeBuffer = 1ull << 36;  // no limit
constexpr uint32_t kTurnPackets = 32;          // transport::Config::quantum_packets
constexpr double kPackets = 120'000;           // data packets that a cell may cost
constexpr Time kReaction = kMillisecond;       // the delay of switches after a dead path
constexpr uint32_t kGraceTrips = 10;           // round trips in which a change may be noticed

double seconds(Time time) {
    return static_cast<double>(time) / static_cast<double>(kSecond);
}
Time picoseconds(double seconds) {
    return static_cast<Time>(seconds * static_cast<double>(kSecond));
}

class CellRun {
  public:
    CellRun(const MatrixCell& cell, uint64_t seed) : cell_(cell), network_(seed), failures_(network_, reaction()) {
        plan();
        build();
    }
    Values run();

  private:
    struct Track {  // follows one flow
        bool mp;
        uint32_t path = 0;      // rc over parallel paths: the present one
        Time usable_since = 0;  // rc: its path changed, and has to be found
        uint16_t udp_src = 0;
        uint32_t from, to;  // hosts
        uint64_t first_psn = 0, packets = 0;
        double fair_bytes = 0;
    };

    Time reaction() const {
        return cell_.condition == Condition::kFlap ? std::min(kReaction, period() / 4) : kReaction;
    }
    Time period() const { return cell_.degree * kMillisecond; }
    // The time after a change in which the transport may notice it: at most half of that until the next change. A path
    // is up for several periods, but rc is rerouted in each.
    Time grace() const {
        const Time trips = kGraceTrips * loaded_trip_;
        if (cell_.condition != Condition::kFlap) return trips;
        return std::min(trips, has_rc() ? period() / 2 : period() * (kPathCount - 1) / 2);
    }
    bool over_paths() const { return cell_.pattern == Pattern::kPaths; }
    bool has_mp() const { return cell_.protocol != Protocol::kRc; }
    bool has_rc() const { return cell_.protocol != Protocol::kMp; }
    uint32_t pairs() const {
        if (over_paths()) return 1;
        return cell_.pattern == Pattern::kIncast ? cell_.senders : kAllToAllHosts * (kAllToAllHosts - 1);
    }
    uint32_t flow_count() const {  // a multiple of the pairs
        const uint32_t least = std::max(cell_.qps, over_paths() && cell_.protocol == Protocol::kMixed ? 2u : 1u);
        return (least + pairs() - 1) / pairs() * pairs();
    }
    bool is_mp(uint32_t flow) const {
        return cell_.protocol == Protocol::kMp ||
               (cell_.protocol == Protocol::kMixed && (over_paths() ? flow : flow / pairs() + flow % pairs()) % 2 == 1);
    }
    double path_rate(uint32_t path) const {
        const bool slow = cell_.condition == Condition::kSlow && path == 0;
        return static_cast<double>(rate_) / (slow ? cell_.degree : 1);
    }

    void plan();
    void plan_at(uint64_t rate);
    void build();
    SwitchConfig switch_config() const;
    void build_paths();
    void build_switch();
    void add_flows();
    void schedule_faults();
    void set_up(std::span<const Cable> cables, bool up);
    void locate();
    void update_limits();
    void account();
    void begin_count();
    void check_progress();
    Values measure();

    const MatrixCell cell_;
    Network network_;
    Failures failures_;
    uint64_t rate_ = 0;     // that of a path or a host's link
    Time trip_ = 0;         // a packet and its ACK in an empty network
    Time loaded_trip_ = 0;  // a round trip behind the queue that the signal permits
    uint64_t tail_bytes_ = 0, ecn_bytes_ = 0, pause_bytes_ = 0;
    Time warm_up_ = 0, counted_ = 0;
    MatrixShape rc_{}, mp_{};

    TwoRacks racks_;
    std::vector<Host*> hosts_;
    std::deque<Flow> flows_;
    std::vector<Track> tracks_;
    std::vector<double> message_us_;
    std::array<Time, kPathCount> found_at_{};  // the time at which a path that returned has to be in use by mp
    std::array<double, 2> shares_{};           // not over parallel paths: of rc and mp flows
    PathShares limits_;
    bool counting_ = false;
    bool excused_ = false;  // after a change, the time in which it is noticed does not count
    Time accounted_ = 0, count_begin_ = 0;
    double limit_bytes_ = 0;  // payload
    uint64_t sent_before_ = 0, repeated_before_ = 0, dropped_before_ = 0;
    std::function<void()> flap_;
    uint32_t down_ = 0;
};

void CellRun::plan_at(uint64_t rate) {
    rate_ = rate;
    const double bits = static_cast<double>(rate);
    const double packet_bits = 8.0 * (std::min(cell_.message_bytes, kMatrixMtu) + 106), ack_bits = 8.0 * 90;
    const double hops = over_paths() ? 1.25 : 2;  // the links of hosts are eight times as fast
    trip_ = cell_.rtt + picoseconds(hops * (packet_bits + ack_bits) / bits);
    const uint64_t slower = 10 * kGbps / rate;
    tail_bytes_ = std::max(kTailBytes / slower, kLeastTailBytes);
    pause_bytes_ = std::max(kPauseBytes / slower, kLeastMarkBytes);
    // A fifth of the product of bandwidth and delay, as for DCTCP, within what switches are configured to.
    const auto product = static_cast<uint64_t>(seconds(cell_.rtt) * bits / 8);
    ecn_bytes_ = std::clamp(product / 5, std::max(kMarkBytes / slower, kLeastMarkBytes), kMostMarkBytes);
    const uint64_t queue = cell_.signal == Signal::kEcn   ? ecn_bytes_
                           : cell_.signal == Signal::kPfc ? pause_bytes_
                                                          : tail_bytes_;
    loaded_trip_ = trip_ + picoseconds(static_cast<double>(queue) * 8 / bits);
    const double all = over_paths() ? kPathCount * bits : bits;
    rc_ = matrix_shape(cell_, false, bits, trip_);
    mp_ = matrix_shape(cell_, true, all, trip_);
    // Trips that count, and the time in which every QP has four turns if that is affordable.
    const Time trips = cell_.rtt >= 10 * kMillisecond ? 40 : 60;
    warm_up_ = std::max(5 * kMillisecond, 20 * trip_);
    counted_ = std::max(15 * kMillisecond, trips * trip_);
    const MatrixShape& any = has_mp() ? mp_ : rc_;
    const double turn = std::min<double>(any.window_bytes, kTurnPackets * any.payload);
    const double capacity = cell_.pattern == Pattern::kAllToAll ? all * kAllToAllHosts : all;
    const double turns = 4.5 * flow_count() * turn / any.payload;
    if (turns < 1.5 * kPackets)
        counted_ = std::max(counted_, picoseconds(turns * any.payload * any.wire_by_payload * 8 / capacity));
    // An incast of few packets would not show a loss.
    if (!over_paths()) counted_ = std::max(counted_, picoseconds(20'000 * packet_bits / capacity));
    if (cell_.condition == Condition::kDying)
        counted_ = std::max(counted_, 4 * kGraceTrips * loaded_trip_ + 2 * reaction());
    if (cell_.condition == Condition::kFlap) counted_ = std::max(counted_, kPathCount * period());
    warm_up_ = std::max(warm_up_, counted_ / 4);
}

// Chooses the highest rate that costs at most kPackets, or else the one that costs least.
void CellRun::plan() {
    uint64_t cheapest = 0;
    double least = HUGE_VAL;
    for (const uint64_t mbps : {10'000, 1'000, 100}) {
        plan_at(mbps * 1'000'000);
        const double all = over_paths() ? kPathCount : cell_.pattern == Pattern::kAllToAll ? kAllToAllHosts : 1;
        const MatrixShape& any = has_mp() ? mp_ : rc_;
        const double rate = std::min(all * static_cast<double>(rate_), any.cap * flow_count());
        const double packets = rate * seconds(warm_up_ + counted_) / (8 * any.wire_by_payload * any.payload);
        if (packets <= kPackets) return;
        if (packets < least * 0.99) {
            least = packets;
            cheapest = rate_;
        }
    }
    plan_at(cheapest);
}

SwitchConfig CellRun::switch_config() const {
    SwitchConfig config{.buffer_bytes = kLargeBuffer};
    const uint32_t inputs = over_paths() ? kPathCount : 1;  // a host's link, as fast as all paths, is one input
    switch (cell_.signal) {
        case Signal::kNone:
            config.queue_bytes = tail_bytes_;
            break;
        case Signal::kEcn:
            config.queue_bytes = 4 * tail_bytes_;
            config.red = Red{1.0, ecn_bytes_, ecn_bytes_};
            break;
        case Signal::kPfc:
            config.pfc = Pfc{pause_bytes_ * inputs, pause_bytes_ * inputs / 2};
            break;
    }
    return config;
}

void CellRun::build_paths() {
    RackConfig rack;
    rack.access = {.bits_per_s = rate_ * kPathCount, .delay = 0};
    rack.tor = switch_config();
    LinkConfig link{.bits_per_s = rate_, .delay = cell_.rtt / 2, .loss = matrix_loss(cell_)};
    if (cell_.condition == Condition::kBurst) link.loss_burst = kMatrixLossBurst;
    const std::vector<PathConfig> paths(kPathCount, PathConfig{link, {}});
    racks_ = parallel_paths(network_, rack, paths);
    for (uint32_t path = 0; path < kPathCount; ++path)
        racks_.paths[path].set_rate(static_cast<uint64_t>(path_rate(path)));
    hosts_ = {racks_.left.hosts[0], racks_.right.hosts[0]};
}

void CellRun::build_switch() {
    RackConfig rack;
    rack.hosts = cell_.pattern == Pattern::kIncast ? cell_.senders + 1 : kAllToAllHosts;
    rack.access = {.bits_per_s = rate_, .delay = cell_.rtt / 4};
    rack.tor = switch_config();
    const Rack made = single_switch(network_, rack);
    hosts_ = made.hosts;
    const bool incast = cell_.pattern == Pattern::kIncast;
    // Clocks of real ports differ by up to 100 ppm. With equal ones the packets of all hosts arrive in the same order
    // again and again, so that at a full queue one host always finds the place that has become free. They differ by ten
    // times as much here, for as much mixing in a tenth of the time. The bottleneck of an incast keeps its rate.
    Random clocks = network_.world().new_stream();
    for (size_t host = incast ? 1 : 0; host < hosts_.size(); ++host)
        made.access[host].forward.set_rate(rate_ - clocks.below(rate_ / 1000));
    // In an incast the link of the receiver loses packets, otherwise the links of all hosts do.
    for (size_t host = 0; host < (incast ? 1 : hosts_.size()); ++host) {
        for (Link* const link : {&made.access[host].forward, &made.access[host].backward}) {
            link->set_loss(matrix_loss(cell_) / (incast ? 1 : 2));
            if (cell_.condition == Condition::kBurst) link->set_loss_burst(kMatrixLossBurst);
        }
    }
}

void CellRun::add_flows() {
    // rc flows use the paths in turn, each with a source port of its own where there are enough.
    std::array<std::vector<uint16_t>, kPathCount> ports;
    if (over_paths()) {
        for (uint32_t port = transport::kFirstVp; port <= UINT16_MAX; ++port) {
            const auto udp_src = static_cast<uint16_t>(port);
            const uint64_t hash = flow_hash(hosts_[0]->flow_to(*hosts_[1], udp_src));
            const Link* const link = racks_.left.tor->links()[racks_.left.tor->next_hop(hash, hosts_[1]->index())];
            for (uint32_t path = 0; path < kPathCount; ++path) {
                if (link == &racks_.paths[path].forward) ports[path].push_back(udp_src);
            }
        }
    }
    std::vector<uint32_t> living;
    for (uint32_t path = 0; path < kPathCount; ++path) {
        if (!ports[path].empty()) living.push_back(path);
    }
    uint32_t rc_flows = 0;
    const auto hosts = static_cast<uint32_t>(hosts_.size());
    for (uint32_t i = 0; i < flow_count(); ++i) {
        Track track{.mp = is_mp(i),
                    .udp_src = static_cast<uint16_t>(transport::kFirstVp + i % transport::kVps),
                    .from = 0,
                    .to = 1};
        if (cell_.pattern == Pattern::kIncast) {
            track.from = 1 + i % cell_.senders;
            track.to = 0;
        } else if (cell_.pattern == Pattern::kAllToAll) {
            const uint32_t pair = i % pairs();
            track.from = pair % hosts;
            track.to = (track.from + 1 + pair / hosts) % hosts;
        } else if (!track.mp) {
            track.path = living[rc_flows % living.size()];
            const auto& of_path = ports[track.path];
            track.udp_src = of_path[rc_flows++ / living.size() % of_path.size()];
        }
        FlowConfig config{.message_bytes = cell_.message_bytes, .in_flight = messages_in_flight(cell_)};
        config.qp = {.multipath = track.mp, .mtu = kMatrixMtu, .depth = 32, .udp_src = track.udp_src};
        Flow& flow = flows_.emplace_back(network_, *hosts_[track.from], *hosts_[track.to], config);
        flow.on_message = [this](Time took) {
            if (counting_) message_us_.push_back(seconds(took) * 1e6);
        };
        tracks_.push_back(track);
    }
}

void CellRun::build() {
    over_paths() ? build_paths() : build_switch();
    if (cell_.condition == Condition::kDead) {  // before the flows, so that rc begins on paths that live
        for (uint32_t path = 0; path < cell_.degree; ++path) racks_.paths[path].set_up(false);
        if (has_rc()) network_.reroute();
    }
    add_flows();
    schedule_faults();
}

// Notes the present path of every rc flow.
void CellRun::locate() {
    if (!over_paths()) return;
    const Switch& tor = *racks_.left.tor;
    for (Track& track : tracks_) {
        if (track.mp) continue;
        const uint64_t hash = flow_hash(hosts_[0]->flow_to(*hosts_[1], track.udp_src));
        const Link* const link = tor.links()[tor.next_hop(hash, hosts_[1]->index())];
        for (uint32_t path = 0; path < kPathCount; ++path) {
            if (link != &racks_.paths[path].forward || path == track.path) continue;
            track.path = path;
            track.usable_since = network_.now() + grace();
        }
    }
}

// Computes the rates that an ideal transport has from now on.
void CellRun::update_limits() {
    if (!over_paths()) return;
    std::array<double, kPathCount> rc_rates{}, mp_rates{};
    for (uint32_t path = 0; path < kPathCount; ++path) {
        if (racks_.paths[path].forward.up()) rc_rates[path] = path_rate(path);
        if (found_at_[path] <= network_.now()) mp_rates[path] = rc_rates[path];
    }
    std::array<uint32_t, kPathCount> rc_flows{};
    uint32_t mp_flows = 0;
    for (const Track& track : tracks_) {
        if (track.mp) {
            ++mp_flows;
        } else if (track.usable_since <= network_.now()) {
            ++rc_flows[track.path];
        }
    }
    limits_ = fair_path_shares(rc_rates, mp_rates, rc_flows, mp_flows, rc_.cap, mp_.cap);
}

// Adds the time since the last call to the limit and to the fair shares (note 1), then notes the present state.
void CellRun::account() {
    const double time = seconds(network_.now() - accounted_);
    if (counting_ && !excused_) {
        for (Track& track : tracks_) {
            double share = over_paths() ? (track.mp ? limits_.mp : limits_.rc[track.path]) : shares_[track.mp];
            if (over_paths() && !track.mp && track.usable_since > accounted_) share = 0;
            const double bytes = share * time / 8 / (track.mp ? mp_ : rc_).wire_by_payload;
            track.fair_bytes += bytes;
            limit_bytes_ += bytes;
        }
    }
    accounted_ = network_.now();
    locate();
    update_limits();
}

void CellRun::set_up(std::span<const Cable> cables, bool up) {
    account();
    if (has_rc()) {
        up ? failures_.restore(cables) : failures_.fail(cables);
        network_.at(network_.now() + reaction(), [this] { account(); });
        network_.at(network_.now() + reaction() + grace(), [this] { account(); });
    } else {
        for (const Cable& cable : cables) cable.set_up(up);
    }
    network_.at(network_.now() + grace(), [this] { account(); });
    for (uint32_t path = 0; path < kPathCount; ++path) {
        for (const Cable& cable : cables) {
            if (&cable.forward != &racks_.paths[path].forward) continue;
            if (up) found_at_[path] = network_.now() + grace();
            // Packets that were on the path are lost, at whatever rate it was in use.
            if (!up && counting_ && !excused_ && has_mp() && limits_.mp < mp_.cap * 0.999)
                limit_bytes_ -= path_rate(path) * seconds(cell_.rtt / 2) / 8 / mp_.wire_by_payload;
        }
    }
    update_limits();
}

void CellRun::schedule_faults() {
    if (cell_.condition == Condition::kDying) {
        network_.at(warm_up_ + counted_ / 2, [this] {
            set_up(std::span(racks_.paths).first(cell_.degree), false);
            // Only the time after the change counts.
            excused_ = true;
            const Time noticed = (has_rc() ? reaction() : 0) + grace();
            network_.at(network_.now() + noticed, [this] {
                account();
                excused_ = false;
                begin_count();
            });
        });
    }
    if (cell_.condition == Condition::kFlap) {
        flap_ = [this] {
            set_up(std::span(racks_.paths).subspan(down_ % kPathCount, 1), true);
            ++down_;
            set_up(std::span(racks_.paths).subspan(down_ % kPathCount, 1), false);
            network_.at(network_.now() + period(), flap_);
        };
        network_.at(period(), flap_);
    }
}

uint64_t total(const std::vector<Host*>& hosts, transport::Counter counter) {
    uint64_t sum = 0;
    for (const Host* const host : hosts) sum += host->counters()[counter];
    return sum;
}

// Starts to count, or starts again.
void CellRun::begin_count() {
    account();
    counting_ = true;
    count_begin_ = network_.now();
    limit_bytes_ = 0;
    message_us_.clear();
    for (size_t i = 0; i < flows_.size(); ++i) {
        tracks_[i].fair_bytes = 0;
        tracks_[i].packets = 0;
        tracks_[i].first_psn = flows_[i].receiver().expected_psn();
    }
    sent_before_ = total(hosts_, transport::Counter::kPsnsSent);
    repeated_before_ = total(hosts_, transport::Counter::kRetransmittedPackets);
    dropped_before_ = network_.total(&LinkStats::dropped_packets);
}

// Adds the packets since the last call. PSNs wrap at 2^24, which is more than a flow sends between two calls.
void CellRun::check_progress() {
    for (size_t i = 0; i < flows_.size(); ++i) {
        const uint64_t psn = flows_[i].receiver().expected_psn();
        tracks_[i].packets += (psn - tracks_[i].first_psn) & 0xFFFFFF;
        tracks_[i].first_psn = psn;
    }
}

Values CellRun::run() {
    // Without faults the shares over one switch do not change.
    if (!over_paths()) {
        std::array<double, 2> flows{};  // on each host's link; an all-to-all loads all links alike
        for (const Track& track : tracks_) ++flows[track.mp];
        if (cell_.pattern == Pattern::kAllToAll) flows = {flows[0] / kAllToAllHosts, flows[1] / kAllToAllHosts};
        shares_ = fair_link_shares(static_cast<double>(rate_), flows, {rc_.cap, mp_.cap});
    }
    for (Flow& flow : flows_) flow.start();
    account();
    network_.run_until(warm_up_);
    begin_count();
    network_.run_until(warm_up_ + counted_);
    account();
    check_progress();
    check_conservation(network_);
    return measure();
}

Values CellRun::measure() {
    Values values;
    double bytes = 0, sum = 0, squares = 0, least = 1e9;
    uint32_t compared = 0, errors = 0;
    for (size_t i = 0; i < flows_.size(); ++i) {
        const Track& track = tracks_[i];
        const MatrixShape& shape = track.mp ? mp_ : rc_;
        const double got = static_cast<double>(track.packets) * shape.payload;
        bytes += got;
        errors += flows_[i].status() != IBV_WC_SUCCESS;
        // Four turns must fit into the time, or else the shares depend on when it ends.
        if (track.fair_bytes < 4 * std::min<double>(shape.window_bytes, kTurnPackets * shape.payload)) continue;
        const double part = got / track.fair_bytes;
        sum += part;
        squares += part * part;
        least = std::min(least, part);
        ++compared;
    }
    const double limit = limit_bytes_;
    const double sent = static_cast<double>(total(hosts_, transport::Counter::kPsnsSent) - sent_before_);
    const double repeated =
        static_cast<double>(total(hosts_, transport::Counter::kRetransmittedPackets) - repeated_before_);
    const double time = seconds(network_.now() - count_begin_);
    values["rate"] = static_cast<double>(rate_) / 1e9;
    values["goodput"] = bytes * 8 / time / 1e9;
    values["by limit"] = bytes / limit;
    values["repeated"] = repeated / std::max(sent, 1.0);
    values["dropped"] = static_cast<double>(network_.total(&LinkStats::dropped_packets) - dropped_before_);
    values["errors"] = errors;
    values["cpu"] = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
    if (compared > 1) {
        values["jain"] = squares > 0 ? sum * sum / (compared * squares) : 0;
        values["least"] = least;
    }
    if (message_us_.size() >= 20) {
        const auto rank = static_cast<ptrdiff_t>(message_us_.size() * 99 / 100);
        std::nth_element(message_us_.begin(), message_us_.begin() + rank, message_us_.end());
        values["p99"] = message_us_[static_cast<size_t>(rank)];
        // The mean time of a message at the limit follows from Little's law.
        const double posted = static_cast<double>(flow_count()) * messages_in_flight(cell_) * cell_.message_bytes;
        values["p99 by limit"] = values["p99"] / (posted / limit * time * 1e6);
    }
    return values;
}

}  // namespace

Values run_cell(const MatrixCell& cell, uint64_t seed) {
    return CellRun(cell, seed).run();
}

}  // namespace rove::sim
