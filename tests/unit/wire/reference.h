// SPDX-License-Identifier: Apache-2.0
// The CRC and the ICRC by their definitions: slow, simple references for the fast kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wire/crc32_dispatch.h"

namespace rove::wire::reference {

// IEEE 802.3, one bit at a time.
inline uint32_t crc32(uint32_t crc, std::span<const uint8_t> data) {
    crc = ~crc;
    for (const uint8_t byte : data) {
        crc ^= byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
    }
    return ~crc;
}

// The ICRC of annex A17.3.3. `packet` starts at the IP header and ends before the ICRC.
inline uint32_t icrc(std::span<const uint8_t> packet) {
    const bool v4 = packet[0] >> 4 == 4;
    const size_t udp = v4 ? 20 : 40;
    std::vector<uint8_t> masked(8, 0xFF);
    masked.insert(masked.end(), packet.begin(), packet.end());
    uint8_t* const ip = masked.data() + 8;
    if (v4) {
        ip[1] = ip[8] = ip[10] = ip[11] = 0xFF;  // TOS, TTL, header checksum
    } else {
        ip[0] |= 0x0F;                         // traffic class, flow label
        ip[1] = ip[2] = ip[3] = ip[7] = 0xFF;  // flow label and hop limit
    }
    ip[udp + 6] = ip[udp + 7] = 0xFF;  // UDP checksum
    ip[udp + 8 + 4] = 0xFF;            // BTH: FECN, BECN and the reserved bits next to them
    return crc32(0, masked);
}

// The 512-bit kernels with each vector in four registers of 128 bits, to test everything except the instructions.
extern const Crc32Kernel kCrc32Emulated512, kCrc32EmulatedGfni;

}  // namespace rove::wire::reference
