// SPDX-License-Identifier: Apache-2.0
#include "fabric/link.h"

#include <algorithm>

#include "fabric/node.h"

namespace rove::fabric {

Link::Link(World& world, Node& from, Node& to, uint32_t to_port, const LinkConfig& config)
    : arrival_event_(Event::of<&Link::arrive, &Link::foresee_arrival>(*this)),
      sent_event_(Event::of<&Link::send_next, &Link::foresee_sending>(*this)),
      world_(world),
      from_(from),
      to_(to),
      to_port_(to_port),
      config_(config),
      random_(world.new_stream()) {}

void Link::enqueue(Packet& packet) {
    ++stats_.enqueued_packets;
    stats_.waits -= world_.events.now();
    if (packet.urgent) [[unlikely]] {
        enqueue_urgent(packet);
        return;
    }
    if (special_ && shortest_first_ != nullptr) [[unlikely]] {
        shortest_first_->push(packet);
    } else {
        queue_.push(packet);
    }
    const bool first = queued_packets_++ == 0;
    queued_bytes_ += packet.bytes;
    stats_.max_queued_bytes = std::max(stats_.max_queued_bytes, queued_bytes_);
    if (first) send_next();
}

void Link::enqueue_urgent(Packet& packet) {
    // While data waits, the transmitter calls back by itself, unless that data is paused.
    const bool first = urgent_.empty() && (queued_packets_ == 0 || is_paused());
    urgent_.push(packet);
    ++urgent_packets_;
    urgent_bytes_ += packet.bytes;
    special_ = true;
    if (first) send_next();
}

Packet& Link::pop_urgent() {
    Packet& packet = urgent_.pop();
    --urgent_packets_;
    urgent_bytes_ -= packet.bytes;
    special_ = !urgent_.empty() || shortest_first_ != nullptr;
    return packet;
}

// Transmits the next packet, or schedules another call for when the transmitter is free.
void Link::send_next() {
    if (special_) [[unlikely]] {
        send_special();
        return;
    }
    if (queued_packets_ == 0 || holds_back()) return;
    const Time now = world_.events.now();
    if (busy_until_ > now) {
        world_.events.schedule(sent_event_, busy_until_);
        return;
    }
    send(pop(), now);
}

// Does the same with packets of the upper class, or where the oldest packet need not be the next.
void Link::send_special() {
    const bool urgent = !urgent_.empty();
    if (!urgent && (queued_packets_ == 0 || holds_back())) return;
    const Time now = world_.events.now();
    if (busy_until_ > now) {
        world_.events.schedule(sent_event_, busy_until_);
    } else if (urgent) {
        send(pop_urgent(), now);
    } else {
        send(pop(), now);
    }
}

// Transmits `packet`, which has left its queue.
inline void Link::send(Packet& packet, Time now) {
    ++stats_.sent_packets;
    stats_.sent_bytes += packet.bytes;
    stats_.waits += now;
    busy_until_ = now + duration(packet.bytes);
    if (queued_packets_ != 0 || !urgent_.empty()) world_.events.schedule(sent_event_, busy_until_);
    if (up_) put_on_wire(packet, busy_until_ + config_.delay);
    from_.on_transmit(packet, *this);  // may enqueue more
    if (!up_) cut(packet);
}

void Link::put_on_wire(Packet& packet, Time arrival) {
    if (wire_.empty()) {
        world_.events.schedule(arrival_event_, arrival);
    } else {
        wire_.back().next_arrival = arrival;
    }
    wire_.push(packet);
}

void Link::arrive() {
    if (wire_.empty()) return;  // the packet was cut
    Packet& packet = wire_.pop();
    if (!wire_.empty()) world_.events.schedule(arrival_event_, packet.next_arrival);
    if (packet.kind != Packet::Kind::kFrame) {
        const bool pause = packet.kind == Packet::Kind::kPause;
        world_.trace_event(pause ? TraceEvent::kPaused : TraceEvent::kResumed, *this, packet);
        world_.packets.give_back(packet);
        reverse_->set_paused(pause, pause_time_);
        return;
    }
    if (config_.loss > 0 && loses_packet()) {
        ++stats_.lost_packets;
        world_.trace_event(TraceEvent::kLost, *this, packet);
        world_.packets.give_back(packet);
        return;
    }
    if (config_.corruption > 0 && random_.chance(config_.corruption)) {
        damage(packet, random_.next());
        ++stats_.damaged_packets;
        world_.trace_event(TraceEvent::kDamaged, *this, packet);
    }
    ++stats_.delivered_packets;
    world_.trace_event(TraceEvent::kDelivered, *this, packet);
    to_.receive(packet, to_port_);
}

// Draws whether the packet that arrives is lost. In Gilbert's model a link is in a good state, in which it loses
// nothing, or in a bad one, in which it loses everything. It leaves the bad state after `loss_burst` packets on
// average, and enters it so often that `loss` is the fraction of packets that find it there.
bool Link::loses_packet() {
    if (config_.loss_burst <= 1) [[likely]]
        return random_.chance(config_.loss);
    const double leaves = 1 / config_.loss_burst;
    const double enters = std::min(leaves * config_.loss / (1 - config_.loss), 1.0);
    in_burst_ = in_burst_ ? !random_.chance(leaves) : random_.chance(enters);
    return in_burst_;
}

void Link::foresee_arrival(uint32_t ahead) {
    const Packet* const packet = wire_.first();
    if (ahead == Event::kForeseen - 1) {
        prefetch();
        __builtin_prefetch(packet);
    } else if (packet != nullptr) {
        to_.prefetch(*packet, ahead);
    }
}

void Link::foresee_sending(uint32_t ahead) {
    if (ahead != Event::kForeseen - 1) return;
    prefetch();
    __builtin_prefetch(queue_.first());
}

void Link::send_pfc(bool pause) {
    if (!up_) return;
    Packet& packet = world_.packets.take();
    packet.kind = pause ? Packet::Kind::kPause : Packet::Kind::kResume;
    packet.bytes = kMinFrameBytes;
    busy_until_ = std::max(busy_until_, world_.events.now()) + duration(packet.bytes);
    put_on_wire(packet, busy_until_ + config_.delay);
}

// Returns true if the lower class is paused. A pause with a time is tried again at its end.
inline bool Link::holds_back() {
    if (!paused_) [[likely]]
        return false;
    if (paused_until_ <= world_.events.now()) {
        end_pause(paused_until_);
        return false;
    }
    if (paused_until_ != kForever) world_.events.schedule(sent_event_, paused_until_);
    return true;
}

void Link::end_pause(Time at) {
    paused_ = false;
    stats_.ended_pauses_time += at - paused_since_;
}

void Link::set_paused(bool paused, Time lasts) {
    const Time now = world_.events.now();
    if (paused_ && paused_until_ <= now) end_pause(paused_until_);
    const bool was_paused = paused_;
    if (paused) {
        if (!was_paused) {
            ++stats_.pauses;
            paused_since_ = now;
        }
        paused_ = true;
        paused_until_ = lasts == kForever ? kForever : now + lasts;
        if (queued_packets_ != 0 && urgent_.empty()) holds_back();
    } else if (was_paused) {
        end_pause(now);
        send_next();
    }
}

Time Link::paused_time() const {
    if (!paused_) return stats_.ended_pauses_time;
    return stats_.ended_pauses_time + std::min(paused_until_, world_.events.now()) - paused_since_;
}

Time Link::waited() const {
    return stats_.waits + (queued_packets_ + urgent_packets_) * world_.events.now();
}

uint32_t Link::frames_on_wire() const {
    uint32_t count = 0;
    for (const Packet* packet = wire_.first(); packet != nullptr; packet = packet->next)
        count += packet->kind == Packet::Kind::kFrame;
    return count;
}

uint32_t Link::packets() const {
    uint32_t count = queued_packets_ + urgent_packets_;
    for (const Packet* packet = wire_.first(); packet != nullptr; packet = packet->next) ++count;
    return count;
}

void Link::drain() {
    stats_.waits += (queued_packets_ + urgent_packets_) * world_.events.now();
    stats_.drained_packets += queued_packets_ + urgent_packets_;
    // Removes only the packets that are queued now: a host answers a departure with its next packet.
    for (uint32_t left = queued_packets_ + urgent_packets_; left != 0; --left) {
        const bool urgent = !urgent_.empty();
        Packet& packet = urgent ? pop_urgent() : pop();
        from_.on_transmit(packet, *this);
        world_.trace_event(TraceEvent::kCut, *this, packet);
        world_.packets.give_back(packet);
    }
}

Packet* Link::evict(uint32_t remaining) {
    Packet* const packet = shortest_first_->pop_longest(remaining);
    if (packet == nullptr) return nullptr;
    --queued_packets_;
    queued_bytes_ -= packet->bytes;
    stats_.waits += world_.events.now();
    ++stats_.evicted_packets;
    return packet;
}

void Link::cut(Packet& packet) {
    if (packet.kind == Packet::Kind::kFrame) {
        ++stats_.cut_packets;
        world_.trace_event(TraceEvent::kCut, *this, packet);
    }
    world_.packets.give_back(packet);
}

void Link::set_up(bool up) {
    if (up == up_) return;
    up_ = up;
    if (up) return;
    while (!wire_.empty()) cut(wire_.pop());
    // With one direction dead, the frame that would end a pause may never arrive. A port without a partner forgets the
    // pause.
    set_paused(false);
    reverse_->set_paused(false);
}

}  // namespace rove::fabric
