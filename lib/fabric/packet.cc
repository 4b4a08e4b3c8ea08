// SPDX-License-Identifier: Apache-2.0
#include "fabric/packet.h"

#include "fabric/random.h"
#include "wire/byte_order.h"
#include "wire/network_headers.h"

namespace rove::fabric {

void mark_ce(Packet& packet) {
    packet.frame.flow.traffic_class |= wire::kEcnCe;
    if (packet.content.empty()) return;
    // The checksum is updated and not computed anew (RFC 1624, equation 3): damage that it would show stays visible.
    uint8_t* const l3 = packet.content.data() + wire::kEthernetBytes;
    const auto before = wire::load<uint16_t>(l3);
    l3[wire::ipv4::kTos] |= wire::kEcnCe;
    const auto complement = [](uint16_t word) { return static_cast<uint16_t>(~word); };
    const uint64_t sum = uint64_t{complement(wire::load<uint16_t>(l3 + wire::ipv4::kChecksum))} + complement(before) +
                         wire::load<uint16_t>(l3);
    wire::store(l3 + wire::ipv4::kChecksum, complement(wire::fold_checksum(sum)));
}

void damage(Packet& packet, uint64_t random) {
    packet.damaged = true;
    if (packet.content.empty()) return;
    const uint64_t bits = (packet.content.size() - wire::kEthernetBytes) * 8;
    const uint64_t bit = random % bits;
    packet.content[wire::kEthernetBytes + bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
}

uint64_t flow_hash(const wire::Flow& flow) {
    const uint64_t addresses =
        wire::load<uint64_t>(flow.src.data() + 8) ^ mix(wire::load<uint64_t>(flow.dst.data() + 8));
    return mix(mix(addresses) + flow.udp_src);
}

}  // namespace rove::fabric
