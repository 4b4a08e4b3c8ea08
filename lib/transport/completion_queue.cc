// SPDX-License-Identifier: Apache-2.0
#include "transport/completion_queue.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

namespace rove::transport {

namespace {

// More than asked for, as RoCE NICs give. perftest asks for as many entries as it has sends, and polls one only after
// it has posted the next.
uint32_t size_for(uint32_t entries) {
    return std::bit_ceil(entries + 1);
}

}  // namespace

CompletionQueue::Ring CompletionQueue::make_ring(uint32_t size, uint32_t first) {
    auto* const entries = new (std::nothrow) Entry[size];
    const Ring ring(entries, size);
    if (entries == nullptr) return ring;
    for (uint32_t i = first; i != first + size; ++i) ring[i].sequence.store(i + 1 - size, std::memory_order_relaxed);
    return ring;
}

bool CompletionQueue::init(uint32_t entries, CompletionQueueUse use) {
    use_ = use;
    const Ring ring = make_ring(size_for(entries), 0);
    ring_.store(ring, std::memory_order_release);
    capacity_.store(ring.size(), std::memory_order_relaxed);
    return ring.entries() != nullptr;
}

// Until the grace period has ended, workers push to both rings, each completion to one of them. No thread polls
// meanwhile, and no more entries are in use than before, so that each has a place in either ring. Only afterwards may
// there be more.
int CompletionQueue::resize(GracePeriod& grace, uint32_t entries) {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    const uint32_t size = size_for(entries);
    if (entries < tail_.load(std::memory_order_relaxed) - head) return EINVAL;
    const Ring before = ring_.load(std::memory_order_relaxed);
    if (size > before.size()) {
        const Ring after = make_ring(size, head);
        if (after.entries() == nullptr) return ENOMEM;
        ring_.store(after, std::memory_order_release);
        grace.wait();
        const uint32_t tail = tail_.load(std::memory_order_acquire);
        for (uint32_t i = head; i != tail; ++i) {
            const Entry& entry = before[i];
            const uint32_t sequence = entry.sequence.load(std::memory_order_acquire);
            if (sequence != i + 1 && sequence != ((i + 1) ^ kDropped)) continue;  // it was pushed to the other ring
            after[i].wc = entry.wc;
            after[i].pushed_ns = entry.pushed_ns;
            after[i].sequence.store(sequence, std::memory_order_release);
        }
        delete[] before.entries();
    }
    capacity_.store(size, std::memory_order_relaxed);
    return 0;
}

int CompletionQueue::poll(ibv_wc* out, int count, uint64_t* times_ns) {
    const uint32_t first = head_.load(std::memory_order_relaxed);
    uint32_t head = first;
    int taken = 0;
    const Ring ring = ring_.load(std::memory_order_relaxed);
    for (; taken < count; ++head) {
        const Entry& entry = ring[head];
        const uint32_t sequence = entry.sequence.load(std::memory_order_acquire);  // pairs with push()
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

// Workers may add completions of other QPs meanwhile. An entry that is still being written cannot belong to this one.
void CompletionQueue::forget(uint32_t qpn) {
    const uint32_t head = head_.load(std::memory_order_relaxed), tail = tail_.load(std::memory_order_acquire);
    const Ring ring = ring_.load(std::memory_order_relaxed);
    bool only_dropped = true;
    uint32_t next = head;
    for (uint32_t i = head; i != tail; ++i) {
        Entry& entry = ring[i];
        uint32_t sequence = entry.sequence.load(std::memory_order_acquire);  // pairs with push()
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
