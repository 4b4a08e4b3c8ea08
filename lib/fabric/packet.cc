// SPDX-License-Identifier: Apache-2.0
#include "fabric/packet.h"

#include "fabric/random.h"
#include "wire/byte_order.h"
#include "wire/in_network.h"

namespace rove::fabric {

void mark_ce(Packet& packet) {
    packet.frame.flow.traffic_class |= wire::kEcnCe;
    if (!packet.content.empty()) wire::mark_ce(packet.content.data() + wire::kEthernetBytes);
}

void damage(Packet& packet, uint64_t random) {
    packet.damaged = true;
    if (packet.content.empty()) return;
    const uint64_t bits = (packet.content.size() - wire::kEthernetBytes) * 8;
    const uint64_t bit = random % bits;
    packet.content[wire::kEthernetBytes + bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
}

void ShortestFirstQueue::push(Packet& packet) {
    ++arrivals_;
    by_remaining_.insert({packet.remaining, arrivals_, &packet});
    if (order_ == ShortestFirst::kOfFlow) by_flow_.insert({packet.flow_hash, arrivals_, &packet});
}

Packet& ShortestFirstQueue::pop() {
    auto least = by_remaining_.begin();
    if (order_ == ShortestFirst::kOfFlow) {
        const auto first = by_flow_.lower_bound({least->packet->flow_hash, 0, nullptr});
        least = by_remaining_.find({first->packet->remaining, first->arrival, nullptr});
        by_flow_.erase(first);
    }
    Packet& packet = *least->packet;
    by_remaining_.erase(least);
    return packet;
}

Packet* ShortestFirstQueue::pop_longest(uint32_t remaining) {
    if (by_remaining_.empty() || by_remaining_.rbegin()->key <= remaining) return nullptr;
    const auto last = std::prev(by_remaining_.end());
    Packet* const packet = last->packet;
    if (order_ == ShortestFirst::kOfFlow) by_flow_.erase({packet->flow_hash, last->arrival, nullptr});
    by_remaining_.erase(last);
    return packet;
}

uint64_t flow_hash(const wire::Flow& flow) {
    const uint64_t addresses =
        wire::load<uint64_t>(flow.src.data() + 8) ^ mix(wire::load<uint64_t>(flow.dst.data() + 8));
    return mix(mix(addresses) + flow.udp_src);
}

}  // namespace rove::fabric
