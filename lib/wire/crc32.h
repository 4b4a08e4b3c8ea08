// SPDX-License-Identifier: Apache-2.0
// CRC-32 of Ethernet (IEEE 802.3, reflected: polynomial 0xEDB88320), the checksum under the ICRC.
// `crc` is 0, or what an earlier call gave for the bytes before; as zlib's crc32().
#pragma once

#include "wire/crc32_dispatch.h"

namespace rove::wire {

inline uint32_t crc32(uint32_t crc, const void* data, size_t bytes) {
    return crc32_kernel.crc32(crc, data, bytes);
}

// memcpy and crc32 of the source in one pass over it. The ranges do not overlap.
inline uint32_t crc32_copy(uint32_t crc, void* dst, const void* src, size_t bytes) {
    return crc32_kernel.crc32_copy(crc, dst, src, bytes);
}

}  // namespace rove::wire
