// SPDX-License-Identifier: Apache-2.0
// The waiting requests of a transport with their slices, in lists by priority (T-10, T-11). Units are nanoseconds of
// CLOCK_MONOTONIC.
//
// 1. Any thread submits to a transport's Intake, with one compare-and-swap for a request and all its slices. The driver
//    takes all of them at once, in order. An rte_ring would also work, but its enqueuers wait for each other, so one
//    that lost its core would stop all. There is always room: the slices' pool (task.h) counts them, and refuses a
//    batch as a whole.
// 2. From there each request moves to the PriorityQueues of its channel. Levels are drained across all channels and
//    transports: HIGH of all before MEDIUM of all before LOW of all (shard.h).
// 3. Requests are promoted, not slices. A request that had no slice taken for priority_promotion_timeout_us moves up
//    one level, and returns to its own level after a slice was taken. Each request thus makes progress, however long
//    the queue in front of it, and a bulk transfer does not enter the HIGH level with all its slices. The gate of the
//    slots still sees its own priority.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tent/config/types.h"

namespace rove::tent {

// A slice, which belongs to the queues while it waits.
struct Queued {
    Queued* next = nullptr;
};

// The waiting part of a request: its slices that are not in flight. Task derives from it.
struct Waiting {
    static constexpr uint8_t kNowhere = kPriorities;

    Waiting* next = nullptr;  // the next one in its list; in the Intake, the one before it
    Waiting* before = nullptr;
    Queued* first = nullptr;
    Queued* last = nullptr;
    uint32_t count = 0;        // slices
    uint8_t level = kNowhere;  // where it is listed
    Priority priority = Priority::kHigh;
    uint64_t since_ns = 0;  // when it came to the level where it is, or something of it was last taken
};

struct QueueConfig {
    uint64_t promotion_timeout_ns = 10'000'000;  // priority_promotion_timeout_us; 0: never
    uint64_t promotion_interval_ns = 1'000'000;  // priority_promotion_interval_us: between two checks

    void read_keys(auto& table) {
        table.microseconds("priority_promotion_timeout_us", promotion_timeout_ns, 0, 1'000'000'000);
        table.microseconds("priority_promotion_interval_us", promotion_interval_ns, 1, 1'000'000'000);
    }
};

class Intake {
  public:
    // Any thread.
    void submit(Waiting& request);
    bool empty() const { return newest_.load(std::memory_order_relaxed) == nullptr; }
    // The driver's: all that was submitted, chained by `next`, oldest first; null: nothing.
    Waiting* take();

  private:
    alignas(64) std::atomic<Waiting*> newest_{nullptr};
};

// The waiting requests of one channel. Only the driver uses it.
class PriorityQueues {
  public:
    explicit PriorityQueues(const QueueConfig& config) : config_(config) {}
    PriorityQueues(const PriorityQueues&) = delete;
    PriorityQueues& operator=(const PriorityQueues&) = delete;

    // To the end of its priority's list, with all its slices; its `since_ns` is set.
    void put(Waiting& request);
    // A slice of the request waits again, behind its others.
    void put_back(Waiting& request, Queued& slice, uint64_t now_ns);
    // The request that goes first of a level, of those whose own priority has its bit (1 << priority) in `allowed`;
    // null: none.
    Waiting* first(uint8_t level, uint8_t allowed) const;
    // Takes the first slice of a request that is listed.
    Queued* take(Waiting& request, uint64_t now_ns);
    // Takes all slices of a request that is listed, chained by `next`.
    Queued* take_all(Waiting& request);
    bool empty() const { return levels_listed_ == 0; }
    // Returns bit (1 << level) for each level at which requests wait.
    uint8_t levels() const { return levels_listed_; }
    // Promotes requests that have waited too long. Must be called every promotion_interval_ns.
    void promote(uint64_t now_ns);
    // Returns a request that had no slice taken, like all others in its list, and whose `since_ns` is not after
    // `before_ns`; or null.
    Waiting* stuck(uint64_t before_ns) const;

    uint32_t depth(Priority priority) const { return depth_[index(priority)]; }  // waiting slices by their own priority
    // Promotions by the requests' own priority.
    uint64_t promoted(Priority priority) const { return promoted_[index(priority)]; }

  private:
    struct List {
        Waiting* first = nullptr;
        Waiting* last = nullptr;
        uint64_t taken_ns = 0;  // when something of it was last taken
    };
    List& list_of(const Waiting& request) { return lists_[request.level][index(request.priority)]; }
    void append(Waiting& request, uint8_t level);
    void unlist(Waiting& request);
    void promote_level(uint8_t level, uint64_t now_ns);

    const QueueConfig config_;
    uint8_t levels_listed_ = 0;
    std::array<uint32_t, kPriorities> depth_{};
    std::array<uint32_t, kPriorities> listed_{};                    // number of requests by level
    std::array<std::array<List, kPriorities>, kPriorities> lists_;  // indexed by level, then by own priority
    std::array<uint64_t, kPriorities> promoted_{};
};

}  // namespace rove::tent
