// SPDX-License-Identifier: Apache-2.0
// The lock of the thread that runs a worker's rounds: the thread that holds it is the worker until it unlocks.
//
// Application threads in ibv_poll_cq, the progress thread and lcores only try to take it, and fail while a control call
// waits. Control calls wait for it, for one round at most, so a sequence of driving threads cannot starve them. A
// thread that only needs to know that no earlier round still uses something waits for a grace period, which stops no
// worker.
#pragma once

#include <rte_pause.h>
#include <sched.h>

#include <atomic>
#include <cstdint>

namespace rove {

class DriveLock {
  public:
    bool try_lock() {
        if (wanted() || held_.load(std::memory_order_relaxed)) return false;
        // Acquire pairs with the release in unlock(): this round sees everything that the previous holder did.
        return !held_.exchange(true, std::memory_order_acquire);
    }
    void unlock() {
        end_round();
        held_.store(false, std::memory_order_release);
    }
    // Ends a round. A thread that keeps the lock for several rounds calls it between them; unlock() includes it.
    // Returns true if this ended a grace period that was requested.
    bool end_round() {
        // Acquire pairs with ask(): the next round sees everything before the request. Release pairs with has_ended():
        // all that this round did happened before the answer.
        const uint32_t asked = asked_.load(std::memory_order_acquire);
        if (asked == answered_.load(std::memory_order_relaxed)) return false;
        answered_.store(asked, std::memory_order_release);
        return true;
    }

    // A grace period (transport/quiescence.h): call ask(), then wait until has_ended() returns true for the number that
    // ask() returned. The thread that holds the lock answers at the end of its round. If the lock is free, no round is
    // running, and the next holder sees everything done before because it acquires the lock.
    uint32_t ask() { return asked_.fetch_add(1, std::memory_order_acq_rel) + 1; }
    bool has_ended(uint32_t asked) {
        if (static_cast<int32_t>(answered_.load(std::memory_order_acquire) - asked) >= 0) return true;
        if (held_.load(std::memory_order_relaxed) || held_.exchange(true, std::memory_order_acquire)) return false;
        unlock();
        return true;
    }

    // Takes the lock for a control call. The holder may share our core, so spinning alone would last until its time
    // slice ends.
    void lock() {
        waiters_.fetch_add(1, std::memory_order_relaxed);
        for (uint32_t spins = 0;
             held_.load(std::memory_order_relaxed) || held_.exchange(true, std::memory_order_acquire);) {
            if (++spins % kSpinsBeforeYield == 0) sched_yield();
            rte_pause();
        }
        waiters_.fetch_sub(1, std::memory_order_relaxed);
    }
    // Returns true if a control call waits. A relaxed load suffices because this is a hint and the exchange decides; a
    // stale value costs the waiting call one round.
    bool wanted() const { return waiters_.load(std::memory_order_relaxed) != 0; }

    // Keeps driving threads away for good, as a control call that waits forever would. Control calls still get the
    // lock. A driving thread that checked before this call may still get in.
    void block_drivers() { waiters_.fetch_add(1, std::memory_order_relaxed); }
    // Returns true if a thread holds the lock. The load is relaxed: it serves to wait for the holder and orders
    // nothing.
    bool held() const { return held_.load(std::memory_order_relaxed); }

  private:
    static constexpr uint32_t kSpinsBeforeYield = 64;  // about 1 us, a typical round
    std::atomic<bool> held_{false};
    std::atomic<uint32_t> waiters_{0};
    std::atomic<uint32_t> asked_{0}, answered_{0};
};

}  // namespace rove
