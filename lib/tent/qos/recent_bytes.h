// SPDX-License-Identifier: Apache-2.0
// Counts recent bytes that were handed to a network and have not completed, by priority and over all peers: the data
// that HIGH finds ahead of it. Bytes in flight for longer than one or two periods are stuck at their peer and do not
// delay other peers, so they no longer count. One thread at a time may use it. Units: bytes, nanoseconds of
// CLOCK_MONOTONIC.
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
    // The bytes have completed. `since_ns` is the time that was passed to add().
    void remove(Priority priority, uint64_t bytes, uint64_t since_ns) {
        if (is_recent(since_ns)) of(since_ns, priority) -= bytes;
    }
    // Returns the bytes of the priorities after `first`, up to and including `priority`.
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
    // The clock readings of threads differ slightly, so the period never moves backwards.
    void begin_period(uint64_t now_ns) {
        const uint64_t period = now_ns / kPeriodNs;
        if (period <= period_) return;
        bytes_[period & 1] = {};
        if (period - period_ > 1) bytes_[(period + 1) & 1] = {};
        period_ = period;
    }

    uint64_t period_ = 0;
    // This period and the one before, by the period's lowest bit.
    std::array<std::array<uint64_t, kPriorities>, 2> bytes_{};
};

}  // namespace rove::tent
