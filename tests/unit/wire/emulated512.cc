// SPDX-License-Identifier: Apache-2.0
// The kernels of crc32_avx512.cc and crc32_gfni.cc for machines without AVX-512. They are compiled with -msse4.2
// -mpclmul.
#include <bit>

#include "reference.h"
#include "wire/crc32_kernel.h"

namespace rove::wire {
namespace {

struct Emulated512 {
    struct Type {
        __m128i lane[4];
    };
    static constexpr size_t kBytes = 64;
    ROVE_INLINE Type each(auto make) { return {make(0), make(1), make(2), make(3)}; }
    ROVE_INLINE Type load(const uint8_t* at) {
        return each([&](int i) { return load128(at + 16 * i); });
    }
    ROVE_INLINE void store(uint8_t* at, Type x) {
        for (int i = 0; i < 4; ++i) store128(at + 16 * i, x.lane[i]);
    }
    ROVE_INLINE Type add(Type a, Type b) {
        return each([&](int i) { return _mm_xor_si128(a.lane[i], b.lane[i]); });
    }
    ROVE_INLINE Type broadcast(__m128i x) { return {x, x, x, x}; }
    ROVE_INLINE Type multiply_low(Type a, Type b) {
        return each([&](int i) { return _mm_clmulepi64_si128(a.lane[i], b.lane[i], 0x00); });
    }
    ROVE_INLINE Type multiply_high(Type a, Type b) {
        return each([&](int i) { return _mm_clmulepi64_si128(a.lane[i], b.lane[i], 0x11); });
    }
    ROVE_INLINE Type widen(__m128i x) { return {x, _mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()}; }
    ROVE_INLINE Type load_end(const uint8_t* end, size_t bytes) {
        uint8_t all[kBytes] = {};
        std::memcpy(all + kBytes - bytes, end - bytes, bytes);
        return load(all);
    }
    ROVE_INLINE Type either(Type a, Type b) {
        return each([&](int i) { return _mm_or_si128(a.lane[i], b.lane[i]); });
    }
    ROVE_INLINE __m128i narrow(Type x) {
        return _mm_xor_si128(_mm_xor_si128(move128<48>(x.lane[0]), move128<32>(x.lane[1])), step(x.lane[2], x.lane[3]));
    }
    ROVE_INLINE void reduce4(const Type (&x)[4], uint32_t (&crc)[4]) {
        for (int i = 0; i < 4; ++i) crc[i] = reduce(narrow(x[i]));
    }
};

struct EmulatedMapped512 : Emulated512 {
    ROVE_INLINE uint64_t repeat(uint64_t value) { return value; }
    // Sets bit i of each byte to the parity of its bits that are set in byte 7 - i of the map.
    static Type map_bytes(Type x, uint64_t map) {
        uint8_t bytes[kBytes];
        store(bytes, x);
        for (uint8_t& byte : bytes) {
            uint8_t mapped = 0;
            for (int i = 0; i < 8; ++i) mapped |= (std::popcount(map >> 8 * (7 - i) & byte) & 1) << i;
            byte = mapped;
        }
        return load(bytes);
    }
};

}  // namespace

const Crc32Kernel reference::kCrc32Emulated512 = make_kernel<Emulated512>();
const Crc32Kernel reference::kCrc32EmulatedGfni = make_kernel<EmulatedMapped512>();

}  // namespace rove::wire
