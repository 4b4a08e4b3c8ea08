// SPDX-License-Identifier: Apache-2.0
// Constants and helpers shared by ARP, ICMP, ND, IGMP and MLD: protocol numbers, checksums (RFC 1071) and access to
// addresses in frames. Units: bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "wire/byte_order.h"
#include "wire/frame.h"

namespace rove::datapath::link {

using wire::load_be16;
using wire::store_be16;

inline constexpr uint16_t kEtherTypeArp = 0x0806, kEtherTypeIpv4 = 0x0800, kEtherTypeIpv6 = 0x86DD,
                          kEtherTypeVlan = 0x8100;
inline constexpr size_t kEthernetBytes = 14, kVlanTagBytes = 4, kIpv4Bytes = 20, kIpv6Bytes = 40;
inline constexpr uint8_t kProtocolIcmp = 1, kProtocolIgmp = 2, kProtocolIcmpv6 = 58, kHopByHop = 0;

inline uint32_t sum_words(const uint8_t* bytes, size_t count, uint32_t sum = 0) {
    for (size_t i = 0; i + 1 < count; i += 2) sum += load_be16(bytes + i);
    if (count % 2 != 0) sum += static_cast<uint32_t>(bytes[count - 1]) << 8;
    return sum;
}

// Folds a sum to 16 bits. The sum over a message with a correct checksum gives 0xFFFF.
inline uint16_t fold(uint32_t sum) {
    while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
    return static_cast<uint16_t>(sum);
}

// Returns the folded sum of the ICMPv6 message at `message` in the packet `ip`, including the pseudo header.
inline uint16_t sum_icmpv6(const uint8_t* ip, const uint8_t* message, size_t message_bytes) {
    const uint32_t pseudo = sum_words(ip + 8, 32, static_cast<uint32_t>(message_bytes) + kProtocolIcmpv6);
    return fold(sum_words(message, message_bytes, pseudo));
}

inline wire::Gid mapped(const uint8_t* ipv4) {
    wire::Gid gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    std::copy_n(ipv4, 4, gid.begin() + 12);
    return gid;
}

inline wire::Gid gid_at(const uint8_t* ipv6) {
    wire::Gid gid;
    std::copy_n(ipv6, 16, gid.begin());
    return gid;
}

inline wire::MacAddress mac_at(const uint8_t* bytes) {
    wire::MacAddress mac;
    std::copy_n(bytes, 6, mac.begin());
    return mac;
}

// Writes the Ethernet header, and the VLAN tag if there is a VID. Returns the position of the next header.
inline uint8_t* put_ethernet(uint8_t* out, const wire::MacAddress& dst, const wire::MacAddress& src,
                             const std::optional<uint16_t>& vlan, uint16_t ether_type) {
    std::copy_n(dst.data(), 6, out);
    std::copy_n(src.data(), 6, out + 6);
    out += 12;
    if (vlan) {
        store_be16(out, kEtherTypeVlan);
        store_be16(out + 2, *vlan);
        out += kVlanTagBytes;
    }
    store_be16(out, ether_type);
    return out + 2;
}

}  // namespace rove::datapath::link
