// SPDX-License-Identifier: Apache-2.0
// CRC-32 of Ethernet (IEEE 802.3, reflected: polynomial 0xEDB88320), on which the ICRC is based. `crc` is 0 or the
// result of an earlier call for the preceding bytes, as in zlib's crc32().
#pragma once

#include "wire/crc32_dispatch.h"

namespace rove::wire {

inline uint32_t crc32(uint32_t crc, const void* data, size_t bytes) {
    return crc32_kernel.crc32(crc, data, bytes);
}

// Does memcpy and the crc32 of the source in one pass. The ranges must not overlap.
inline uint32_t crc32_copy(uint32_t crc, void* dst, const void* src, size_t bytes) {
    return crc32_kernel.crc32_copy(crc, dst, src, bytes);
}

}  // namespace rove::wire
