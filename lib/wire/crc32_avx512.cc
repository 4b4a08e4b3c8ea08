// SPDX-License-Identifier: Apache-2.0
// CRC-32 and ICRC with 512-bit VPCLMULQDQ. Compiled with -mavx512f and kin, -mpclmul -mvpclmulqdq.
#include "wire/crc32_kernel.h"

namespace rove::wire {
namespace {

struct Vector512 {
    using Type = __m512i;
    static constexpr size_t kBytes = 64;
    ROVE_INLINE Type load(const uint8_t* at) { return _mm512_loadu_si512(at); }
    ROVE_INLINE void store(uint8_t* at, Type x) { _mm512_storeu_si512(at, x); }
    ROVE_INLINE Type add(Type a, Type b) { return _mm512_xor_si512(a, b); }
    ROVE_INLINE Type broadcast(__m128i x) { return _mm512_broadcast_i32x4(x); }
    ROVE_INLINE Type multiply_low(Type a, Type b) { return _mm512_clmulepi64_epi128(a, b, 0x00); }
    ROVE_INLINE Type multiply_high(Type a, Type b) { return _mm512_clmulepi64_epi128(a, b, 0x11); }
    ROVE_INLINE Type widen(__m128i x) { return _mm512_zextsi128_si512(x); }
    ROVE_INLINE __m128i narrow(Type x) {
        return merge_lanes(_mm512_castsi512_si128(x), _mm512_extracti32x4_epi32(x, 1),
                           _mm512_extracti32x4_epi32(x, 2), _mm512_extracti32x4_epi32(x, 3));
    }
};

}  // namespace

constinit const Crc32Kernel kCrc32Avx512 = make_kernel<Vector512>();

}  // namespace rove::wire
