// SPDX-License-Identifier: Apache-2.0
// CRC-32 by ISA-L, which has its own dispatch. The ICRC uses it on a masked copy of the headers.
#include <isa-l/crc.h>

#include <cstring>

#include "wire/crc32_dispatch.h"
#include "wire/network_headers.h"

namespace rove::wire {
namespace {

uint32_t crc32_isal(uint32_t crc, const void* data, size_t bytes) {
    return crc32_gzip_refl(crc, static_cast<const unsigned char*>(data), bytes);
}

uint32_t crc32_copy_isal(uint32_t crc, void* dst, const void* src, size_t bytes) {
    if (bytes) std::memcpy(dst, src, bytes);  // null pointers are allowed if `bytes` is 0
    return crc32_isal(crc, dst, bytes);
}

// The start value for the ICRC. The first four of the 8 bytes of ones before the IP header turn the register's start
// value into 0.
constexpr uint32_t kFromZero = 0xFFFFFFFF;  // crc32() complements its argument: register 0

uint32_t icrc_isal(const uint8_t* l3, size_t bytes) {
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
    return crc32_isal(crc32_isal(kFromZero, masked, 4 + covered), l3 + covered, bytes - covered);
}

uint32_t icrc_copy_isal(const uint8_t* l3, size_t header_bytes, void* dst, const void* src, size_t bytes) {
    return crc32_copy_isal(icrc_isal(l3, header_bytes), dst, src, bytes);
}

void icrc_four_isal(const uint8_t* const (&l3)[4], size_t bytes, uint32_t (&sums)[4]) {
    for (int i = 0; i < 4; ++i) sums[i] = icrc_isal(l3[i], bytes);
}

}  // namespace

constinit const Crc32Kernel kCrc32Portable = {.crc32 = crc32_isal,
                                              .crc32_copy = crc32_copy_isal,
                                              .icrc = icrc_isal,
                                              .icrc_four = icrc_four_isal,
                                              .icrc_copy = icrc_copy_isal};

}  // namespace rove::wire
