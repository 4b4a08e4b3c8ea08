// SPDX-License-Identifier: Apache-2.0
#include "fabric/switch.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace rove::fabric {

Switch::Switch(World& world, uint32_t index, const SwitchConfig& config)
    : Node(world, index), config_(config), random_(world.new_stream()), salt_(random_.next()), choices_(salt_, 1) {
    if (config.pfc && config.dynamic_pfc) throw std::invalid_argument("fabric: a switch has one kind of PFC");
    if (config.pfc) {
        flow_control_ = FlowControl::kStatic;
        x_off_ = config.pfc->x_off;
    }
    if (config.dynamic_pfc) {
        flow_control_ = config.dynamic_pfc->pause_time == Link::kForever ? FlowControl::kDynamic : FlowControl::kTimed;
        x_off_ = 0;
        guaranteed_bytes_ = 2 * config.dynamic_pfc->frame_bytes;
        shared_limit_ = config.buffer_bytes;
    }
    const bool is_conga = config.balancer == Balancer::kConga;
    if (is_conga) conga_ = std::make_unique<Conga>(index, config.conga);
    if (config.balancer == Balancer::kConWeave) conweave_ = std::make_unique<ConWeave>(world, *this, config.conweave);
    if (is_conga || config.balancer == Balancer::kLetFlow) flowlets_.resize(kFlowlets);
}

void Switch::attach(Link& link) {
    Node::attach(link);
    Port& port = ports_.emplace_back(Port{&link, config_.red, config_.queue_bytes});
    if (config_.srpt) link.set_shortest_first(*config_.srpt);
    if (!config_.dynamic_pfc) return;
    link.set_pause_time(config_.dynamic_pfc->pause_time);
    // The headroom begins with the frame that exceeds the threshold. The pause frame waits for a frame in transmission,
    // and takes time itself; the neighbour finishes the frame that it has begun.
    const LinkConfig& cable = link.config();
    const Time round_trip = 2 * cable.delay + link.duration(kMinFrameBytes);
    port.limit = static_cast<uint64_t>(static_cast<__uint128_t>(round_trip) * cable.bits_per_s / 8 / kSecond) +
                 3 * config_.dynamic_pfc->frame_bytes;
    port.watched = true;
    const uint64_t own = port.limit + guaranteed_bytes_;
    if (own > shared_limit_) throw std::invalid_argument("fabric: a switch's buffer does not hold its ports' headroom");
    shared_limit_ -= own;
}

void Switch::clear_routes(size_t nodes) {
    groups_.assign(nodes, Group{0, 0});
    last_choices_.clear();
    if (config_.balancer == Balancer::kDrillByDestination) last_choices_.resize(nodes);
    hops_.clear();
    rests_.clear();
    states_.clear();
    known_groups_.clear();
    plain_ = config_.balancer == Balancer::kEcmp && config_.mark_on_arrival_bytes == UINT64_MAX && paths_ == nullptr;
}

void Switch::set_paths(uint32_t destination, const std::vector<uint32_t>& ports, const std::vector<uint32_t>& rest) {
    const auto count = static_cast<uint32_t>(ports.size());
    if (count == 0) {
        plain_ = false;
        return;
    }
    if (count == 1 && paths_ == nullptr) {
        groups_[destination] = {ports.front(), 1};
        return;
    }
    const auto [at, is_new] = known_groups_.try_emplace({ports, rest}, static_cast<uint32_t>(hops_.size()));
    groups_[destination] = {at->second, count};
    if (!last_choices_.empty()) last_choices_[destination] = static_cast<uint32_t>(choices_.below(count));
    if (!is_new) return;
    hops_.insert(hops_.end(), ports.begin(), ports.end());
    if (paths_ != nullptr) {
        rests_.insert(rests_.end(), rest.begin(), rest.end());
        rests_.resize(hops_.size());
    }
    states_.resize(hops_.size());
    states_[at->second] = static_cast<uint32_t>(choices_.below(count));
}

uint32_t Switch::next_hop(uint64_t flow_hash, uint32_t destination) const {
    const Group group = groups_[destination];
    if (group.count == 1 && paths_ == nullptr) return group.first;
    return hops_[group.first + ecmp(flow_hash, salt_, group.count)];
}

uint32_t Switch::next_hop(uint64_t flow_hash, uint32_t destination, uint32_t& route) const {
    if (paths_ == nullptr) return next_hop(flow_hash, destination);
    if (route != 0) {
        const uint32_t port = (*paths_)[route++];
        if (port != kEndOfPath) return port;
    }
    const Group group = groups_[destination];
    const uint32_t chosen = group.first + (group.count == 1 ? 0 : ecmp(flow_hash, salt_, group.count));
    route = rests_[chosen];
    return hops_[chosen];
}

void Switch::prefetch(const Packet& packet, uint32_t ahead) const {
    const Group& group = groups_[packet.destination];
    if (ahead == 3) {
        __builtin_prefetch(&group);
        return;
    }
    if (group.count == 0) return;                                    // PFC's frames have no destination
    if (!plain_ && (paths_ != nullptr || group.count != 1)) return;  // the balancer has not chosen yet
    const Port& port = ports_[next_hop(packet.flow_hash, packet.destination)];
    if (ahead == 2) {
        __builtin_prefetch(&port);
    } else {
        port.link->prefetch();
    }
}

// Chooses the egress port by whichever balancer there is. Returns false without a route.
bool Switch::select_egress(Packet& packet) {
    if (packet.route != 0) {
        packet.egress = (*paths_)[packet.route++];
        if (packet.egress != kEndOfPath) return true;
        packet.route = 0;
    }
    const Group group = groups_[packet.destination];
    if (group.count == 0) return false;
    if (group.count == 1 && paths_ == nullptr) {
        packet.egress = group.first;
        return true;
    }
    const uint32_t chosen = group.first + (group.count == 1 ? 0 : choose(packet, group));
    packet.egress = hops_[chosen];
    if (paths_ != nullptr) packet.route = rests_[chosen];
    return true;
}

bool Switch::find_conga_way(Packet& packet) {
    const Time now = world_.events.now();
    conga_->take(packet, now);
    if (!select_egress(packet)) return false;
    conga_->give(packet, now);
    return true;
}

uint32_t Switch::choose(const Packet& packet, const Group& group) {
    if (config_.balancer == Balancer::kSourcePort) return packet.frame.flow.udp_src % group.count;
    switch (packet.control ? Balancer::kEcmp : config_.balancer) {
        case Balancer::kSourcePort:
        case Balancer::kEcmp:
            return ecmp(packet.flow_hash, salt_, group.count);
        case Balancer::kSpray: {
            uint32_t& turn = states_[group.first];
            const uint32_t chosen = turn;
            turn = turn + 1 == group.count ? 0 : turn + 1;
            return chosen;
        }
        case Balancer::kRandom:
            return static_cast<uint32_t>(choices_.below(group.count));
        case Balancer::kPowerOfTwo: {
            const auto [one, other] = two_of(group.count, choices_);
            return queued(group, other) < queued(group, one) ? other : one;
        }
        case Balancer::kDrill:
            return drill(group, states_[group.first]);
        case Balancer::kDrillByDestination:
            return drill(group, last_choices_[packet.destination]);
        case Balancer::kLetFlow:
            return flowlet(packet, group.count);
        case Balancer::kConWeave: {
            uint32_t chosen = 0;
            if (conweave_->has_chosen(packet, group.count, chosen)) return chosen;
            return ecmp(packet.flow_hash, salt_, group.count);
        }
        case Balancer::kConga:  // the source leaf has chosen if the packet has a tag
            return packet.tagged ? ecmp(packet.flow_hash, salt_, group.count) : least_full(packet, group);
    }
    __builtin_unreachable();
}

uint32_t Switch::drill(const Group& group, uint32_t& last) {
    const auto [one, other] = two_of(group.count, choices_);
    if (queued(group, one) < queued(group, last)) last = one;
    if (queued(group, other) < queued(group, last)) last = other;
    return last;
}

uint32_t Switch::flowlet(const Packet& packet, uint32_t choices) {
    Flowlet& entry = flowlets_[mix(packet.flow_hash + salt_) % kFlowlets];
    const Time now = world_.events.now();
    if (!entry.known || now - entry.last > config_.flowlet_gap)
        entry.choice = static_cast<uint32_t>(choices_.next() >> 32);
    entry.known = true;
    entry.last = now;
    return static_cast<uint32_t>(uint64_t{entry.choice} * choices >> 32);
}

// CONGA: a flow moves only after a pause, and only to a less congested path.
uint32_t Switch::least_full(const Packet& packet, const Group& group) {
    Flowlet& entry = flowlets_[mix(packet.flow_hash + salt_) % kFlowlets];
    const Time now = world_.events.now();
    const bool has_way = entry.known && entry.choice < group.count;
    if (!has_way || now - entry.last > config_.flowlet_gap) {
        uint32_t least = UINT32_MAX, own = UINT32_MAX, ties = 0, drawn = 0;
        for (uint32_t choice = 0; choice < group.count; ++choice) {
            const uint32_t port = hops_[group.first + choice];
            const uint32_t level = conga_->congestion(packet, port, ports_[port].link->config().bits_per_s, now);
            if (has_way && choice == entry.choice) own = level;
            if (level < least) {
                least = level;
                ties = 0;
            }
            if (level == least && choices_.below(++ties) == 0) drawn = choice;
        }
        if (least < own) entry.choice = drawn;
    }
    entry.known = true;
    entry.last = now;
    return entry.choice;
}

void Switch::set_red(const Link& link, const Red& red) {
    for (Port& port : ports_) {
        if (port.link == &link) port.red = red;
    }
}

void Switch::set_queue_bytes(const Link& link, uint64_t queue_bytes) {
    for (Port& port : ports_) {
        if (port.link == &link) port.limit = queue_bytes;
    }
}

bool Switch::admits(uint32_t bytes, const Port& in, const Port& out) const {
    const uint64_t free = config_.buffer_bytes - used_bytes_;
    if (bytes > free) return false;
    if (flow_control_ == FlowControl::kStatic) return true;
    if (flow_control_ == FlowControl::kDynamic) {
        return shared_by(in) + bytes <= threshold() || in.headroom_bytes + bytes <= in.limit;
    }
    if (flow_control_ == FlowControl::kTimed && used_bytes_ > shared_limit_ && in.ingress_bytes > guaranteed_bytes_ &&
        in.headroom_bytes + bytes > in.limit)
        return false;
    const uint64_t length = out.link->queued_bytes() + bytes;
    return (length <= out.limit || flow_control_ == FlowControl::kTimed) &&
           static_cast<double>(length) <= config_.alpha * static_cast<double>(free);
}

inline void Switch::mark(Packet& packet, Link& link) {
    if (!is_ect(packet)) return;
    ++link.stats().marked_packets;
    mark_ce(packet);
    world_.trace_event(TraceEvent::kMarked, link, packet);
}

void Switch::receive(Packet& packet, uint32_t port) {
    if (plain_) [[likely]] {
        packet.egress = next_hop(packet.flow_hash, packet.destination);
        pass(packet, port);
    } else if (conweave_ != nullptr) {
        conweave_->receive(packet, port);
    } else {
        forward(packet, port);
    }
}

void Switch::forward(Packet& packet, uint32_t port) {
    if (!(conga_ == nullptr ? select_egress(packet) : find_conga_way(packet))) {
        ++unrouted_packets_;
        world_.trace_event(TraceEvent::kDropped, *ports_[port].link, packet);
        world_.packets.give_back(packet);
        return;
    }
    pass(packet, port);
}

// Forwards the packet by packet.egress.
inline void Switch::pass(Packet& packet, uint32_t port) {
    Link& link = *ports_[packet.egress].link;
    if (!plain_ && link.queued_bytes() >= config_.mark_on_arrival_bytes) [[unlikely]]
        mark(packet, link);
    packet.ingress = port;
    Port& in = ports_[port];
    if (packet.urgent) [[unlikely]] {
        link.enqueue(packet);
    } else if (admits(packet.bytes, in, ports_[packet.egress])) [[likely]] {
        store(packet, in, link);
    } else {
        overflow(packet, in, link);
    }
}

inline void Switch::store(Packet& packet, Port& in, Link& link) {
    used_bytes_ += packet.bytes;
    max_used_bytes_ = std::max(max_used_bytes_, used_bytes_);
    in.ingress_bytes += packet.bytes;
    if (in.ingress_bytes > x_off_) [[unlikely]]
        check_pause(in, packet.bytes);
    link.enqueue(packet);
}

// Handles a packet for which the queue in front of `link` has no room.
void Switch::overflow(Packet& packet, Port& in, Link& link) {
    if (config_.trim && !packet.control && link.urgent_bytes() < config_.trim->queue_bytes) {
        packet.bytes = std::min(packet.bytes, config_.trim->header_bytes);
        if (!packet.content.empty()) packet.content.resize(packet.bytes - kFcsBytes);
        packet.trimmed = packet.urgent = true;
        ++link.stats().trimmed_packets;
        world_.trace_event(TraceEvent::kTrimmed, link, packet);
        link.enqueue(packet);
        return;
    }
    if (config_.srpt && evict_for(packet, in, link)) return store(packet, in, link);
    if (packet.deflections < config_.max_deflections && deflect(packet, in)) return;
    drop(packet, link);
}

// Sends the packet to another switch, drawn among those that have room. Hosts do not forward.
bool Switch::deflect(Packet& packet, Port& in) {
    uint32_t candidates = 0, chosen = 0;
    for (uint32_t port = 0; port < ports_.size(); ++port) {
        Link& link = *ports_[port].link;
        if (port == packet.egress || link.to().is_destination() || !link.up()) continue;
        if (admits(packet.bytes, in, ports_[port]) && choices_.below(++candidates) == 0) chosen = port;
    }
    if (candidates == 0) return false;
    packet.egress = chosen;
    packet.route = 0;
    ++packet.deflections;
    ++deflected_packets_;
    store(packet, in, *ports_[chosen].link);
    return true;
}

// Drops packets with more bytes left than `packet` until there is room. Returns false if that does not suffice.
bool Switch::evict_for(const Packet& packet, const Port& in, Link& link) {
    while (!admits(packet.bytes, in, ports_[packet.egress])) {
        Packet* const longest = link.evict(packet.remaining);
        if (longest == nullptr) return false;
        release(*longest);
        world_.trace_event(TraceEvent::kDropped, link, *longest);
        world_.packets.give_back(*longest);
    }
    return true;
}

void Switch::drop(Packet& packet, Link& link) {
    ++link.stats().dropped_packets;
    world_.trace_event(TraceEvent::kDropped, link, packet);
    world_.packets.give_back(packet);
}

uint64_t Switch::mean_queue(uint32_t port, uint64_t queued_bytes) {
    if (means_.size() <= port) means_.resize(ports_.size());
    means_[port] += std::ldexp(static_cast<double>(queued_bytes) - means_[port], -static_cast<int>(config_.red_weight));
    return static_cast<uint64_t>(means_[port]);
}

void Switch::on_transmit(Packet& packet, Link& link) {
    if (conga_ != nullptr) [[unlikely]]
        conga_->on_transmit(packet, link.config().bits_per_s, world_.events.now());
    if (packet.urgent) [[unlikely]]
        return;
    uint64_t queued = link.queued_bytes();
    if (config_.red_weight != 0) [[unlikely]]
        queued = mean_queue(packet.egress, queued);
    if (ports_[packet.egress].red.marks(queued, random_)) mark(packet, link);
    release(packet);
}

// Accounts for a packet that leaves the buffer.
inline void Switch::release(const Packet& packet) {
    used_bytes_ -= packet.bytes;
    Port& in = ports_[packet.ingress];
    in.ingress_bytes -= packet.bytes;
    if (in.watched) [[unlikely]]
        resume(in, packet.bytes);
}

// Returns the shared bytes that a port may have before it is paused.
uint64_t Switch::threshold() const {
    const uint64_t free = shared_limit_ - std::min(shared_limit_, shared_bytes_);
    return static_cast<uint64_t>(config_.dynamic_pfc->alpha * static_cast<double>(free));
}

// Returns true if the port should not send, for pauses that end by themselves.
bool Switch::is_over(const Port& in) const {
    const uint64_t free = shared_limit_ - std::min(shared_limit_, used_bytes_);
    return in.headroom_bytes != 0 ||
           static_cast<double>(shared_by(in)) > config_.dynamic_pfc->alpha * static_cast<double>(free);
}

uint64_t Switch::shared_by(const Port& in) const {
    return in.ingress_bytes - std::min(in.ingress_bytes, guaranteed_bytes_);
}

// Accounts for `bytes` more in the buffer, from a port that has more than x_off_.
void Switch::check_pause(Port& in, uint32_t bytes) {
    if (flow_control_ == FlowControl::kStatic) {
        if (!in.pausing) pause(in, true);
        return;
    }
    if (flow_control_ == FlowControl::kTimed) {
        if (used_bytes_ > shared_limit_) in.headroom_bytes += bytes;
        if (is_over(in)) pause(in, true);
        return;
    }
    const uint64_t shared = shared_by(in);
    in.ingress_bytes -= bytes;  // the value before
    if (shared > threshold()) {
        in.headroom_bytes += bytes;
    } else {
        shared_bytes_ += shared - shared_by(in);
        in.ingress_bytes += bytes;
    }
    if (!in.pausing && (in.headroom_bytes > 0 || shared_by(in) >= threshold())) pause(in, true);
}

// Accounts for `bytes` that have left, of a watched port.
void Switch::resume(Port& in, uint32_t bytes) {
    if (flow_control_ == FlowControl::kStatic) {
        if (in.ingress_bytes <= config_.pfc->x_on) pause(in, false);
        return;
    }
    if (flow_control_ == FlowControl::kTimed) {
        in.headroom_bytes -= std::min<uint64_t>(in.headroom_bytes, bytes);
        if (!in.pausing || is_over(in)) return;
        if (world_.events.now() < in.pausing_until) return pause(in, false);
        in.pausing = false;
        return;
    }
    in.ingress_bytes += bytes;  // the value before
    shared_bytes_ -= shared_by(in);
    const uint64_t from_headroom = std::min<uint64_t>(in.headroom_bytes, bytes);
    in.headroom_bytes -= from_headroom;
    in.ingress_bytes -= bytes - from_headroom;
    shared_bytes_ += shared_by(in);
    if (in.pausing && in.headroom_bytes == 0 && shared_by(in) <= threshold()) pause(in, false);
}

void Switch::pause(Port& in, bool pausing) {
    in.pausing = pausing;
    in.watched = pausing || flow_control_ != FlowControl::kStatic;
    if (flow_control_ == FlowControl::kTimed) in.pausing_until = world_.events.now() + config_.dynamic_pfc->pause_time;
    in.link->send_pfc(pausing);
}

}  // namespace rove::fabric
