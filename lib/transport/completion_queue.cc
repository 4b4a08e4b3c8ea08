// SPDX-License-Identifier: Apache-2.0
#include "transport/completion_queue.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

namespace rove::transport {

namespace {

// More than asked, as RoCE NICs give: perftest asks for as many as it has sends, and polls one only after it has posted
// the next.
uint32_t size_for(uint32_t entries) {
    return std::bit_ceil(entries + 1);
}

}  // namespace

bool CompletionQueue::init(uint32_t entries, CompletionQueueUse use) {
    use_ = use;
    const uint32_t size = size_for(entries);
    ring_.reset(new (std::nothrow) Entry[size]());
    mask_ = size - 1;
    return ring_ != nullptr;
}

int CompletionQueue::resize(const Paused&, uint32_t entries) {
    const uint32_t head = head_.load(std::memory_order_relaxed), tail = tail_.load(std::memory_order_relaxed);
    const uint32_t size = size_for(entries);
    if (entries < tail - head) return EINVAL;
    std::unique_ptr<Entry[]> ring(new (std::nothrow) Entry[size]());
    if (ring == nullptr) return ENOMEM;
    for (uint32_t i = head; i != tail; ++i) {
        ring[i & (size - 1)].wc = ring_[i & mask_].wc;
        ring[i & (size - 1)].pushed_ns = ring_[i & mask_].pushed_ns;
        ring[i & (size - 1)].sequence.store(ring_[i & mask_].sequence.load(std::memory_order_relaxed),
                                            std::memory_order_relaxed);
    }
    ring_ = std::move(ring);
    mask_ = size - 1;
    return 0;
}

int CompletionQueue::poll(ibv_wc* out, int count, uint64_t* times_ns) {
    const uint32_t first = head_.load(std::memory_order_relaxed);
    uint32_t head = first;
    int taken = 0;
    for (; taken < count; ++head) {
        const Entry& entry = ring_[head & mask_];
        const uint32_t sequence = entry.sequence.load(std::memory_order_acquire);   // pairs with push()
        if (sequence == head + 1) [[likely]] {
            if (times_ns != nullptr) times_ns[taken] = entry.pushed_ns;
            out[taken++] = entry.wc;
        } else if (sequence != ((head + 1) ^ kDropped)) {
            break;
        }
    }
    if (head != first) head_.store(head, std::memory_order_release);
    return taken;
}

// Workers may add completions of other QPs meanwhile: an entry that is still being written is none of this one's.
void CompletionQueue::forget(uint32_t qpn) {
    const uint32_t head = head_.load(std::memory_order_relaxed), tail = tail_.load(std::memory_order_acquire);
    bool only_dropped = true;
    uint32_t next = head;
    for (uint32_t i = head; i != tail; ++i) {
        Entry& entry = ring_[i & mask_];
        uint32_t sequence = entry.sequence.load(std::memory_order_acquire);         // pairs with push()
        if (sequence == i + 1 && entry.wc.qp_num == qpn) {
            sequence ^= kDropped;
            entry.sequence.store(sequence, std::memory_order_relaxed);
        }
        only_dropped &= sequence == ((i + 1) ^ kDropped);
        if (only_dropped) next = i + 1;
    }
    head_.store(next, std::memory_order_release);
}

}  // namespace rove::transport
