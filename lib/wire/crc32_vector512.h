// SPDX-License-Identifier: Apache-2.0
// The vector of the two kernels with AVX-512. Internal to lib/wire. It is in an unnamed namespace for the reason given
// in crc32_kernel.h.
#pragma once

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
    ROVE_INLINE Type load_end(const uint8_t* end, size_t bytes) {
        return _mm512_maskz_loadu_epi8(~__mmask64{0} << (kBytes - bytes), end - kBytes);
    }
    ROVE_INLINE Type either(Type a, Type b) { return _mm512_or_si512(a, b); }
    // Moves each lane but the last by its own distance, in one multiplication. The sum of the lanes is the state.
    ROVE_INLINE Type align(Type x) {
        constexpr auto by = [](size_t bytes) { return crc32_constants::shift(bytes); };
        const __m512i k =
            _mm512_set_epi64(0, 0, by(16).high, by(16).low, by(32).high, by(32).low, by(48).high, by(48).low);
        return _mm512_mask_mov_epi64(add(multiply_low(x, k), multiply_high(x, k)), 0xC0, x);
    }
    ROVE_INLINE __m128i narrow(Type x) {
        const __m512i lanes = align(x);
        const __m256i pair = _mm256_xor_si256(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
        return _mm_xor_si128(_mm256_castsi256_si128(pair), _mm256_extracti128_si256(pair, 1));
    }
    ROVE_INLINE void reduce4(const Type (&x)[4], uint32_t (&crc)[4]) {
        // Adds pairs of lanes and packs two vectors into one. Applied twice, it reduces four vectors to one with four
        // states.
        const auto halve = [](Type a, Type b) {
            return add(_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xDD));
        };
        const Type states = halve(halve(align(x[0]), align(x[1])), halve(align(x[2]), align(x[3])));
        const Type to96 = _mm512_set1_epi64(static_cast<int64_t>(crc32_constants::kTo96));
        const Type barrett = _mm512_set1_epi64(static_cast<int64_t>(crc32_constants::kBarrett));
        const Type g = _mm512_set1_epi64(static_cast<int64_t>(crc32_constants::kReflectedG));
        const Type x96 = add(multiply_low(states, to96), _mm512_bsrli_epi128(states, 8));
        const Type rest = add(x96, multiply_low(multiply_low(x96, barrett), g));
        const __m128i sums = _mm512_castsi512_si128(_mm512_maskz_compress_epi32(0x4444, rest));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(crc), sums);
    }
};

}  // namespace
}  // namespace rove::wire
