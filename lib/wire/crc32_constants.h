// SPDX-License-Identifier: Apache-2.0
// The multipliers for CRC-32 by carry-less multiplication, computed by the compiler. Internal to lib/wire.
//
// A register holds 16 bytes of the message, the first byte lowest. As a polynomial, its lowest bit is the highest power
// (bit-reflected, as the CRC is defined). G is the CRC's polynomial, of degree 32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace rove::wire::crc32_constants {

inline constexpr uint32_t kPolynomial = 0x04C11DB7;   // G without x^32, highest power in the highest bit
inline constexpr uint64_t kReflectedG = 0x1DB710641;  // G, x^32 in bit 0

constexpr uint64_t reflect(uint64_t value, int bits) {
    uint64_t reflected = 0;
    for (int i = 0; i < bits; ++i) reflected |= (value >> i & 1) << (bits - 1 - i);
    return reflected;
}

constexpr uint32_t times_x(uint32_t value) {
    return value << 1 ^ (value >> 31 ? kPolynomial : 0);
}

// Returns x^n mod G, reflected and shifted by the one bit that a carry-less product of reflected factors lacks.
constexpr uint64_t power(size_t n) {
    uint32_t value = 1;
    for (size_t i = 0; i < n; ++i) value = times_x(value);
    return reflect(value, 32) << 1;
}

// Moves 16 bytes of message `bytes` further from its end: multiply the low half by `low` and the high half by `high`,
// then add.
struct Shift {
    uint64_t low, high;
};
constexpr Shift shift(size_t bytes) {
    return {power(8 * bytes + 32), power(8 * bytes - 32)};
}

// Returns floor(x^96 / G) without its lowest bit, reflected. With it one multiplication gives Barrett's quotient of 64
// bits.
constexpr uint64_t barrett() {
    uint64_t quotient = 0, rest = 1;  // long division of x^96 with its current remainder
    for (int i = 0; i < 96; ++i) {
        rest <<= 1;
        const bool subtract = rest >> 32;
        if (subtract) rest ^= uint64_t{1} << 32 | kPolynomial;
        if (i < 95) quotient = quotient << 1 | subtract;
    }
    return reflect(quotient, 64);
}

// Returns the CRC's register after 4 bytes of ones, from a start value of 0.
constexpr uint32_t after_ones() {
    uint32_t crc = 0xFFFFFFFF;
    for (int i = 0; i < 32; ++i) crc = crc >> 1 ^ (crc & 1 ? static_cast<uint32_t>(reflect(kPolynomial, 32)) : 0);
    return crc;
}

// Moves any byte of the message `bytes`[0] further from its end without carry-less multiplication. The 8 bits of a byte
// at each of four distances, `bytes`[1] to [4], form a basis of the 32 bits of a CRC. The byte at `bytes`[0] is
// therefore the sum of one byte at each of the four distances, and each of these is a linear map of its bits. Returns
// the maps in the format of GFNI's affine instruction: byte 7 - i has the bits whose sum is bit i.
constexpr std::array<uint64_t, 4> byte_maps(std::array<size_t, 5> bytes) {
    std::array<uint64_t, 32> rows{};  // row r: coefficients of x^r in the 32 basis bits, then in the 8 moved bits
    for (int at = 0; at < 5; ++at) {
        uint32_t bit = 1;
        for (size_t n = 0; n < 8 * bytes[at]; ++n) bit = times_x(bit);
        for (int b = 7; b >= 0; --b, bit = times_x(bit))
            for (int r = 0; r < 32; ++r) rows[r] |= uint64_t{bit >> r & 1} << ((at + 4) % 5 * 8 + b);
    }
    for (int column = 0; column < 32; ++column) {  // Gaussian elimination
        int pivot = column;
        // Without a basis the index leaves the array, and compilation fails.
        while ((rows[pivot] >> column & 1) == 0) ++pivot;
        std::swap(rows[pivot], rows[column]);
        for (int r = 0; r < 32; ++r)
            if (r != column && (rows[r] >> column & 1)) rows[r] ^= rows[column];
    }
    std::array<uint64_t, 4> maps{};
    for (int to = 0; to < 32; ++to) maps[to / 8] |= (rows[to] >> 32 & 0xFF) << 8 * (7 - to % 8);
    return maps;
}

inline constexpr uint64_t kTo96 = power(96), kBarrett = barrett();

}  // namespace rove::wire::crc32_constants
