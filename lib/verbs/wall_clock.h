// SPDX-License-Identifier: Apache-2.0
// Converts times of the runtime's clock to CLOCK_REALTIME. Units: nanoseconds.
//
// The difference between the clocks is measured at most once a second and not at each conversion. So a time converts to
// the same result until the next measurement, and the jitter of a measurement (preemption between two readings) does
// not affect each result. NTP slews the clock by at most 500 ppm, so a result is wrong by less than 0.5 ms.
#pragma once

#include <cstdint>
#include <mutex>

#include "base/spin_lock.h"

namespace rove::verbs {

class WallClock {
  public:
    static constexpr uint64_t kRenewNs = 1'000'000'000;

    // Returns the CLOCK_REALTIME at the runtime's time `runtime_ns`, given that the runtime's time is now `now_ns`.
    // `difference()` measures and returns CLOCK_REALTIME minus the runtime's clock, modulo 2^64. Any thread may call
    // it.
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
    uint64_t measured_ns_ = 0;    // on the runtime's clock
    uint64_t difference_ns_ = 0;  // modulo 2^64
};

// The wall-clock times of one CQ's completions, in the order in which they are polled.
class CompletionTimes {
  public:
    // A clock that is set back by less than this is being slewed, and the times stay the same until it has caught up.
    // If it is set back further, the times follow it.
    static constexpr uint64_t kSlewedNs = 1'000'000;

    // Returns the wall-clock time of the completion of `runtime_ns`. It is the same until another completion is
    // converted, and not earlier than the time of an earlier completion. `convert` is as in WallClock.
    uint64_t of(uint64_t runtime_ns, auto&& convert) {
        if (runtime_ns == runtime_ns_) return wall_ns_;
        const uint64_t wall_ns = convert(runtime_ns);
        const bool is_behind = wall_ns_ - wall_ns < kSlewedNs;  // modulo 2^64, so it is false if the new time is ahead
        if (!(runtime_ns > runtime_ns_ && is_behind)) wall_ns_ = wall_ns;
        runtime_ns_ = runtime_ns;
        return wall_ns_;
    }

  private:
    uint64_t runtime_ns_ = 0, wall_ns_ = 0;
};

}  // namespace rove::verbs
