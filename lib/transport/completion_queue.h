// SPDX-License-Identifier: Apache-2.0
// A completion queue: a ring whose entries carry their own sequence number, like the owner bit of a hardware CQ. The
// poller therefore reads completions of several workers without sharing another word with them.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "transport/owner.h"
#include "transport/quiescence.h"

namespace rove::transport {

// Properties of a queue's use that save locked operations, 4 to 10 ns each per completion.
struct CompletionQueueUse {
    bool one_producer = false;  // one worker at a time pushes, and its lock orders them
    bool never_armed = false;
    bool ignores_overrun = false;  // lost completions are not reported (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)
};

class CompletionQueue {
  public:
    enum class Arm : uint8_t { kNone, kSolicited, kAny };

    // Allocates room for at least `entries` completions. Returns false without memory.
    bool init(uint32_t entries, CompletionQueueUse use = {});
    CompletionQueue() = default;
    ~CompletionQueue() { delete[] ring_.load(std::memory_order_relaxed).entries(); }
    // Changes the size and keeps the queued completions. Returns 0, EINVAL if `entries` is less than their number, or
    // ENOMEM. The caller holds the CQ's lock, for which no thread that holds a worker may wait. Workers continue;
    // `grace` ends when none of them writes to a replaced ring any more. A CQ that shrinks keeps its ring, since more
    // completions may be on the way than a smaller one would hold.
    int resize(GracePeriod& grace, uint32_t entries);

    // Adds a completion; called by workers. `write` fills in an ibv_wc that is all zeros, in place: a copy would wait
    // for fields that were written one by one (8 ns). Returns false if the ring is full: the completion is lost and the
    // CQ is overrun (an async error). Sets `*notify` if the CQ was armed for this completion; the caller then sends an
    // event to its channel. `now_ns` is kept with the completion.
    bool push(bool solicited, bool* notify, auto&& write, uint64_t now_ns = 0);

    // Copies at most `count` completions to `out` and returns their number. Unless null, `times_ns` gets the time of
    // each push. Called by the application under the CQ's lock.
    int poll(ibv_wc* out, int count, uint64_t* times_ns = nullptr);
    // Arms the queue for the next completion, or for the next one that is solicited or failed. Between two events the
    // wider request holds, in either order (IBTA 11.4.2.2).
    void arm(bool solicited_only) {
        uint8_t armed = armed_.load(std::memory_order_relaxed);
        const auto wish = static_cast<uint8_t>(solicited_only ? Arm::kSolicited : Arm::kAny);
        while (!armed_.compare_exchange_weak(armed, std::max(armed, wish), std::memory_order_seq_cst)) {
        }
    }
    // Returns true if no completion is ready. Any thread may call it without the lock: a locked operation waits for all
    // earlier stores, and a thread that drives a worker stores to a port's ring that another core has (50 ns per poll).
    // An entry that is still being written may count as ready or not. After arm(), every completion that push() did not
    // notify of is visible, since push() stores the tail before its exchange.
    bool empty() const { return tail_.load(std::memory_order_acquire) == head_.load(std::memory_order_relaxed); }
    uint32_t capacity() const { return capacity_.load(std::memory_order_relaxed); }
    // Returns true if this is the first loss of a completion, since an overrun is reported once, if at all. Any worker
    // may call it.
    bool first_loss() { return !use_.ignores_overrun && !overrun_.exchange(true, std::memory_order_relaxed); }
    bool is_overrun() const { return overrun_.load(std::memory_order_relaxed); }
    // Drops the completions of a QP that adds no further ones. The caller holds the CQ's lock, as for poll().
    void forget(uint32_t qpn);

    Owner* owner = nullptr;

  private:
    // Flipped in the sequence of a dropped entry. Rings are too small for another entry to have that value.
    static constexpr uint32_t kDropped = 1u << 31;

    struct alignas(64) Entry {
        std::atomic<uint32_t> sequence;  // tail value + 1 once written, stale otherwise
        ibv_wc wc;
        uint64_t pushed_ns;
    };
    static_assert(sizeof(Entry) == 64, "one cache line");
    // The entries and their number, a power of two, in one word, which workers read while it changes. An entry's
    // address has room for the logarithm.
    class Ring {
      public:
        Ring() = default;
        Ring(Entry* entries, uint32_t size)
            : word_(reinterpret_cast<uintptr_t>(entries) | static_cast<uintptr_t>(std::countr_zero(size))) {}
        uint32_t size() const { return uint32_t{1} << (word_ % sizeof(Entry)); }
        Entry* entries() const { return reinterpret_cast<Entry*>(word_ - word_ % sizeof(Entry)); }
        Entry& operator[](uint32_t index) const { return entries()[index & (size() - 1)]; }

      private:
        uintptr_t word_ = 0;
    };
    // Makes a ring for the entries from `first` on. Without memory it has no entries.
    static Ring make_ring(uint32_t size, uint32_t first);
    bool take_tail(uint32_t& tail);

    std::atomic<Ring> ring_{};
    std::atomic<uint32_t> capacity_{0};  // maximum of entries in use, never more than a worker's ring has
    CompletionQueueUse use_;
    std::atomic<bool> overrun_{false};
    alignas(64) std::atomic<uint32_t> tail_{0};  // next entry to write
    alignas(64) std::atomic<uint32_t> head_{0};  // next entry to read
    alignas(64) std::atomic<uint8_t> armed_{0};
};

// Reserves the next entry to write. Returns false if the ring is full.
inline bool CompletionQueue::take_tail(uint32_t& tail) {
    tail = tail_.load(std::memory_order_relaxed);
    do {
        // The acquire pairs with poll()'s release of head_: the entry was read before it is written again. The
        // difference is signed: another worker and the poller may have moved both past our `tail`, and the exchange
        // then fails.
        const auto used = static_cast<int32_t>(tail - head_.load(std::memory_order_acquire));
        if (used >= static_cast<int32_t>(capacity_.load(std::memory_order_relaxed))) return false;
        if (use_.one_producer) {
            tail_.store(tail + 1, std::memory_order_relaxed);
            return true;
        }
    } while (!tail_.compare_exchange_weak(tail, tail + 1, std::memory_order_relaxed));
    return true;
}

inline bool CompletionQueue::push(bool solicited, bool* notify, auto&& write, uint64_t now_ns) {
    uint32_t tail;
    if (!take_tail(tail)) return false;
    Entry& entry = ring_.load(std::memory_order_acquire)[tail];  // pairs with resize()
    entry.wc = {};
    write(entry.wc);
    entry.pushed_ns = now_ns;
    if (use_.never_armed) {
        entry.sequence.store(tail + 1, std::memory_order_release);
        return true;
    }
    // This is sequentially consistent with arm(): either this sees the arming, or the poll after the arming sees the
    // entry.
    const bool failed = entry.wc.status != IBV_WC_SUCCESS;  // read before the entry becomes visible and is consumed
    entry.sequence.exchange(tail + 1, std::memory_order_seq_cst);
    const auto armed = static_cast<Arm>(armed_.load(std::memory_order_seq_cst));
    if (armed == Arm::kNone || (armed == Arm::kSolicited && !solicited && !failed)) return true;
    // Each arming causes one event, sent by the first worker here.
    *notify = armed_.exchange(static_cast<uint8_t>(Arm::kNone), std::memory_order_acq_rel) != 0;
    return true;
}

}  // namespace rove::transport
