// SPDX-License-Identifier: Apache-2.0
// T-1: first the block is computed, then the number of slices. A tail shorter than a quarter of a block joins the slice
// before it.
#include "tent/placement/slicing.h"

namespace rove::tent {

namespace {

constexpr uint64_t divide_up(uint64_t value, uint64_t by) {
    return (value + by - 1) / by;
}

}  // namespace

SlicePlan plan_slices(uint64_t length, uint32_t max_slices, uint64_t block_size) {
    if (length == 0) return {};
    if (length <= block_size) return {.length = length, .block = block_size, .count = 1};  // avoids the divisions
    const uint64_t block = divide_up(divide_up(length, max_slices), block_size) * block_size;
    auto count = static_cast<uint32_t>(divide_up(length, block));
    const uint64_t tail = length - (count - 1) * block;
    if (count > 1 && tail < block / 4) --count;
    return {.length = length, .block = block, .count = count};
}

}  // namespace rove::tent
