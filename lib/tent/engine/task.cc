// SPDX-License-Identifier: Apache-2.0
// See task.h.
#include "tent/engine/task.h"

#include <mutex>

namespace rove::tent {

const char* text(Reason reason) {
    switch (reason) {
        case Reason::kNone:
            break;
        case Reason::kNoProgress:
            return "no data was transferred for max_timeout_ns";
        case Reason::kSlotsClosed:
            return "no data was transferred for max_timeout_ns: the slots are closed to its priority";
        case Reason::kNoRail:
            return "no data was transferred for max_timeout_ns: no port reaches a port of the peer";
        case Reason::kDeadline:
            return "its deadline has passed";
        case Reason::kRefused:
            return "the access was refused: the memory, here or at the peer, is no longer registered as it was";
        case Reason::kPeerGone:
            return "the peer's process has ended";
        case Reason::kNoTransport:
            return "no transport is left that can carry it";
        case Reason::kNotConfirmed:
            return "the peer did not confirm that a broken connection can no longer change its memory";
    }
    return "";
}

SlicePool::SlicePool(size_t limit) : limit_((limit + kChunk - 1) / kChunk * kChunk), chunks_(limit_ / kChunk) {}

Slice* SlicePool::take(size_t count, size_t reserve) {
    const std::lock_guard lock(lock_);
    if (count == 0 || free_count_ + (limit_ - made_) < count + reserve) return nullptr;
    while (free_count_ < count) {
        auto& chunk = chunks_[made_ / kChunk];
        chunk.reset(new Slice[kChunk]);
        for (size_t i = 0; i < kChunk; ++i) {
            chunk[i].index = static_cast<uint32_t>(made_++);
            chunk[i].next = free_;
            free_ = &chunk[i];
        }
        free_count_ += kChunk;
    }
    Slice* first = free_;
    Slice* last = first;
    for (size_t i = 1; i < count; ++i) last = static_cast<Slice*>(last->next);
    free_ = static_cast<Slice*>(last->next);
    last->next = nullptr;
    free_count_ -= count;
    return first;
}

void SlicePool::give(Slice* first, Slice* last) {
    size_t count = 1;
    for (const Slice* one = first; one != last; one = static_cast<const Slice*>(one->next)) ++count;
    const std::lock_guard lock(lock_);
    last->next = free_;
    free_ = first;
    free_count_ += count;
}

}  // namespace rove::tent
