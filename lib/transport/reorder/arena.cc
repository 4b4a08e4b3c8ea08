// SPDX-License-Identifier: Apache-2.0
#include "transport/reorder/arena.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace rove::transport {

namespace {

constexpr uint32_t kBits = 64;

uint32_t first_of(const std::vector<uint64_t>& bits) {
    uint32_t word = 0;
    while (bits[word] == 0) ++word;
    return word * kBits + static_cast<uint32_t>(std::countr_zero(bits[word]));
}

uint32_t last_of(const std::vector<uint64_t>& bits) {
    auto word = static_cast<uint32_t>(bits.size() - 1);
    while (bits[word] == 0) --word;
    return word * kBits + kBits - 1 - static_cast<uint32_t>(std::countl_zero(bits[word]));
}

void assign(std::vector<uint64_t>& bits, uint32_t index, bool value) {
    const uint64_t bit = uint64_t{1} << index % kBits;
    uint64_t& word = bits[index / kBits];
    word = value ? word | bit : word & ~bit;
}

}  // namespace

ReorderArena::ReorderArena(uint32_t blocks, uint32_t block_bytes, uint32_t metadata_bytes)
    : block_shift_(static_cast<uint32_t>(std::countr_zero(block_bytes))),
      metadata_blocks_((metadata_bytes + block_bytes - 1) >> block_shift_),
      free_(blocks),
      master_(std::make_unique_for_overwrite<std::byte[]>(size_t{blocks} << block_shift_)),
      used_((blocks + kBits - 1) / kBits, 0),
      has_free_((used_.size() + kBits - 1) / kBits, 0),
      has_run_(has_free_.size(), 0) {
    assert(blocks != 0 && blocks <= kMaxBlocks && metadata_blocks_ <= kMaxMetadataBlocks);
    if (blocks % kBits != 0) used_.back() = ~uint64_t{0} << blocks % kBits;  // bits beyond the arena are never free
    for (uint32_t word = 0; word < used_.size(); ++word) {
        assign(has_free_, word, ~used_[word] != 0);
        assign(has_run_, word, runs(~used_[word]) != 0);
    }
}

bool ReorderArena::any(const Bits& bits) {
    return std::any_of(bits.begin(), bits.end(), [](uint64_t word) { return word != 0; });
}

// Returns the bits at which a run of free blocks for metadata begins.
uint64_t ReorderArena::runs(uint64_t free) const {
    for (uint32_t length = 1; length < metadata_blocks_;) {
        const uint32_t more = std::min(length, metadata_blocks_ - length);
        free &= free >> more;
        length += more;
    }
    return free;
}

// Marks blocks, which must lie in one word.
void ReorderArena::set_used(uint32_t first, uint32_t count, bool used) {
    const uint64_t mask = ~uint64_t{0} >> (kBits - count) << first % kBits;
    const uint32_t index = first / kBits;
    uint64_t& word = used_[index];
    assert((used ? word & mask : ~word & mask) == 0);
    word ^= mask;
    assign(has_free_, index, ~word != 0);
    assign(has_run_, index, runs(~word) != 0);
    free_ = used ? free_ - count : free_ + count;
    usage_.blocks = used ? usage_.blocks + count : usage_.blocks - count;
    usage_.peak_blocks = std::max(usage_.peak_blocks, usage_.blocks);
    usage_.bytes = uint64_t{usage_.blocks} << block_shift_;
    usage_.peak_bytes = uint64_t{usage_.peak_blocks} << block_shift_;
}

uint32_t ReorderArena::take_block() {
    const uint32_t word = first_of(has_free_);
    const uint32_t block = word * kBits + static_cast<uint32_t>(std::countr_zero(~used_[word]));
    set_used(block, 1, true);
    std::memset(at(block), 0, block_bytes());
    return block;
}

uint32_t ReorderArena::take_metadata() {
    const uint32_t word = last_of(has_run_);
    const uint32_t first = word * kBits + kBits - 1 - static_cast<uint32_t>(std::countl_zero(runs(~used_[word])));
    set_used(first, metadata_blocks_, true);
    return first;
}

}  // namespace rove::transport
