// SPDX-License-Identifier: Apache-2.0
// Converts times of the runtime's clock to times of CLOCK_REALTIME. Units: nanoseconds.
//
// The difference between the clocks is measured once a second at most, not at each conversion: a time converts to the
// same result until the next measurement, and the jitter of a measurement (a preemption between two readings) does not
// come into each result. NTP slews the clock by 500 ppm at most, so a result is off by less than 0.5 ms.
#pragma once

#include <cstdint>
#include <mutex>

#include "base/spin_lock.h"

namespace rove::verbs {

class WallClock {
  public:
    static constexpr uint64_t kRenewNs = 1'000'000'000;

    // Returns what CLOCK_REALTIME says when the runtime's clock says `runtime_ns`; it is `now_ns` now. `difference()`
    // measures: it returns CLOCK_REALTIME less the runtime's clock, modulo 2^64. Any thread.
    uint64_t convert(uint64_t runtime_ns, uint64_t now_ns, auto&& difference) {
        const std::lock_guard guard(lock_);
        if (!measured_ || now_ns - measured_ns_ >= kRenewNs) {
            difference_ns_ = difference();
            measured_ns_ = now_ns;
            measured_ = true;
        }
        return runtime_ns + difference_ns_;
    }

  private:
    SpinLock lock_;
    bool measured_ = false;
    uint64_t measured_ns_ = 0;    // by the runtime's clock
    uint64_t difference_ns_ = 0;  // modulo 2^64
};

// The wall-clock times of one CQ's completions in the order in which they are polled.
class CompletionTimes {
  public:
    // A clock that is set back by less than this is being slewed: the times stand still until it has caught up. If it
    // is set back by more, they follow it.
    static constexpr uint64_t kSlewedNs = 1'000'000;

    // Returns the wall-clock time of the completion of `runtime_ns`. It is the same each time until another completion
    // is asked for, and not before that of an earlier one. `convert` as WallClock has it.
    uint64_t of(uint64_t runtime_ns, auto&& convert) {
        if (runtime_ns == runtime_ns_) return wall_ns_;
        const uint64_t wall_ns = convert(runtime_ns);
        const bool is_behind = wall_ns_ - wall_ns < kSlewedNs;  // modulo 2^64: not if it is ahead
        if (!(runtime_ns > runtime_ns_ && is_behind)) wall_ns_ = wall_ns;
        runtime_ns_ = runtime_ns;
        return wall_ns_;
    }

  private:
    uint64_t runtime_ns_ = 0, wall_ns_ = 0;
};

}  // namespace rove::verbs
