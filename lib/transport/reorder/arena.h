// SPDX-License-Identifier: Apache-2.0
// EU-3: the memory controller of the hybrid-dynamic bitmaps (Eunomia sections 3.4 and 4). Units: blocks.
//
// DESIGN NOTES
// 1. As in the paper: one master array of equal blocks, an allocation bitmap with a bit for each; a bitmap block is
//    the first free block from the front, a stream's metadata a run of free blocks from the back. The metadata index,
//    from a stream to its metadata, is ReorderStream::memory.
// 2. Unlike the paper, a run does not cross a word of the allocation bitmap, and two summaries say which words have a
//    free block and which a free run. Finding either is a look at 16 words at most, however full or scattered the
//    arena is: a peer decides when blocks come and go, and must not be able to make that slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/reorder/stream.h"

namespace rove::transport {

class ReorderArena {
  public:
    static constexpr uint32_t kMaxBlocks = 1u << 16;  // an address, and a relative address, is two bytes
    static constexpr uint32_t kMaxMetadataBlocks = 64;

    // `block_bytes` is a power of two, at least four.
    ReorderArena(uint32_t blocks, uint32_t block_bytes, uint32_t metadata_bytes);

    // Whether a stream with metadata can have so many blocks more; whether one without can have metadata and them.
    bool can_extend(uint32_t blocks) const { return free_ >= blocks; }
    bool can_start(uint32_t blocks) const { return free_ >= metadata_blocks_ + blocks && any(has_run_); }

    // Not called unless one of the above said yes. Blocks are zeroed, metadata is not.
    uint32_t take_block();
    uint32_t take_metadata();
    void free_block(uint32_t block) { set_used(block, 1, false); }
    void free_metadata(uint32_t block) { set_used(block, metadata_blocks_, false); }

    // Aligned to four bytes.
    std::byte* at(uint32_t block) const { return master_.get() + (size_t{block} << block_shift_); }

    uint32_t block_bytes() const { return 1u << block_shift_; }
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
    Bits has_free_, has_run_;  // of its words
    ReorderUsage usage_;
};

}  // namespace rove::transport
