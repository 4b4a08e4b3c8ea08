// SPDX-License-Identifier: Apache-2.0
// Divides a request into slices (T-1). Units: bytes.
#pragma once

#include <cstdint>

namespace rove::tent {

// The documented maximum numbers of slices of one request: a WRITE has half as many as a READ.
inline constexpr uint32_t kMaxReadSlices = 64, kMaxWriteSlices = 32;

// All slices are `block` long except the last, which carries the rest: more than 0 and less than 1 1/4 blocks.
struct SlicePlan {
    uint64_t length = 0;
    uint64_t block = 0;  // a multiple of the block size
    uint32_t count = 0;

    uint64_t offset(uint32_t slice) const { return slice * block; }
    uint64_t bytes(uint32_t slice) const { return slice + 1 < count ? block : length - offset(slice); }
};

// Plans the slices of a request of `length` bytes. `max_slices` and `block_size` are not 0, and `length` + `block_size`
// < 2^63. A length of 0 gives no slices. The block has no upper bound: a transport whose operations have one (2^31
// bytes, IBTA 9.7.7) must pass a sufficient `max_slices`.
SlicePlan plan_slices(uint64_t length, uint32_t max_slices, uint64_t block_size);

}  // namespace rove::tent
