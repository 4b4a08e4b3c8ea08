// SPDX-License-Identifier: Apache-2.0
// Bytes that were given to a network lately and have not come back, by priority, of all peers: what HIGH finds in front
// of it. What takes longer than one or two periods is stuck at its peer, and is nobody else's concern. One thread at a
// time. Units: bytes, nanoseconds of CLOCK_MONOTONIC.
#pragma once

#include <array>
#include <cstdint>

#include "tent/config/types.h"

namespace rove::tent {

class RecentBytes {
  public:
    static constexpr uint64_t kPeriodNs = 5'000'000;

    void add(Priority priority, uint64_t bytes, uint64_t now_ns) {
        begin_period(now_ns);
        if (is_recent(now_ns)) of(now_ns, priority) += bytes;
    }
    // They have come back; `since_ns` is what add() was told.
    void remove(Priority priority, uint64_t bytes, uint64_t since_ns) {
        if (is_recent(since_ns)) of(since_ns, priority) -= bytes;
    }
    // Of `priority` and of those before it, but not of `first` and before that.
    uint64_t behind(uint8_t first, Priority priority, uint64_t now_ns) {
        begin_period(now_ns);
        uint64_t bytes = 0;
        for (const auto& one : bytes_)
            for (size_t i = first + 1u; i <= index(priority); ++i) bytes += one[i];
        return bytes;
    }

  private:
    bool is_recent(uint64_t ns) const { return period_ - ns / kPeriodNs < 2; }
    uint64_t& of(uint64_t ns, Priority priority) { return bytes_[ns / kPeriodNs & 1][index(priority)]; }
    // Times of threads differ a little: it never goes back.
    void begin_period(uint64_t now_ns) {
        const uint64_t period = now_ns / kPeriodNs;
        if (period <= period_) return;
        bytes_[period & 1] = {};
        if (period - period_ > 1) bytes_[(period + 1) & 1] = {};
        period_ = period;
    }

    uint64_t period_ = 0;
    std::array<std::array<uint64_t, kPriorities>, 2> bytes_{};  // of this period (by its lowest bit) and the one before
};

}  // namespace rove::tent
