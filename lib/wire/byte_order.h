// SPDX-License-Identifier: Apache-2.0
// Unaligned loads and stores of network-order integers. They are always inlined, because files compiled for other
// instruction sets use them too (crc32_kernel.h).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace rove::wire {

static_assert(std::endian::native == std::endian::little);

// In the machine's byte order.
template <class T>
[[gnu::always_inline]] inline T load(const uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

template <class T>
[[gnu::always_inline]] inline void store(uint8_t* at, T value) {
    std::memcpy(at, &value, sizeof value);
}

// In network byte order.
constexpr uint16_t big_endian(uint16_t v) {
    return __builtin_bswap16(v);
}
constexpr uint32_t big_endian(uint32_t v) {
    return __builtin_bswap32(v);
}
constexpr uint64_t big_endian(uint64_t v) {
    return __builtin_bswap64(v);
}

inline uint16_t load_be16(const uint8_t* at) {
    return big_endian(load<uint16_t>(at));
}
inline uint32_t load_be32(const uint8_t* at) {
    return big_endian(load<uint32_t>(at));
}
inline uint64_t load_be64(const uint8_t* at) {
    return big_endian(load<uint64_t>(at));
}

inline void store_be16(uint8_t* at, uint16_t value) {
    store(at, big_endian(value));
}
inline void store_be32(uint8_t* at, uint32_t value) {
    store(at, big_endian(value));
}
inline void store_be64(uint8_t* at, uint64_t value) {
    store(at, big_endian(value));
}

}  // namespace rove::wire
