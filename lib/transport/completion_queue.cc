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

int CompletionQueue::resize(uint32_t entries) {
    const uint32_t head = head_.load(std::memory_order_relaxed), tail = tail_.load(std::memory_order_relaxed);
    const uint32_t size = size_for(entries);
    if (entries < tail - head) return EINVAL;
    std::unique_ptr<Entry[]> ring(new (std::nothrow) Entry[size]());
    if (ring == nullptr) return ENOMEM;
    for (uint32_t i = head; i != tail; ++i) {
        ring[i & (size - 1)].wc = ring_[i & mask_].wc;
        ring[i & (size - 1)].pushed_ns = ring_[i & mask_].pushed_ns;
        ring[i & (size - 1)].sequence.store(i + 1, std::memory_order_relaxed);
    }
    ring_ = std::move(ring);
    mask_ = size - 1;
    return 0;
}

int CompletionQueue::poll(ibv_wc* out, int count, uint64_t* times_ns) {
    uint32_t head = head_.load(std::memory_order_relaxed);
    int taken = 0;
    for (; taken < count; ++taken, ++head) {
        const Entry& entry = ring_[head & mask_];
        if (entry.sequence.load(std::memory_order_acquire) != head + 1) break;      // pairs with push()
        out[taken] = entry.wc;
        if (times_ns != nullptr) times_ns[taken] = entry.pushed_ns;
    }
    if (taken != 0) head_.store(head, std::memory_order_release);
    return taken;
}

void CompletionQueue::forget(uint32_t qpn) {
    const uint32_t head = head_.load(std::memory_order_relaxed), tail = tail_.load(std::memory_order_relaxed);
    uint32_t kept = head;
    for (uint32_t i = head; i != tail; ++i) {
        if (ring_[i & mask_].wc.qp_num == qpn) continue;
        ring_[kept & mask_].wc = ring_[i & mask_].wc;
        ring_[kept & mask_].pushed_ns = ring_[i & mask_].pushed_ns;
        ++kept;
    }
    for (uint32_t i = kept; i != tail; ++i) ring_[i & mask_].sequence.store(0, std::memory_order_relaxed);
    tail_.store(kept, std::memory_order_relaxed);
}

}  // namespace rove::transport
