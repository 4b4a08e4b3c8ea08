// SPDX-License-Identifier: Apache-2.0
#include "fabric/packet.h"

#include "fabric/random.h"
#include "wire/byte_order.h"
#include "wire/transit.h"

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

Packet& PacketList::pop_shortest(ShortestFirst order) {
    const Packet* least = first_;
    for (const Packet* packet = first_->next; packet != nullptr; packet = packet->next) {
        if (packet->remaining < least->remaining) least = packet;
    }
    Packet* before = nullptr;
    Packet** at = &first_;
    while (order == ShortestFirst::kOfFlow ? (*at)->flow_hash != least->flow_hash : *at != least) {
        before = *at;
        at = &before->next;
    }
    Packet& packet = **at;
    *at = packet.next;
    if (last_ == &packet) last_ = before;
    return packet;
}

uint64_t flow_hash(const wire::Flow& flow) {
    const uint64_t addresses =
        wire::load<uint64_t>(flow.src.data() + 8) ^ mix(wire::load<uint64_t>(flow.dst.data() + 8));
    return mix(mix(addresses) + flow.udp_src);
}

}  // namespace rove::fabric
