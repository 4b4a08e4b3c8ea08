// SPDX-License-Identifier: Apache-2.0
// CRC-32 and ICRC by folding with carry-less multiplication (Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ", Intel 2009), for any vector width. Internal to lib/wire.
//
// Each file that includes this header is compiled for one instruction set, so everything is in an unnamed namespace. A
// function shared between such files could be linked in a version that the machine does not support.
//
// 1. A state is 16 bytes that have the same CRC as the whole message up to this point. step() appends 16 bytes.
// 2. Vectors hold several states next to each other. Each state covers every n-th 16 bytes of the message.
// 3. A tail of fewer than 16 bytes moves the state by that many bytes.
// 4. reduce() converts the 128 bits to the 32 of the CRC: one multiplication to 96 bits, then two for Barrett.
// 5. Linear maps of bytes can replace the multiplications: append_mapped().
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "wire/crc32_constants.h"
#include "wire/crc32_dispatch.h"
#include "wire/network_headers.h"

#define ROVE_INLINE [[gnu::always_inline]] static inline

namespace rove::wire {
namespace {

constexpr size_t kStateBytes = 16;
// Length in bytes from which maps, whose 8 sums must be combined at the end, pay off.
constexpr size_t kMappedFrom = 1536;

ROVE_INLINE __m128i load128(const uint8_t* at) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}
ROVE_INLINE void store128(uint8_t* at, __m128i value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), value);
}

template <size_t bytes>
ROVE_INLINE __m128i move128(__m128i x) {
    constexpr auto by = crc32_constants::shift(bytes);
    const __m128i k = _mm_set_epi64x(static_cast<int64_t>(by.high), static_cast<int64_t>(by.low));
    return _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11));
}

ROVE_INLINE __m128i step(__m128i state, __m128i next) {
    return _mm_xor_si128(move128<kStateBytes>(state), next);
}

ROVE_INLINE uint32_t reduce(__m128i x) {
    const __m128i to96 = _mm_cvtsi64_si128(static_cast<int64_t>(crc32_constants::kTo96));
    const __m128i barrett = _mm_set_epi64x(static_cast<int64_t>(crc32_constants::kReflectedG),
                                           static_cast<int64_t>(crc32_constants::kBarrett));
    const __m128i x96 = _mm_xor_si128(_mm_clmulepi64_si128(x, to96, 0x00), _mm_srli_si128(x, 8));
    const __m128i quotient = _mm_clmulepi64_si128(x96, barrett, 0x00);
    const __m128i rest = _mm_xor_si128(x96, _mm_clmulepi64_si128(quotient, barrett, 0x10));
    return static_cast<uint32_t>(_mm_extract_epi32(rest, 2));
}

// Appends the last `rest` (1..15) bytes before `end`. The 16 bytes before `end` must be readable.
ROVE_INLINE __m128i append_tail(__m128i state, const uint8_t* end, size_t rest) {
    alignas(16) static constexpr uint8_t kSliding[48] = {
        0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
        0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
        0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
    const __m128i to_end = load128(kSliding + rest);  // moves the first `rest` bytes to the end
    // Moves the other bytes to the front; 0x80 where the tail goes.
    const __m128i to_front = load128(kSliding + 16 + rest);
    const __m128i last = _mm_blendv_epi8(_mm_shuffle_epi8(state, to_front), load128(end - 16), to_front);
    return step(_mm_shuffle_epi8(state, to_end), last);
}

// Moves every state of the vector by `bytes`. A Vector has Type, kBytes, load, store, add, broadcast, multiply_low and
// _high (for the halves of each lane), widen (16 bytes to the lowest lane, zeros above) and narrow (the one state that
// all lanes form together). A Vector of 64 bytes also has load_end (a given number of bytes before `end` at the
// vector's end, with zeros before them), either (or) and reduce4 (reduce() of the results of narrow() for four
// vectors).
template <class Vector, size_t bytes>
ROVE_INLINE typename Vector::Type move(typename Vector::Type x) {
    constexpr auto by = crc32_constants::shift(bytes);
    const auto k = Vector::broadcast(_mm_set_epi64x(static_cast<int64_t>(by.high), static_cast<int64_t>(by.low)));
    return Vector::add(Vector::multiply_low(x, k), Vector::multiply_high(x, k));
}

// The rest of the input, and the destination of its copy.
struct Cursor {
    const uint8_t* src;
    size_t bytes;
    uint8_t* dst;
};

template <bool copy>
ROVE_INLINE void advance(Cursor& at, size_t by) {
    at.src += by;
    at.bytes -= by;
    if constexpr (copy) at.dst += by;
}

template <class Vector, bool copy>
ROVE_INLINE typename Vector::Type take(const Cursor& at, size_t offset) {
    const auto next = Vector::load(at.src + offset);
    if constexpr (copy) Vector::store(at.dst + offset, next);
    return next;
}

// Appends blocks of 8 vectors to the 8 in `x`. Each vector in turn is replaced by maps of its bytes, which are added to
// the vectors 4, 6, 7 and 8 positions later in the message. The last of these is loaded at this point.
// (crc32_constants::byte_maps(); most other distances form no basis, or make the steps wait for each other.)
template <class Vector, bool copy>
ROVE_INLINE void append_mapped(typename Vector::Type (&x)[8], Cursor& at) {
    constexpr size_t kWidth = Vector::kBytes, kBlock = 8 * kWidth;
    constexpr auto maps = crc32_constants::byte_maps({8 * kWidth, 4 * kWidth, 2 * kWidth, kWidth, 0});
    const auto to4 = Vector::repeat(maps[0]), to6 = Vector::repeat(maps[1]), to7 = Vector::repeat(maps[2]),
               to8 = Vector::repeat(maps[3]);
    for (; at.bytes >= kBlock; advance<copy>(at, kBlock)) {
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; ++i) {
            const auto oldest = x[i];
            const auto add_to = [&](size_t behind, auto map) {
                auto& to = x[(i + behind) % 8];
                to = Vector::add(to, Vector::map_bytes(oldest, map));
            };
            add_to(4, to4);
            add_to(6, to6);
            add_to(7, to7);
            x[i] = Vector::add(Vector::map_bytes(oldest, to8), take<Vector, copy>(at, i * kWidth));
        }
    }
}

// Appends all whole vectors, at least one, and adds `head` to the first. Returns the state.
template <class Vector, bool copy>
ROVE_INLINE __m128i append_wide(typename Vector::Type head, Cursor& at) {
    constexpr size_t kWidth = Vector::kBytes, kBlock = 4 * kWidth;
    auto x = Vector::add(take<Vector, copy>(at, 0), head);
    if (at.bytes >= kBlock) {
        auto x1 = take<Vector, copy>(at, kWidth);
        auto x2 = take<Vector, copy>(at, 2 * kWidth);
        auto x3 = take<Vector, copy>(at, 3 * kWidth);
        advance<copy>(at, kBlock);
        if constexpr (requires { Vector::map_bytes; }) {
            if (at.bytes >= kMappedFrom) {
                typename Vector::Type all[8] = {x, x1, x2, x3};
                for (size_t i = 0; i < 4; ++i) all[4 + i] = take<Vector, copy>(at, i * kWidth);
                advance<copy>(at, kBlock);
                append_mapped<Vector, copy>(all, at);
                x = Vector::add(move<Vector, kBlock>(all[0]), all[4]);
                x1 = Vector::add(move<Vector, kBlock>(all[1]), all[5]);
                x2 = Vector::add(move<Vector, kBlock>(all[2]), all[6]);
                x3 = Vector::add(move<Vector, kBlock>(all[3]), all[7]);
            }
        }
        for (; at.bytes >= kBlock; advance<copy>(at, kBlock)) {
            x = Vector::add(move<Vector, kBlock>(x), take<Vector, copy>(at, 0));
            x1 = Vector::add(move<Vector, kBlock>(x1), take<Vector, copy>(at, kWidth));
            x2 = Vector::add(move<Vector, kBlock>(x2), take<Vector, copy>(at, 2 * kWidth));
            x3 = Vector::add(move<Vector, kBlock>(x3), take<Vector, copy>(at, 3 * kWidth));
        }
        x = Vector::add(Vector::add(move<Vector, 3 * kWidth>(x), move<Vector, 2 * kWidth>(x1)),
                        Vector::add(move<Vector, kWidth>(x2), x3));
    } else {
        advance<copy>(at, kWidth);
    }
    for (; at.bytes >= kWidth; advance<copy>(at, kWidth)) {
        x = Vector::add(move<Vector, kWidth>(x), take<Vector, copy>(at, 0));
    }
    return Vector::narrow(x);
}

// Appends the rest, which is shorter than two vectors. The 16 bytes before its end must be readable (and writable in
// the copy), whatever its length.
template <bool copy>
ROVE_INLINE __m128i append_rest(__m128i state, Cursor at) {
    for (; at.bytes >= kStateBytes; advance<copy>(at, kStateBytes)) {
        const __m128i next = load128(at.src);
        if constexpr (copy) store128(at.dst, next);
        state = step(state, next);
    }
    if (at.bytes == 0) return state;
    if constexpr (copy) store128(at.dst + at.bytes - 16, load128(at.src + at.bytes - 16));
    return append_tail(state, at.src + at.bytes, at.bytes);
}

// Handles fewer than 16 bytes: they become the end of a state whose other bytes are 0.
template <bool copy>
ROVE_INLINE uint32_t crc32_short(uint32_t crc, const uint8_t* src, size_t bytes, uint8_t* dst) {
    uint64_t low = 0, high;
    uint32_t carried = 0;  // register bits beyond the message's end
    if (bytes >= 8) {
        const uint64_t first = load<uint64_t>(src), last = load<uint64_t>(src + bytes - 8);
        if constexpr (copy) store(dst, first), store(dst + bytes - 8, last);
        // Two shifts, because for 8 bytes a single shift would be by 64 bits.
        low = (first ^ crc) << (8 * (15 - bytes)) << 8;
        high = last ^ uint64_t { crc } >> (8 * (bytes - 8));
    } else if (bytes >= 4) {
        const uint32_t first = load<uint32_t>(src), last = load<uint32_t>(src + bytes - 4);
        if constexpr (copy) store(dst, first), store(dst + bytes - 4, last);
        const size_t gap = 8 * (8 - bytes);  // bits; 8..32
        high = (uint64_t{last} >> gap << 32 | (first ^ crc)) << gap;
    } else if (bytes) {
        uint32_t value = 0;
        for (size_t i = 0; i < bytes; ++i) {
            value |= uint32_t{src[i]} << 8 * i;
            if constexpr (copy) dst[i] = src[i];
        }
        carried = crc >> 8 * bytes;
        high = uint64_t{value ^ crc} << (64 - 8 * bytes);
    } else {
        return crc;
    }
    return carried ^ reduce(_mm_set_epi64x(static_cast<int64_t>(high), static_cast<int64_t>(low)));
}

template <class Vector, bool copy>
ROVE_INLINE uint32_t crc32_any(uint32_t crc, const void* from, size_t bytes, void* to) {
    Cursor at{static_cast<const uint8_t*>(from), bytes, static_cast<uint8_t*>(to)};
    if (bytes < kStateBytes) return ~crc32_short<copy>(~crc, at.src, bytes, at.dst);
    const __m128i head = _mm_cvtsi32_si128(static_cast<int>(~crc));
    __m128i state;
    if (bytes >= 2 * Vector::kBytes) {
        state = append_wide<Vector, copy>(Vector::widen(head), at);
    } else {
        const __m128i first = load128(at.src);
        if constexpr (copy) store128(at.dst, first);
        advance<copy>(at, kStateBytes);
        state = _mm_xor_si128(first, head);
    }
    return ~reduce(append_rest<copy>(state, at));
}

// Computes the state of the ICRC. Annex A17.3.3 puts ones before the headers and in their variant fields. The first 4
// of the 8 bytes of ones turn the register's start value into 0, and leading zeros do not change a 0. With the other 4
// and zeros before them, the headers are a whole number of states.
template <class Vector>
ROVE_INLINE __m128i icrc_state_by_16(const uint8_t* l3, size_t bytes) {
    const __m128i udp_bth_ones = _mm_setr_epi8(0, 0, -1, -1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0);
    __m128i state;
    size_t headers;
    if (l3[0] >> 4 == 4) [[likely]] {
        const __m128i keep = _mm_setr_epi8(0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
        const __m128i first_ones = _mm_setr_epi8(0, 0, 0, 0, -1, -1, -1, -1, 0, -1, 0, 0, 0, 0, 0, 0);
        const __m128i second_ones = _mm_setr_epi8(-1, 0, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        headers = kIpv4Bytes + kUdpBytes + kBthBytes;
        state = _mm_or_si128(_mm_and_si128(load128(l3 - 8), keep), first_ones);
        state = _mm_xor_si128(move128<32>(state), move128<16>(_mm_or_si128(load128(l3 + 8), second_ones)));
        state = _mm_xor_si128(state, _mm_or_si128(load128(l3 + 24), udp_bth_ones));
    } else {
        const __m128i first_ones = _mm_setr_epi8(-1, -1, -1, -1, 0x0F, -1, -1, -1, 0, 0, 0, -1, 0, 0, 0, 0);
        headers = kIpv6Bytes + kUdpBytes + kBthBytes;
        state = step(_mm_or_si128(load128(l3 - 4), first_ones), load128(l3 + 12));
        state = step(state, load128(l3 + 28));
        state = step(state, _mm_or_si128(load128(l3 + 44), udp_bth_ones));
    }
    Cursor at{l3 + headers, bytes - headers, nullptr};
    if (at.bytes >= 2 * Vector::kBytes)
        state = append_wide<Vector, false>(Vector::widen(move128<kStateBytes>(state)), at);
    return append_rest<false>(state, at);
}

// The images of the headers for vectors of 64 bytes, which compute the same state. The first vector ends where whole
// vectors follow, and it contains the headers of nearly all packets. The bytes that differ from the packet are loaded
// from images in which the IP header begins after 64 bytes of zeros.
struct HeaderImages {
    size_t bytes;  // IP, UDP and BTH
    uint8_t ones[3 * 64];
    uint8_t start[3 * 64];  // the register after the 8 bytes of ones, which is added to the first 4 bytes

    constexpr HeaderImages(size_t header_bytes, uint8_t first, std::initializer_list<uint8_t> variant)
        : bytes(header_bytes), ones{}, start{} {
        ones[64] = first;
        for (const uint8_t at : variant) ones[64 + at] = 0xFF;
        for (int i = 0; i < 4; ++i) start[64 + i] = static_cast<uint8_t>(crc32_constants::after_ones() >> 8 * i);
    }
};
constexpr HeaderImages kIpv4Images(kIpv4Bytes + kUdpBytes + kBthBytes, 0, {1, 8, 10, 11, 26, 27, 32});
constexpr HeaderImages kIpv6Images(kIpv6Bytes + kUdpBytes + kBthBytes, 0x0F, {1, 2, 3, 7, 46, 47, 52});
ROVE_INLINE const HeaderImages& images_of(const uint8_t* l3) {
    return l3[0] >> 4 == 4 ? kIpv4Images : kIpv6Images;
}

// Appends the first 1 to 64 bytes, after which whole vectors remain, and one more vector if these bytes do not contain
// all headers. Returns the vector that the remaining vectors follow.
template <class Vector>
ROVE_INLINE typename Vector::Type append_headers(const HeaderImages& images, Cursor& at) {
    const size_t first = (at.bytes - 1) % Vector::kBytes + 1;
    auto x = Vector::either(Vector::load_end(at.src + first, first), Vector::load(images.ones + first));
    x = Vector::add(x, Vector::load(images.start + first));
    advance<false>(at, first);
    if (first < images.bytes && at.bytes != 0) {
        const auto next = Vector::either(Vector::load(at.src), Vector::load(images.ones + Vector::kBytes + first));
        x = Vector::add(move<Vector, Vector::kBytes>(x), next);
        advance<false>(at, Vector::kBytes);
    }
    return x;
}

template <class Vector>
ROVE_INLINE __m128i icrc_state(const uint8_t* l3, size_t bytes) {
    if constexpr (Vector::kBytes == 64) {
        Cursor at{l3, bytes, nullptr};
        const auto x = append_headers<Vector>(images_of(l3), at);
        return at.bytes == 0 ? Vector::narrow(x) : append_wide<Vector, false>(move<Vector, Vector::kBytes>(x), at);
    } else {
        return icrc_state_by_16<Vector>(l3, bytes);
    }
}

// Continues with the headers' state without reducing it first, which saves 8 ns.
template <class Vector>
ROVE_INLINE uint32_t icrc_copy_any(const uint8_t* l3, size_t header_bytes, void* to, const void* from, size_t bytes) {
    if (bytes < 2 * Vector::kBytes)
        return crc32_any<Vector, true>(~reduce(icrc_state<Vector>(l3, header_bytes)), from, bytes, to);
    typename Vector::Type head;
    if constexpr (Vector::kBytes == 64) {
        Cursor headers{l3, header_bytes, nullptr};
        head = append_headers<Vector>(images_of(l3), headers);
        for (; headers.bytes != 0; advance<false>(headers, Vector::kBytes))
            head = Vector::add(move<Vector, Vector::kBytes>(head), Vector::load(headers.src));
        head = move<Vector, Vector::kBytes>(head);
    } else {
        head = Vector::widen(move128<kStateBytes>(icrc_state<Vector>(l3, header_bytes)));
    }
    Cursor at{static_cast<const uint8_t*>(from), bytes, static_cast<uint8_t*>(to)};
    const __m128i wide = append_wide<Vector, true>(head, at);
    return ~reduce(append_rest<true>(wide, at));
}

// Computes four sums in parallel: their waits overlap, and the final steps are executed for all four together.
template <class Vector>
ROVE_INLINE void icrc_four(const uint8_t* const (&l3)[4], size_t bytes, uint32_t (&sums)[4]) {
    if constexpr (Vector::kBytes == 64) {
        typename Vector::Type x[4];
        const HeaderImages& images = images_of(l3[0]);
        size_t at = 0;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            Cursor headers{l3[i], bytes, nullptr};
            x[i] = append_headers<Vector>(images, headers);
            at = bytes - headers.bytes;
        }
        for (; at != bytes; at += Vector::kBytes) {
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i)
                x[i] = Vector::add(move<Vector, Vector::kBytes>(x[i]), Vector::load(l3[i] + at));
        }
        Vector::reduce4(x, sums);
        for (uint32_t& sum : sums) sum = ~sum;
    } else {
        for (int i = 0; i < 4; ++i) sums[i] = ~reduce(icrc_state<Vector>(l3[i], bytes));
    }
}

// Returns the kernel of this file's instruction set.
template <class Vector>
constexpr Crc32Kernel make_kernel() {
    return {.crc32 = [](uint32_t crc, const void* data,
                        size_t bytes) { return crc32_any<Vector, false>(crc, data, bytes, nullptr); },
            .crc32_copy = [](uint32_t crc, void* dst, const void* src,
                             size_t bytes) { return crc32_any<Vector, true>(crc, src, bytes, dst); },
            .icrc = [](const uint8_t* l3, size_t bytes) { return ~reduce(icrc_state<Vector>(l3, bytes)); },
            .icrc_four = [](const uint8_t* const(&l3)[4], size_t bytes,
                            uint32_t(&sums)[4]) { icrc_four<Vector>(l3, bytes, sums); },
            .icrc_copy = [](const uint8_t* l3, size_t header_bytes, void* dst, const void* src,
                            size_t bytes) { return icrc_copy_any<Vector>(l3, header_bytes, dst, src, bytes); }};
}

}  // namespace
}  // namespace rove::wire
