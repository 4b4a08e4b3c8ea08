// SPDX-License-Identifier: Apache-2.0
// The field offsets of Ethernet, 802.1Q, IPv4, IPv6 and UDP, in bytes from the start of the header, and the Internet
// checksum. Internal to lib/wire.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/byte_order.h"

namespace rove::wire {

inline constexpr size_t kEthernetBytes = 14, kVlanTagBytes = 4, kIpv4Bytes = 20, kIpv6Bytes = 40, kUdpBytes = 8;
inline constexpr size_t kBthBytes = 12;
inline constexpr uint16_t kEtherTypeIpv4 = 0x0800, kEtherTypeIpv6 = 0x86DD, kEtherTypeVlan = 0x8100;
inline constexpr uint8_t kProtocolUdp = 17;

namespace ethernet {
inline constexpr size_t kDst = 0, kSrc = 6, kType = 12, kTci = 14, kInnerType = 16;
}
namespace ipv4 {
inline constexpr size_t kVersionIhl = 0, kTos = 1, kLength = 2, kId = 4, kFragment = 6, kTtl = 8, kProtocol = 9,
                        kChecksum = 10, kSrc = 12, kDst = 16;
inline constexpr uint8_t kVersion4Ihl5 = 0x45;
inline constexpr uint16_t kDontFragment = 0x4000, kFragmentOffset = 0x1FFF;
}  // namespace ipv4
namespace ipv6 {
inline constexpr size_t kVersionClassLabel = 0, kLength = 4, kNextHeader = 6, kHopLimit = 7, kSrc = 8, kDst = 24;
}
namespace udp {
inline constexpr size_t kSrcPort = 0, kDstPort = 2, kLength = 4, kChecksum = 6;
}

// Folds a sum to 16 bits (RFC 1071). Sums are over 16-bit words in the machine's byte order, since a sum of swapped
// words is the swapped sum.
constexpr uint16_t fold_checksum(uint64_t sum) {
    sum = (sum & 0xFFFFFFFF) + (sum >> 32);
    sum = (sum & 0xFFFF) + (sum >> 16 & 0xFFFF) + (sum >> 32);
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    return static_cast<uint16_t>(sum);
}

// Returns the sum over the 20 bytes of an IPv4 header, not folded.
inline uint64_t sum_ipv4_header(const uint8_t* l3) {
    const uint64_t a = load<uint64_t>(l3), b = load<uint64_t>(l3 + 8);
    return (a & 0xFFFFFFFF) + (a >> 32) + (b & 0xFFFFFFFF) + (b >> 32) + load<uint32_t>(l3 + 16);
}
// Returns true if the sum folds to 0xFFFF. Folding is equivalent to the remainder modulo 0xFFFF, and a header is not
// all zeros.
inline bool ipv4_checksum_ok(const uint8_t* l3) {
    return sum_ipv4_header(l3) % 0xFFFF == 0;
}

}  // namespace rove::wire
