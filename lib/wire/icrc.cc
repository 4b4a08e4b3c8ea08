// SPDX-License-Identifier: Apache-2.0
// The headers with their variant fields as ones, then the rest as it is.
//
// Annex A17.3.3 puts 8 bytes of ones before the IP header. The first four of them turn the CRC's start value into 0, so
// what is left is CRC-32 from register 0 over 4 bytes of ones and the headers.
#include "wire/icrc.h"

#include <cstring>

#include "wire/crc32.h"
#include "wire/network_headers.h"

namespace rove::wire {
namespace {

constexpr uint32_t kFromZero = 0xFFFFFFFF;  // crc32() complements its argument: register 0

}  // namespace

uint32_t icrc(const uint8_t* l3, size_t bytes) {
    uint8_t masked[4 + kIpv6Bytes + kUdpBytes + kBthBytes];
    const bool v4 = l3[0] >> 4 == 4;
    const size_t ip = v4 ? kIpv4Bytes : kIpv6Bytes, covered = ip + kUdpBytes + kBthBytes;
    std::memset(masked, 0xFF, 4);
    std::memcpy(masked + 4, l3, covered);
    uint8_t* const header = masked + 4;
    if (v4) {
        header[ipv4::kTos] = header[ipv4::kTtl] = 0xFF;
        store<uint16_t>(header + ipv4::kChecksum, 0xFFFF);
    } else {
        header[0] |= 0x0F;
        header[1] = header[2] = header[3] = header[ipv6::kHopLimit] = 0xFF;
    }
    store<uint16_t>(header + ip + udp::kChecksum, 0xFFFF);
    header[ip + kUdpBytes + 4] = 0xFF;
    return crc32(crc32(kFromZero, masked, 4 + covered), l3 + covered, bytes - covered);
}

}  // namespace rove::wire
