// SPDX-License-Identifier: Apache-2.0
// Copies payload. Lengths are in bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/byte_order.h"

namespace rove::wire {

// Copies any length; called by copy().
void copy_pieces(void* to, const void* from, size_t bytes);

// Copies like memcpy, without the cost of its call for 8 .. 16 bytes and without its slow path for large pieces.
[[gnu::always_inline]] inline void copy(void* to, const void* from, size_t bytes) {
    if (bytes - 8 > 8) return copy_pieces(to, from, bytes);
    auto* target = static_cast<uint8_t*>(to);
    auto* source = static_cast<const uint8_t*>(from);
    const uint64_t first = load<uint64_t>(source), last = load<uint64_t>(source + bytes - 8);
    store(target, first);
    store(target + bytes - 8, last);
}

}  // namespace rove::wire
