// SPDX-License-Identifier: Apache-2.0
// CRC-32 and ICRC with 128-bit PCLMULQDQ. Compiled with -msse4.2 -mpclmul.
#include "wire/crc32_kernel.h"

namespace rove::wire {
namespace {

struct Vector128 {
    using Type = __m128i;
    static constexpr size_t kBytes = 16;
    ROVE_INLINE Type load(const uint8_t* at) { return load128(at); }
    ROVE_INLINE void store(uint8_t* at, Type x) { store128(at, x); }
    ROVE_INLINE Type add(Type a, Type b) { return _mm_xor_si128(a, b); }
    ROVE_INLINE Type broadcast(__m128i x) { return x; }
    ROVE_INLINE Type multiply_low(Type a, Type b) { return _mm_clmulepi64_si128(a, b, 0x00); }
    ROVE_INLINE Type multiply_high(Type a, Type b) { return _mm_clmulepi64_si128(a, b, 0x11); }
    ROVE_INLINE Type widen(__m128i x) { return x; }
    ROVE_INLINE __m128i narrow(Type x) { return x; }
};

}  // namespace

constinit const Crc32Kernel kCrc32Sse = make_kernel<Vector128>();

}  // namespace rove::wire
