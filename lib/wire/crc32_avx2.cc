// SPDX-License-Identifier: Apache-2.0
// CRC-32 and ICRC with 256-bit VPCLMULQDQ. Compiled with -mavx2 -mpclmul -mvpclmulqdq.
#include "wire/crc32_kernel.h"

namespace rove::wire {
namespace {

struct Vector256 {
    using Type = __m256i;
    static constexpr size_t kBytes = 32;
    ROVE_INLINE Type load(const uint8_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
    ROVE_INLINE void store(uint8_t* at, Type x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), x); }
    ROVE_INLINE Type add(Type a, Type b) { return _mm256_xor_si256(a, b); }
    ROVE_INLINE Type broadcast(__m128i x) { return _mm256_broadcastsi128_si256(x); }
    ROVE_INLINE Type multiply_low(Type a, Type b) { return _mm256_clmulepi64_epi128(a, b, 0x00); }
    ROVE_INLINE Type multiply_high(Type a, Type b) { return _mm256_clmulepi64_epi128(a, b, 0x11); }
    ROVE_INLINE Type widen(__m128i x) { return _mm256_zextsi128_si256(x); }
    ROVE_INLINE __m128i narrow(Type x) { return step(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)); }
};

}  // namespace

constinit const Crc32Kernel kCrc32Avx2 = make_kernel<Vector256>();

}  // namespace rove::wire
