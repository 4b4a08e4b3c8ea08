// SPDX-License-Identifier: Apache-2.0
// Who drives a worker: the thread that holds this lock is the worker until it lets go.
//
// Drivers (application threads in ibv_poll_cq, the background thread, an lcore) only try, and keep away while a control
// call waits; control calls wait, at most for one round. So a control call is never starved by drivers that come and
// go. Who only must know that what a round may have seen is not used any more waits for a grace period instead, and
// stops nobody.
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
        // Acquire pairs with the release in unlock(): the round sees all that the last holder did.
        return !held_.exchange(true, std::memory_order_acquire);
    }
    void unlock() {
        end_round();
        held_.store(false, std::memory_order_release);
    }
    // By whoever keeps it from round to round, between two of them. (Whoever gives it up need not.) Returns whether
    // somebody waited for a grace period that has ended with this.
    bool end_round() {
        // Acquire pairs with ask(): the next round sees what was done before that. Release pairs with has_answered():
        // all that this round did was done before.
        const uint32_t asked = asked_.load(std::memory_order_acquire);
        if (asked == answered_.load(std::memory_order_relaxed)) return false;
        answered_.store(asked, std::memory_order_release);
        return true;
    }

    // A grace period (transport/standstill.h): ask(), then wait until has_ended() says so of what ask() gave. Who holds
    // the lock answers at the end of its round. If nobody holds it, nobody is in a round, and whoever comes next sees
    // by the lock's own order what was done before.
    uint32_t ask() { return asked_.fetch_add(1, std::memory_order_acq_rel) + 1; }
    bool has_ended(uint32_t asked) {
        if (static_cast<int32_t>(answered_.load(std::memory_order_acquire) - asked) >= 0) return true;
        if (held_.load(std::memory_order_relaxed) || held_.exchange(true, std::memory_order_acquire)) return false;
        unlock();
        return true;
    }

    // Control calls. The holder may share our core, so spinning alone would wait for its time slice to end.
    void lock() {
        waiters_.fetch_add(1, std::memory_order_relaxed);
        for (uint32_t spins = 0;
             held_.load(std::memory_order_relaxed) || held_.exchange(true, std::memory_order_acquire);) {
            if (++spins % kSpinsBeforeYield == 0) sched_yield();
            rte_pause();
        }
        waiters_.fetch_sub(1, std::memory_order_relaxed);
    }
    // Whether a control call waits. Relaxed: it is a hint, the exchange decides; seen late it costs the waiter a round.
    bool wanted() const { return waiters_.load(std::memory_order_relaxed) != 0; }

    // For good: drivers stay away, as for a control call that waits for ever; control calls go on as before. A driver
    // that looked before may still get in.
    void block_drivers() { waiters_.fetch_add(1, std::memory_order_relaxed); }
    // Whether somebody is inside. Relaxed: to wait with, not to rely on.
    bool held() const { return held_.load(std::memory_order_relaxed); }

  private:
    static constexpr uint32_t kSpinsBeforeYield = 64;  // about 1 us, a typical round
    std::atomic<bool> held_{false};
    std::atomic<uint32_t> waiters_{0};
    std::atomic<uint32_t> asked_{0}, answered_{0};
};

}  // namespace rove
