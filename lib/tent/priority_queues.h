// SPDX-License-Identifier: Apache-2.0
// The three queues of a worker (T-10, T-11): any thread submits, the worker takes HIGH before MEDIUM before LOW.
// Units: nanoseconds of CLOCK_MONOTONIC.
//
// 1. A submitter links its batch and puts it, of each priority, in front of what is there already: one
// compare-and-swap.
//    The worker takes all at once and turns it round. (An rte_ring would do, but its enqueuers wait for each other: one
//    that lost its core holds up all.) Room is counted apart: a batch reserves it at all priorities that it needs, or
//    gives it back and is refused whole.
// 2. The worker has lists of its own, by level and by priority. Promotion moves entries between those, so it needs no
//    atomics; an entry keeps its priority, for the gate of the slots.
// 3. Waiting too long is: not having been taken for priority_promotion_timeout_us, while nothing of the same level was
//    taken either. A long LOW queue that moves on is not starved: promoted, all of it would be in front of HIGH within
//    two timeouts, and there were no priorities any more.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "tent/status.h"
#include "tent/types.h"

namespace rove::tent {

// What is queued derives from this; it belongs to the queues from submit() until pop().
struct Queued {
    Queued* next = nullptr;
    uint64_t since_ns = 0;  // when it came to the level where it is
    Priority priority = Priority::kHigh;
};

struct QueueConfig {
    uint64_t promotion_timeout_ns = 10'000'000;  // priority_promotion_timeout_us; 0: never
    uint32_t capacity = 8192;                    // entries of each priority
};

class PriorityQueues {
  public:
    static constexpr uint64_t kPromotionCheckNs = 1'000'000;  // as documented

    explicit PriorityQueues(const QueueConfig& config);
    PriorityQueues(const PriorityQueues&) = delete;
    PriorityQueues& operator=(const PriorityQueues&) = delete;

    // Any thread. All entries, each in the queue of its own priority, or none: kTooManyRequests. kInvalidArgument: a
    // priority that does not exist, or more entries of one priority than a queue has room for when empty.
    Status submit(std::span<Queued* const> batch, uint64_t now_ns);

    // The following are the worker's only.
    // Takes the entry that goes first, of those whose own priority has its bit (1 << priority) in `allowed`; null:
    // none.
    Queued* pop(uint8_t allowed, uint64_t now_ns);
    // Puts back an entry, at the end of the queue of its own priority, whether there is room or not.
    void requeue(Queued* entry, uint64_t now_ns);
    bool empty() const;
    // Promotes what has waited too long. Does nothing before kPromotionCheckNs have passed since it last did.
    void promote(uint64_t now_ns);

    // Any thread.
    uint32_t depth(Priority priority) const;     // entries waiting, by own priority
    uint64_t promoted(Priority priority) const;  // promotions of entries of this priority
    uint64_t rejected() const { return rejected_.load(std::memory_order_relaxed); }  // batches

  private:
    struct List {
        Queued* first = nullptr;
        Queued* last = nullptr;
        void append(Queued* entry);
        Queued* take_first();
    };
    // What submitters share, by priority.
    struct alignas(64) Arrivals {
        std::atomic<Queued*> newest{nullptr};
        std::atomic<int64_t> submitted{0};  // entries
    };

    void collect(uint8_t priority);
    void count_taken(uint8_t priority, int64_t by);
    void append(Queued* entry, uint8_t level, uint64_t now_ns);
    void promote_level(uint8_t level, uint64_t now_ns);

    QueueConfig config_;
    std::array<Arrivals, kPriorities> arrivals_;
    std::array<std::array<List, kPriorities>, kPriorities> levels_;  // by level, then by own priority
    std::array<uint64_t, kPriorities> served_ns_{};                  // when something of a level was last taken
    uint64_t checked_ns_ = 0;
    size_t listed_ = 0;  // entries in levels_
    // Entries, by own priority: taken, less those put back. The worker's alone, so that no locked operation counts them.
    std::array<std::atomic<int64_t>, kPriorities> taken_{};
    std::array<std::atomic<uint64_t>, kPriorities> promoted_{};
    std::atomic<uint64_t> rejected_{0};
};

}  // namespace rove::tent
