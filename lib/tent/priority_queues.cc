// SPDX-License-Identifier: Apache-2.0
// Submitting, taking and promoting; see priority_queues.h.
#include "tent/priority_queues.h"

#include <algorithm>
#include <string>

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

Status PriorityQueues::submit(std::span<Queued* const> batch, uint64_t now_ns) {
    struct Chain {
        Queued* newest = nullptr;
        Queued* oldest = nullptr;
        uint32_t count = 0;
    };
    std::array<Chain, kPriorities> chains{};
    for (Queued* entry : batch) {
        const uint8_t priority = index(entry->priority);
        if (priority >= kPriorities)
            return {Code::kInvalidArgument, "priority " + std::to_string(priority) + ", allowed 0..2"};
        Chain& chain = chains[priority];
        if (++chain.count > config_.capacity)
            return {Code::kInvalidArgument,
                    "more than " + std::to_string(config_.capacity) + " slices of one priority"};
        entry->since_ns = now_ns;
        entry->next = chain.newest;
        chain.newest = entry;
        if (chain.oldest == nullptr) chain.oldest = entry;
    }
    for (uint8_t priority = 0; priority < kPriorities; ++priority) {
        const uint32_t wanted = chains[priority].count;
        if (wanted == 0) continue;
        const int64_t before = arrivals_[priority].submitted.fetch_add(wanted, std::memory_order_relaxed);
        const int64_t room = config_.capacity - (before - taken_[priority].load(std::memory_order_relaxed));
        if (room >= wanted) continue;
        // Another batch may meanwhile be refused for room that this one gives back.
        for (uint8_t undo = 0; undo <= priority; ++undo)
            arrivals_[undo].submitted.fetch_sub(chains[undo].count, std::memory_order_relaxed);
        rejected_.fetch_add(1, std::memory_order_relaxed);
        return {Code::kTooManyRequests, "the queue of priority " + std::string(name(static_cast<Priority>(priority))) +
                                            " has room for " + std::to_string(std::max<int64_t>(room, 0)) + " of " +
                                            std::to_string(wanted) + " slices"};
    }
    for (uint8_t priority = 0; priority < kPriorities; ++priority) {
        const Chain& chain = chains[priority];
        if (chain.count == 0) continue;
        std::atomic<Queued*>& newest = arrivals_[priority].newest;
        chain.oldest->next = newest.load(std::memory_order_relaxed);
        // Release pairs with the acquire in collect(): the worker sees the entries as they were submitted. Entries
        // leave all at once, so that a pointer that is still there is still the newest.
        while (!newest.compare_exchange_weak(chain.oldest->next, chain.newest, std::memory_order_release,
                                             std::memory_order_relaxed)) {
        }
    }
    return {};
}

void PriorityQueues::collect(uint8_t priority) {
    std::atomic<Queued*>& newest = arrivals_[priority].newest;
    if (newest.load(std::memory_order_relaxed) == nullptr) return;
    Queued* in_order = nullptr;
    for (Queued* entry = newest.exchange(nullptr, std::memory_order_acquire); entry != nullptr;) {
        Queued* const older = entry->next;
        entry->next = in_order;
        in_order = entry;
        entry = older;
    }
    while (in_order != nullptr) {
        Queued* const next = in_order->next;
        levels_[priority][priority].append(in_order);
        ++listed_;
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
        --listed_;
        count_taken(index(entry->priority), 1);
        return entry;
    }
    return nullptr;
}

bool PriorityQueues::empty() const {
    return listed_ == 0 && std::all_of(arrivals_.begin(), arrivals_.end(), [](const Arrivals& arrivals) {
               return arrivals.newest.load(std::memory_order_relaxed) == nullptr;
           });
}

void PriorityQueues::requeue(Queued* entry, uint64_t now_ns) {
    const uint8_t priority = index(entry->priority);
    count_taken(priority, -1);
    collect(priority);  // what was submitted before stays in front
    ++listed_;
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
            promoted_[priority].fetch_add(1, std::memory_order_relaxed);
        }
    }
}

void PriorityQueues::count_taken(uint8_t priority, int64_t by) {
    std::atomic<int64_t>& taken = taken_[priority];
    taken.store(taken.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

uint32_t PriorityQueues::depth(Priority priority) const {
    const int64_t taken = taken_[index(priority)].load(std::memory_order_relaxed);
    const int64_t submitted = arrivals_[index(priority)].submitted.load(std::memory_order_relaxed);
    return static_cast<uint32_t>(submitted - taken);
}

uint64_t PriorityQueues::promoted(Priority priority) const {
    return promoted_[index(priority)].load(std::memory_order_relaxed);
}

}  // namespace rove::tent
