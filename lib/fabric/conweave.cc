// SPDX-License-Identifier: Apache-2.0
#include "fabric/conweave.h"

#include <algorithm>

#include "fabric/switch.h"

namespace rove::fabric {

// A flow whose packets end at this leaf.
struct ConWeave::Destination {
    Destination(ConWeave& leaf, uint64_t key)
        : leaf(leaf), key(key), flush_event(Event::of<&Destination::expire>(*this)) {}

    // Returns true if packets of `other` were sent after the packets of `epoch`, which is in order.
    bool is_ahead(uint8_t other) const { return static_cast<int8_t>(other - epoch) > 0; }
    // Records the delay of the old path, from which the arrival of the tail is estimated.
    void note_delay(const ConWeaveTag& tag, Time now) {
        delay = now - tag.sent;
        if (!held.empty()) wait();
    }
    void hold(Packet& packet) {
        const bool first = held.empty();
        held.push(packet);
        ++leaf.held_;
        ++leaf.stats_.held_packets;
        if (!first) return;
        held_since = leaf.world_.events.now();
        tail_sent = packet.conweave.tail_sent;
        wait();
    }
    void wait() {
        const ConWeaveConfig& config = leaf.config_;
        flush_at = delay == 0 ? held_since + config.unknown_flush : tail_sent + delay + config.extra_flush;
        leaf.world_.events.schedule(flush_event, flush_at);
    }
    void expire() {
        if (held.empty()) return;  // the tail has arrived
        ++leaf.stats_.late_tails;
        const ConWeaveTag tag = held.first()->conweave;
        advance(tag.epoch, tag, held.first()->ingress);
    }
    // Ends the wait for all packets before `next`. `about` is the tag of a packet that came by `port`.
    void advance(uint8_t next, const ConWeaveTag& about, uint32_t port) {
        epoch = next;
        ConWeaveTag tag = about;
        tag.epoch = next;
        leaf.answer(ConWeaveTag::Kind::kClear, tag, key, port);
        while (!held.empty()) {
            Packet& packet = held.pop();
            --leaf.held_;
            leaf.self_.forward(packet, packet.ingress);
        }
    }

    ConWeave& leaf;
    const uint64_t key;
    uint8_t epoch = 0;  // the epoch in order: no earlier packet is in flight
    Time last = 0;      // time of the last packet
    Time delay = 0;     // delay of the last packet in order, or 0
    Time held_since = 0, tail_sent = 0, flush_at = 0;
    PacketList held;
    Event flush_event;
};

ConWeave::ConWeave(World& world, Switch& self, const ConWeaveConfig& config)
    : world_(world), self_(self), config_(config), random_(world.new_stream()) {}

ConWeave::~ConWeave() = default;

void ConWeave::set_leaves(const std::vector<uint32_t>& leaf_of) {
    leaf_of_ = &leaf_of;
    ways_.resize(leaf_of.size());
    fastest_.resize(leaf_of.size());
}

void ConWeave::receive(Packet& packet, uint32_t port) {
    const bool ends_here = (*leaf_of_)[packet.destination] == self_.index();
    if (packet.tagged && ends_here) {
        packet.tagged = false;
        if (packet.conweave.kind == ConWeaveTag::Kind::kData) {
            arrive(packet, port);
        } else {
            consume(packet);
        }
        return;
    }
    if (!packet.tagged && !ends_here && !packet.control && self_.links()[port]->to().is_destination())
        send(packet, port);
    self_.forward(packet, port);
}

bool ConWeave::has_chosen(const Packet& packet, uint32_t choices, uint32_t& chosen) const {
    const ConWeaveTag& tag = packet.conweave;
    if (!packet.tagged || tag.kind != ConWeaveTag::Kind::kData || (*leaf_of_)[tag.host] != self_.index()) return false;
    chosen = tag.way % choices;
    return true;
}

void ConWeave::send(Packet& packet, uint32_t port) {
    if (sources_.size() + destinations_.size() > many_) forget_idle();
    Source& flow = sources_[packet.flow_hash];
    const Time now = world_.events.now();
    const uint32_t leaf = (*leaf_of_)[packet.destination], choices = self_.choices(packet.destination);
    const bool idle = !flow.known || now - flow.last > config_.idle;
    if (choices == 0) return;
    if (idle) {
        flow = {.leaf = leaf, .epoch = static_cast<uint8_t>(flow.epoch + 1), .known = true};
        flow.way = draw_way(leaf, static_cast<uint16_t>(random_.below(choices)), choices);
    }
    flow.last = now;
    if (flow.waits && now - flow.tail_sent > config_.idle) flow.waits = false;  // the notice of its end was lost
    packet.tagged = true;
    packet.conweave = {.sent = now,
                       .tail_sent = flow.tail_sent,
                       .host = self_.links()[port]->to().index(),
                       .way = flow.way,
                       .epoch = flow.epoch,
                       .rerouted = flow.waits};
    if (flow.waits) return;
    if (!flow.asks) {
        packet.conweave.asks = flow.asks = true;
        flow.asked_at = now;
        return;
    }
    if (fastest_[leaf] == 0 || now - flow.asked_at <= fastest_[leaf] + config_.extra_reply) return;
    const uint16_t other = draw_way(leaf, flow.way, choices);
    if (other == flow.way) return;
    packet.conweave.tail = true;
    flow.way = other;
    ++flow.epoch;
    flow.asks = false;
    flow.waits = true;
    flow.tail_sent = now;
    ++stats_.reroutes;
}

uint16_t ConWeave::draw_way(uint32_t leaf, uint16_t now, uint32_t choices) {
    for (int tries = 0; tries < 2 && choices > 1; ++tries) {
        auto drawn = static_cast<uint16_t>(random_.below(choices - 1));
        if (drawn >= now) ++drawn;
        if (way(leaf, drawn).busy_until <= world_.events.now()) return drawn;
    }
    return now;
}

ConWeave::Way& ConWeave::way(uint32_t leaf, uint16_t number) {
    std::vector<Way>& ways = ways_[leaf];
    if (ways.size() <= number) ways.resize(number + 1u);
    return ways[number];
}

ConWeave::Destination& ConWeave::destination(const Packet& packet) {
    if (sources_.size() + destinations_.size() > many_) forget_idle();
    auto& entry = destinations_[packet.flow_hash];
    const Time now = world_.events.now();
    const bool is_new = entry == nullptr;
    if (is_new) entry = std::make_unique<Destination>(*this, packet.flow_hash);
    Destination& flow = *entry;
    if (is_new || (now - flow.last > config_.idle && flow.held.empty()))
        flow.epoch = static_cast<uint8_t>(packet.conweave.epoch - (packet.conweave.rerouted ? 1 : 0));
    flow.last = now;
    return flow;
}

void ConWeave::forget_idle() {
    const Time now = world_.events.now();
    std::erase_if(sources_, [&](const auto& entry) { return now - entry.second.last > config_.idle; });
    std::erase_if(destinations_, [&](const auto& entry) {
        const Destination& flow = *entry.second;  // its event must not be scheduled any more
        return now - flow.last > config_.idle && flow.held.empty() && now > flow.flush_at;
    });
    many_ = std::max(many_, 2 * (sources_.size() + destinations_.size()));
}

void ConWeave::arrive(Packet& packet, uint32_t port) {
    const ConWeaveTag tag = packet.conweave;
    const Time now = world_.events.now();
    packet.ingress = port;
    if (tag.asks) answer(ConWeaveTag::Kind::kReply, tag, packet.flow_hash, port);
    if ((packet.frame.flow.traffic_class & 3) == wire::kEcnCe) {
        Way& marked = way((*leaf_of_)[tag.host], tag.way);
        if (marked.told == 0 || now - marked.told > config_.way_busy / 2) {
            marked.told = now;
            answer(ConWeaveTag::Kind::kBusy, tag, packet.flow_hash, port);
        }
    }
    Destination& flow = destination(packet);
    if (flow.is_ahead(tag.epoch)) {
        if (tag.rerouted || !flow.held.empty()) return flow.hold(packet);
        flow.epoch = tag.epoch;  // it has been idle
    }
    if (tag.epoch == flow.epoch) flow.note_delay(tag, now);
    self_.forward(packet, port);
    if (tag.tail && tag.epoch == flow.epoch) flow.advance(static_cast<uint8_t>(tag.epoch + 1), tag, port);
}

void ConWeave::answer(ConWeaveTag::Kind kind, const ConWeaveTag& about, uint64_t flow_hash, uint32_t port) {
    Packet& packet = world_.packets.take();
    packet.begin(kMinFrameBytes, about.host, flow_hash);
    packet.frame.flow.traffic_class = wire::kEcnNotEct;
    packet.content.clear();
    packet.control = packet.urgent = packet.tagged = true;
    packet.conweave = {.host = about.host, .way = about.way, .epoch = about.epoch};
    packet.conweave.kind = kind;
    ++stats_.made_packets;
    self_.forward(packet, port);
}

void ConWeave::consume(Packet& packet) {
    const auto found = sources_.find(packet.flow_hash);
    const ConWeaveTag& tag = packet.conweave;
    const Time now = world_.events.now();
    if (found != sources_.end()) {
        Source& flow = found->second;
        if (tag.kind == ConWeaveTag::Kind::kBusy) {
            way(flow.leaf, tag.way).busy_until = now + config_.way_busy;
        } else if (tag.epoch != flow.epoch) {
            // The message is about a path that the flow has left.
        } else if (tag.kind == ConWeaveTag::Kind::kClear) {
            flow.waits = false;
        } else if (flow.asks) {
            flow.asks = false;
            Time& fastest = fastest_[flow.leaf];
            fastest = fastest == 0 ? now - flow.asked_at : std::min(fastest, now - flow.asked_at);
        }
    }
    ++stats_.consumed_packets;
    world_.packets.give_back(packet);
}

}  // namespace rove::fabric
