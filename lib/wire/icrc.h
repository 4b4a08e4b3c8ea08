// SPDX-License-Identifier: Apache-2.0
// The invariant CRC of RoCEv2 (IBTA annex A17.3.3). Internal to lib/wire.
#pragma once

#include "wire/crc32_dispatch.h"

namespace rove::wire {

// The ICRC of a packet whose IP header (IPv4 without options, or IPv6) is at `l3`, over `bytes` bytes from there, a multiple of
// 4: IP, UDP and BTH at least, and what follows up to the ICRC. It stands on the wire in little-endian order.
// The 14 bytes before `l3` can be read. The result can be continued with crc32() and crc32_copy().
inline uint32_t icrc(const uint8_t* l3, size_t bytes) { return crc32_kernel.icrc(l3, bytes); }

// icrc() of a packet's headers, as above, continued by crc32_copy() of what follows them.
inline uint32_t icrc_copy(const uint8_t* l3, size_t header_bytes, void* dst, const void* src, size_t bytes) {
    return crc32_kernel.icrc_copy(l3, header_bytes, dst, src, bytes);
}

}  // namespace rove::wire
