// SPDX-License-Identifier: Apache-2.0
#include "transport/reorder/static_bitmap.h"

namespace rove::transport {

void StaticBitmaps::start(ReorderStream& stream) {
    if (unused_.empty()) {
        unused_.push_back(static_cast<uint32_t>(bitmaps_.size()));
        bitmaps_.emplace_back();
        words_.resize(words_.size() + words_per_stream());
    }
    stream.memory = unused_.back();
    unused_.pop_back();
    std::fill_n(&words_[size_t{stream.memory} * words_per_stream()], words_per_stream(), SlotWord{0});
    usage_.peak_blocks = std::max(usage_.peak_blocks, ++usage_.blocks);
    usage_.bytes = uint64_t{usage_.blocks} * stream_bytes();
    usage_.peak_bytes = uint64_t{usage_.peak_blocks} * stream_bytes();
}

void StaticBitmaps::release(ReorderStream& stream) {
    if (stream.memory == ReorderStream::kNoMemory) return;
    unused_.push_back(stream.memory);
    stream.memory = ReorderStream::kNoMemory;
    stream.out_of_order = false;
    usage_.bytes = uint64_t{--usage_.blocks} * stream_bytes();
}

}  // namespace rove::transport
