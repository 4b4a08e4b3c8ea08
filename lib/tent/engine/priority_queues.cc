// SPDX-License-Identifier: Apache-2.0
// Submitting, taking and promoting; see priority_queues.h.
#include "tent/engine/priority_queues.h"

namespace rove::tent {

void Intake::submit(Waiting& request) {
    request.next = newest_.load(std::memory_order_relaxed);
    // Release pairs with the acquire in take(): the driver sees requests as they were submitted. They leave all at
    // once, so that a pointer that is still there is still the newest.
    while (
        !newest_.compare_exchange_weak(request.next, &request, std::memory_order_release, std::memory_order_relaxed)) {
    }
}

Waiting* Intake::take() {
    Waiting* newest = newest_.exchange(nullptr, std::memory_order_acquire);
    Waiting* oldest = nullptr;
    while (newest != nullptr) {
        Waiting* const before = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = before;
    }
    return oldest;
}

void PriorityQueues::put(Waiting& request) {
    depth_[index(request.priority)] += request.count;
    append(request, index(request.priority));
}

void PriorityQueues::put_back(Waiting& request, Queued& slice, uint64_t now_ns) {
    slice.next = nullptr;
    (request.first == nullptr ? request.first : request.last->next) = &slice;
    request.last = &slice;
    ++request.count;
    ++depth_[index(request.priority)];
    if (request.level != Waiting::kNowhere) return;
    request.since_ns = now_ns;
    append(request, index(request.priority));
}

Waiting* PriorityQueues::first(uint8_t level, uint8_t allowed) const {
    // In the order in which they came to this level, promoted or not.
    Waiting* next = nullptr;
    for (uint8_t priority = level; priority < kPriorities; ++priority) {
        Waiting* const one = lists_[level][priority].first;
        if (one == nullptr || (allowed >> priority & 1) == 0) continue;
        if (next == nullptr || one->since_ns < next->since_ns) next = one;
    }
    return next;
}

Queued* PriorityQueues::take(Waiting& request, uint64_t now_ns) {
    Queued* const slice = request.first;
    request.first = slice->next;
    --request.count;
    --depth_[index(request.priority)];
    list_of(request).taken_ns = request.since_ns = now_ns;
    if (request.first == nullptr) {
        unlist(request);
    } else if (request.level != index(request.priority)) {
        unlist(request);
        append(request, index(request.priority));
    }
    return slice;
}

Queued* PriorityQueues::take_all(Waiting& request) {
    Queued* const slices = request.first;
    depth_[index(request.priority)] -= request.count;
    request.first = nullptr;
    request.count = 0;
    unlist(request);
    return slices;
}

void PriorityQueues::append(Waiting& request, uint8_t level) {
    request.level = level;
    List& list = list_of(request);
    request.next = nullptr;
    request.before = list.last;
    (list.first == nullptr ? list.first : list.last->next) = &request;
    list.last = &request;
    if (listed_[level]++ == 0) levels_listed_ |= static_cast<uint8_t>(1u << level);
}

void PriorityQueues::unlist(Waiting& request) {
    List& list = list_of(request);
    (request.before == nullptr ? list.first : request.before->next) = request.next;
    (request.next == nullptr ? list.last : request.next->before) = request.before;
    if (--listed_[request.level] == 0) levels_listed_ &= static_cast<uint8_t>(~(1u << request.level));
    request.level = Waiting::kNowhere;
}

void PriorityQueues::promote(uint64_t now_ns) {
    if (config_.promotion_timeout_ns == 0) return;
    promote_level(1, now_ns);
    promote_level(2, now_ns);
}

void PriorityQueues::promote_level(uint8_t level, uint64_t now_ns) {
    for (uint8_t priority = level; priority < kPriorities; ++priority) {
        Waiting* next = nullptr;
        for (Waiting* one = lists_[level][priority].first; one != nullptr; one = next) {
            next = one->next;
            // A submitter may have read the clock after us.
            if (now_ns < one->since_ns + config_.promotion_timeout_ns) {
                // The first is the one that is being served; behind it they are in the order of their time.
                if (one->before == nullptr) continue;
                break;
            }
            unlist(*one);
            one->since_ns = now_ns;
            append(*one, level - 1);
            ++promoted_[priority];
        }
    }
}

Waiting* PriorityQueues::stuck(uint64_t before_ns) const {
    for (const auto& level : lists_)
        for (const List& list : level)
            if (list.first != nullptr && list.taken_ns <= before_ns && list.first->since_ns <= before_ns)
                return list.first;
    return nullptr;
}

}  // namespace rove::tent
