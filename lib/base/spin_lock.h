// SPDX-License-Identifier: Apache-2.0
// A lock for sections of a few instructions, taken once per call. It is rarely contended, and costs one atomic exchange
// if it is not.
#pragma once

#include <sched.h>

#include <atomic>

namespace rove {

class SpinLock {
  public:
    void lock() {
        // Spins briefly and then yields: with fewer cores than threads, the holder may not be running.
        for (int attempt = 0; flag_.test_and_set(std::memory_order_acquire); ++attempt) {
            if (attempt < 64) {
                __builtin_ia32_pause();
            } else {
                sched_yield();
            }
        }
    }
    void unlock() { flag_.clear(std::memory_order_release); }

  private:
    std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
};

}  // namespace rove
