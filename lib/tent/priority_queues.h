// SPDX-License-Identifier: Apache-2.0
// The three queues of a worker (T-10, T-11): any thread submits, the worker takes HIGH before MEDIUM before LOW.
// Units: nanoseconds of CLOCK_MONOTONIC.
//
// 1. A submitter links what it has of one priority and puts it in front of what is there already: one compare-and-swap.
//    The worker takes all at once and turns it round. (An rte_ring would do, but its enqueuers wait for each other: one
//    that lost its core holds up all.) There is always room: it is counted once, by the pool of slices (task.h), which
//    refuses a batch whole.
// 2. The worker has lists of its own, by level and by priority. Promotion moves entries between those, so it needs no
//    atomics; an entry keeps its priority, for the gate of the slots.
// 3. Waiting too long is: not having been taken for priority_promotion_timeout_us, while nothing of the same level was
//    taken either. A long LOW queue that moves on is not starved: promoted, all of it would be in front of HIGH within
//    two timeouts, and there were no priorities any more.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tent/types.h"

namespace rove::tent {

// What is queued derives from this; it belongs to the queues from submit() until pop().
struct Queued {
    Queued* next = nullptr;
    uint64_t since_ns = 0;  // when it came to the level where it is
    Priority priority = Priority::kHigh;
};

// Entries of one priority that are submitted together.
struct Chain {
    Queued* newest = nullptr;
    Queued* oldest = nullptr;

    void add(Queued* entry, uint64_t now_ns) {
        entry->since_ns = now_ns;
        entry->next = newest;
        newest = entry;
        if (oldest == nullptr) oldest = entry;
    }
};

struct QueueConfig {
    uint64_t promotion_timeout_ns = 10'000'000;  // priority_promotion_timeout_us; 0: never
};

class PriorityQueues {
  public:
    static constexpr uint64_t kPromotionCheckNs = 1'000'000;  // as documented

    explicit PriorityQueues(const QueueConfig& config);
    PriorityQueues(const PriorityQueues&) = delete;
    PriorityQueues& operator=(const PriorityQueues&) = delete;

    // Any thread. `chain` is not empty.
    void submit(Priority priority, const Chain& chain);

    // The following are the worker's only.
    // As submit(), for a submitter that is the worker.
    void put(Priority priority, const Chain& chain);
    // Takes the entry that goes first, of those whose own priority has its bit (1 << priority) in `allowed`; null:
    // none.
    Queued* pop(uint8_t allowed, uint64_t now_ns);
    // Puts back an entry, at the end of the queue of its own priority.
    void requeue(Queued* entry, uint64_t now_ns);
    bool empty() const {
        for (const auto& newest : newest_)
            if (newest.load(std::memory_order_relaxed) != nullptr) return false;
        return (listed_[0] | listed_[1] | listed_[2]) == 0;
    }
    // Promotes what has waited too long. Does nothing before kPromotionCheckNs have passed since it last did.
    void promote(uint64_t now_ns);

    uint32_t depth(Priority priority);        // entries waiting, by own priority
    uint64_t promoted(Priority priority) const { return promoted_[index(priority)]; }  // promotions of its entries

  private:
    struct List {
        Queued* first = nullptr;
        Queued* last = nullptr;
        void append(Queued* entry);
        Queued* take_first();
    };
    void collect(uint8_t priority);
    void list(uint8_t priority, Queued* newest);
    void append(Queued* entry, uint8_t level, uint64_t now_ns);
    void promote_level(uint8_t level, uint64_t now_ns);

    QueueConfig config_;
    // What submitters write, by priority. One cache line for all: the worker looks at it all the time.
    alignas(64) std::array<std::atomic<Queued*>, kPriorities> newest_{};
    alignas(64) uint64_t checked_ns_ = 0;
    std::array<uint32_t, kPriorities> listed_{};  // entries in levels_, by own priority
    std::array<std::array<List, kPriorities>, kPriorities> levels_;  // by level, then by own priority
    std::array<uint64_t, kPriorities> served_ns_{};                  // when something of a level was last taken
    std::array<uint64_t, kPriorities> promoted_{};
};

}  // namespace rove::tent
