// SPDX-License-Identifier: Apache-2.0
// Submitting, taking and promoting; see priority_queues.h.
#include "tent/priority_queues.h"

namespace rove::tent {

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

PriorityQueues::PriorityQueues(const QueueConfig& config) : config_(config) {}

void PriorityQueues::submit(Priority priority, const Chain& chain) {
    std::atomic<Queued*>& newest = newest_[index(priority)];
    chain.oldest->next = newest.load(std::memory_order_relaxed);
    // Release pairs with the acquire in collect(): the worker sees the entries as they were submitted. Entries leave
    // all at once, so that a pointer that is still there is still the newest.
    while (!newest.compare_exchange_weak(chain.oldest->next, chain.newest, std::memory_order_release,
                                         std::memory_order_relaxed)) {
    }
}

void PriorityQueues::put(Priority priority, const Chain& chain) {
    collect(index(priority));  // what was submitted before stays in front
    list(index(priority), chain.newest);
}

void PriorityQueues::collect(uint8_t priority) {
    std::atomic<Queued*>& newest = newest_[priority];
    if (newest.load(std::memory_order_relaxed) != nullptr)
        list(priority, newest.exchange(nullptr, std::memory_order_acquire));
}

void PriorityQueues::list(uint8_t priority, Queued* newest) {
    Queued* in_order = nullptr;
    while (newest != nullptr) {
        Queued* const older = newest->next;
        newest->next = in_order;
        in_order = newest;
        newest = older;
    }
    while (in_order != nullptr) {
        Queued* const next = in_order->next;
        levels_[priority][priority].append(in_order);
        ++listed_[priority];
        in_order = next;
    }
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
        --listed_[index(entry->priority)];
        return entry;
    }
    return nullptr;
}

void PriorityQueues::requeue(Queued* entry, uint64_t now_ns) {
    const uint8_t priority = index(entry->priority);
    collect(priority);  // what was submitted before stays in front
    ++listed_[priority];
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
        // A submitter may have read the clock after us.
        while (list.first != nullptr && now_ns >= list.first->since_ns + config_.promotion_timeout_ns) {
            append(list.take_first(), level - 1, now_ns);
            ++promoted_[priority];
        }
    }
}

uint32_t PriorityQueues::depth(Priority priority) {
    collect(index(priority));
    return listed_[index(priority)];
}

}  // namespace rove::tent
