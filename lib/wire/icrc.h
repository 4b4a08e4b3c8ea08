// SPDX-License-Identifier: Apache-2.0
// The invariant CRC of RoCEv2 (IBTA annex A17.3.3). Internal to lib/wire.
#pragma once

#include "wire/crc32_dispatch.h"

namespace rove::wire {

// Returns the ICRC of a packet whose IP header (IPv4 without options, or IPv6) is at `l3`. It covers `bytes` bytes from
// there, a multiple of 4: at least IP, UDP and BTH, and everything up to the ICRC. On the wire it is in little-endian
// order. The 14 bytes before `l3` must be readable. crc32() and crc32_copy() can continue the result.
inline uint32_t icrc(const uint8_t* l3, size_t bytes) {
    return crc32_kernel.icrc(l3, bytes);
}

// Computes icrc() for `count` packets. `covered(i)` returns {l3, bytes} as above, and `take(i, sum)` receives each sum.
// Consecutive packets of one length and IP version are summed four at a time.
inline void icrc_each(size_t count, auto&& covered, auto&& take) {
    for (size_t i = 0; i < count;) {
        const auto [l3, bytes] = covered(i);
        if (count - i >= 4) {
            const uint8_t* four[4] = {l3};
            bool alike = true;
            for (size_t k = 1; k < 4; ++k) {
                const auto [next_l3, next_bytes] = covered(i + k);
                four[k] = next_l3;
                alike &= next_bytes == bytes && (*next_l3 ^ *l3) >> 4 == 0;
            }
            if (alike) {
                uint32_t sums[4];
                crc32_kernel.icrc_four(four, bytes, sums);
                for (size_t k = 0; k < 4; ++k) take(i + k, sums[k]);
                i += 4;
                continue;
            }
        }
        take(i++, icrc(l3, bytes));
    }
}

// Computes icrc() of a packet's headers, as above, and continues it with crc32_copy() of the bytes after them.
inline uint32_t icrc_copy(const uint8_t* l3, size_t header_bytes, void* dst, const void* src, size_t bytes) {
    return crc32_kernel.icrc_copy(l3, header_bytes, dst, src, bytes);
}

}  // namespace rove::wire
