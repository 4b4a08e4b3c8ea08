// SPDX-License-Identifier: Apache-2.0
// How a request is cut into slices (T-1). Units: bytes.
#pragma once

#include <cstdint>

namespace rove::tent {

// At most so many slices of one request, as documented: a WRITE half as many as a READ.
inline constexpr uint32_t kMaxReadSlices = 64, kMaxWriteSlices = 32;

// Slices are `block` long but for the last, which carries the rest: more than 0 and less than 1 1/4 blocks.
struct SlicePlan {
    uint64_t length = 0;
    uint64_t block = 0;  // a multiple of the block size
    uint32_t count = 0;

    uint64_t offset(uint32_t slice) const { return slice * block; }
    uint64_t bytes(uint32_t slice) const { return slice + 1 < count ? block : length - offset(slice); }
};

// `max_slices` and `block_size` are not 0, `length` + `block_size` < 2^63; a length of 0 has no slices. The block has
// no upper bound: a transport whose operations have one (2^31 bytes, IBTA 9.7.7) must ask for enough slices.
SlicePlan plan_slices(uint64_t length, uint32_t max_slices, uint64_t block_size);

}  // namespace rove::tent
