// SPDX-License-Identifier: Apache-2.0
// Rings for submitting, lists for the worker; see priority_queues.h.
#include "tent/priority_queues.h"

// C11 atomics instead of assembly: ThreadSanitizer sees what the rings order. Layout and use are the same.
#ifndef RTE_USE_C11_MEM_MODEL
#define RTE_USE_C11_MEM_MODEL
#endif
#include <rte_ring.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace rove::tent {

namespace {

constexpr unsigned kBurst = 64;

rte_ring* make_ring(uint32_t capacity) {
    const ssize_t bytes = rte_ring_get_memsize(rte_align32pow2(capacity + 1));
    void* memory = bytes < 0 ? nullptr : std::aligned_alloc(RTE_CACHE_LINE_SIZE, static_cast<size_t>(bytes));
    if (memory == nullptr) throw std::bad_alloc();
    auto* ring = static_cast<rte_ring*>(memory);
    // Of our own memory: there may be no EAL yet, and nobody looks the ring up by name.
    if (rte_ring_init(ring, "tent", capacity, RING_F_SC_DEQ | RING_F_EXACT_SZ) != 0) throw std::bad_alloc();
    return ring;
}

}  // namespace

void PriorityQueues::Freed::operator()(rte_ring* ring) const {
    std::free(ring);
}

void PriorityQueues::List::append(Queued* entry) {
    entry->next = nullptr;
    (first == nullptr ? first : last->next) = entry;
    last = entry;
}

Queued* PriorityQueues::List::take_first() {
    Queued* entry = first;
    first = entry->next;
    return entry;
}

PriorityQueues::PriorityQueues(const QueueConfig& config) : config_(config) {
    for (uint8_t priority = 0; priority < kPriorities; ++priority) {
        rings_[priority].reset(make_ring(config.capacity));
        room_[priority].entries.store(config.capacity, std::memory_order_relaxed);
    }
}

PriorityQueues::~PriorityQueues() = default;

Status PriorityQueues::submit(std::span<Queued* const> batch, uint64_t now_ns) {
    std::array<uint32_t, kPriorities> wanted{};
    for (Queued* entry : batch) {
        const uint8_t priority = index(entry->priority);
        if (priority >= kPriorities)
            return {Code::kInvalidArgument, "priority " + std::to_string(priority) + ", allowed 0..2"};
        if (++wanted[priority] > config_.capacity)
            return {Code::kInvalidArgument,
                    "more than " + std::to_string(config_.capacity) + " slices of one priority"};
        entry->since_ns = now_ns;
    }
    for (uint8_t priority = 0; priority < kPriorities; ++priority) {
        // Acquire pairs with the release in pop(): whoever gets the room finds the ring's slot free.
        const int64_t free = room_[priority].entries.fetch_sub(wanted[priority], std::memory_order_acquire);
        if (free >= wanted[priority]) continue;
        // Another batch may meanwhile be refused for room that this one gives back.
        for (uint8_t undo = 0; undo <= priority; ++undo)
            room_[undo].entries.fetch_add(wanted[undo], std::memory_order_relaxed);
        rejected_.fetch_add(1, std::memory_order_relaxed);
        return {Code::kTooManyRequests, "the queue of priority " + std::string(name(static_cast<Priority>(priority))) +
                                            " has room for " + std::to_string(std::max<int64_t>(free, 0)) + " of " +
                                            std::to_string(wanted[priority]) + " slices"};
    }
    // Runs of one priority go into their ring together; the room is ours, so that each fits.
    void* burst[kBurst];
    for (size_t at = 0; at < batch.size();) {
        const Priority priority = batch[at]->priority;
        unsigned count = 0;
        for (; at < batch.size() && count < kBurst && batch[at]->priority == priority; ++at) burst[count++] = batch[at];
        rte_ring_mp_enqueue_bulk(rings_[index(priority)].get(), burst, count, nullptr);
    }
    return {};
}

void PriorityQueues::collect(uint8_t priority) {
    void* burst[kBurst];
    unsigned count = 0;
    do {
        count = rte_ring_sc_dequeue_burst(rings_[priority].get(), burst, kBurst, nullptr);
        for (unsigned i = 0; i < count; ++i) levels_[priority][priority].append(static_cast<Queued*>(burst[i]));
    } while (count == kBurst);
}

Queued* PriorityQueues::pop(uint8_t allowed, uint64_t now_ns) {
    for (uint8_t level = 0; level < kPriorities; ++level) {
        collect(level);
        // In the order in which they came to this level, promoted or not.
        List* next = nullptr;
        for (uint8_t priority = level; priority < kPriorities; ++priority) {
            List& list = levels_[level][priority];
            if (list.first == nullptr || (allowed >> priority & 1) == 0) continue;
            if (next == nullptr || list.first->since_ns < next->first->since_ns) next = &list;
        }
        if (next == nullptr) continue;
        served_ns_[level] = now_ns;
        Queued* entry = next->take_first();
        room_[index(entry->priority)].entries.fetch_add(1, std::memory_order_release);
        return entry;
    }
    return nullptr;
}

void PriorityQueues::requeue(Queued* entry, uint64_t now_ns) {
    const uint8_t priority = index(entry->priority);
    room_[priority].entries.fetch_sub(1, std::memory_order_relaxed);
    collect(priority);  // what was submitted before stays in front
    append(entry, priority, now_ns);
}

void PriorityQueues::append(Queued* entry, uint8_t level, uint64_t now_ns) {
    entry->since_ns = now_ns;
    levels_[level][index(entry->priority)].append(entry);
}

void PriorityQueues::promote(uint64_t now_ns) {
    if (config_.promotion_timeout_ns == 0 || now_ns - checked_ns_ < kPromotionCheckNs) return;
    checked_ns_ = now_ns;
    promote_level(1, now_ns);
    promote_level(2, now_ns);
}

void PriorityQueues::promote_level(uint8_t level, uint64_t now_ns) {
    collect(level);
    if (now_ns - served_ns_[level] < config_.promotion_timeout_ns) return;
    for (uint8_t priority = level; priority < kPriorities; ++priority) {
        List& list = levels_[level][priority];
        while (list.first != nullptr && now_ns - list.first->since_ns >= config_.promotion_timeout_ns) {
            append(list.take_first(), level - 1, now_ns);
            promoted_[priority].fetch_add(1, std::memory_order_relaxed);
        }
    }
}

uint32_t PriorityQueues::depth(Priority priority) const {
    const int64_t free = room_[index(priority)].entries.load(std::memory_order_relaxed);
    return static_cast<uint32_t>(config_.capacity - free);
}

uint64_t PriorityQueues::promoted(Priority priority) const {
    return promoted_[index(priority)].load(std::memory_order_relaxed);
}

}  // namespace rove::tent
