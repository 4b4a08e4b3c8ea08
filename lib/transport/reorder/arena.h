// SPDX-License-Identifier: Apache-2.0
// The memory controller of the hybrid-dynamic bitmaps (EU-3; Eunomia sections 3.4 and 4). Units are blocks.
//
// DESIGN NOTES
// 1. The layout follows the paper: a master array of equal blocks, and an allocation bitmap with one bit for each. A
//    bitmap block is the first free block from the front, and a stream's metadata is a run of free blocks from the
//    back. The metadata index, from a stream to its metadata, is ReorderStream::memory.
// 2. Unlike the paper's, a run does not cross a word of the allocation bitmap, and two summaries tell which words have
//    a free block and which a free run. A search thus reads at most 16 words, however full or fragmented the arena is.
//    A peer decides when blocks are allocated and freed, and must not be able to make this slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/reorder/stream.h"

namespace rove::transport {

class ReorderArena {
  public:
    static constexpr uint32_t kMaxBlocks = 1u << 16;  // an address and a relative address take two bytes
    static constexpr uint32_t kMaxMetadataBlocks = 64;

    // `block_bytes` must be a power of two and at least four.
    ReorderArena(uint32_t blocks, uint32_t block_bytes, uint32_t metadata_bytes);

    // can_extend() returns true if a stream with metadata can get `blocks` more. can_start() returns true if a stream
    // without metadata can get metadata and `blocks`.
    bool can_extend(uint32_t blocks) const { return free_ >= blocks; }
    bool can_start(uint32_t blocks) const { return free_ >= metadata_blocks_ + blocks && any(has_run_); }

    // These may be called only after one of the functions above returned true. Blocks are zeroed, metadata is not.
    uint32_t take_block();
    uint32_t take_metadata();
    void free_block(uint32_t block) { set_used(block, 1, false); }
    void free_metadata(uint32_t block) { set_used(block, metadata_blocks_, false); }

    // Returns an address that is aligned to four bytes.
    std::byte* at(uint32_t block) const { return master_.get() + (size_t{block} << block_shift_); }

    uint32_t free_blocks() const { return free_; }
    uint32_t block_bytes() const { return 1u << block_shift_; }
    uint32_t metadata_blocks() const { return metadata_blocks_; }
    uint32_t metadata_bytes() const { return metadata_blocks_ << block_shift_; }
    void count_refusal() { ++usage_.exhausted; }
    const ReorderUsage& usage() const { return usage_; }

  private:
    using Bits = std::vector<uint64_t>;

    static bool any(const Bits& bits);
    uint64_t runs(uint64_t free) const;
    void set_used(uint32_t first, uint32_t count, bool used);

    uint32_t block_shift_, metadata_blocks_;
    uint32_t free_;
    std::unique_ptr<std::byte[]> master_;
    Bits used_;                // the allocation bitmap
    Bits has_free_, has_run_;  // summaries of its words
    ReorderUsage usage_;
};

}  // namespace rove::transport
