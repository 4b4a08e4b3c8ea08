// SPDX-License-Identifier: Apache-2.0
// How many bytes may be posted on a rail: as many as come back within kTargetNs. More would wait in queues on the way,
// where HIGH cannot overtake LOW, where what was learned of the rail comes late, and where it is lost if the rail dies.
// The rule is that of delay-based congestion control (Swift, SIGCOMM'20): up by one slice a round trip while
// completions are in time, down in proportion when they are late, once a round trip. Units: bytes, nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace rove::tent {

class Window {
  public:
    static constexpr uint64_t kTargetNs = 2'000'000;  // several times a round trip between processes that share cores
    static constexpr uint64_t kFirst = 1 << 20, kLeast = 192 << 10, kMost = 8 << 20;

    explicit Window(uint64_t first = kFirst, uint64_t least = kLeast) : least_(least), bytes_(first) {}

    uint64_t bytes() const { return bytes_; }

    // A slice came back. `posted`: what was under way with it, itself included.
    void completed(uint64_t length, uint64_t posted, uint64_t post_ns, uint64_t now_ns,
                   uint64_t target_ns = kTargetNs) {
        const uint64_t took_ns = now_ns - post_ns;
        if (took_ns <= target_ns) {
            if (posted * 2 >= bytes_) bytes_ = std::min(kMost, bytes_ + length * length / bytes_ + 1);
        } else if (post_ns >= cut_ns_) {  // posted after the last cut: it saw its effect
            const uint64_t cut = bytes_ / 2 * (took_ns - target_ns) / took_ns;
            bytes_ = std::max(least_, bytes_ - cut);
            cut_ns_ = now_ns;
        }
    }

  private:
    const uint64_t least_;
    uint64_t bytes_;
    uint64_t cut_ns_ = 0;
};

// The least of what was seen in the last one or two periods.
class RecentLeast {
  public:
    static constexpr uint64_t kPeriodNs = 5'000'000'000;

    void add(uint64_t value, uint64_t now_ns) {
        const uint64_t period = now_ns / kPeriodNs;
        if (period != period_) least_ = {kNone, period == period_ + 1 ? least_[0] : kNone};
        period_ = period;
        least_[0] = std::min(least_[0], value);
    }
    uint64_t value_or(uint64_t none) const {
        const uint64_t least = std::min(least_[0], least_[1]);
        return least == kNone ? none : least;
    }

  private:
    static constexpr uint64_t kNone = UINT64_MAX;

    uint64_t period_ = 0;
    std::array<uint64_t, 2> least_{kNone, kNone};  // of this period and the one before
};

// While higher priorities are in use, for whichever peer, lower ones have this window: HIGH waits behind what is under
// way of them. A fixed time would be many times what HIGH takes alone on a fast rail, and too much for a slow one: it
// is half as long again as a slice takes when it finds the rail free, so that the rail has always something to carry.
class WindowBesideHigher {
  public:
    static constexpr uint64_t kMinTargetNs = 50'000;  // threads and processes take turns
    static constexpr uint64_t kMaxTargetNs = 1'000'000;
    static constexpr uint64_t kLeast = 128 << 10;  // two slices: one that is being carried, and the next

    uint64_t bytes() const { return window_.bytes(); }
    uint64_t target_ns() const {
        const uint64_t free_ns = least_ns_.value_or(kMaxTargetNs);
        return std::clamp(free_ns + free_ns / 2, kMinTargetNs, kMaxTargetNs);
    }
    // A slice of a block, of any priority, came back after so long.
    void saw(uint64_t took_ns, uint64_t now_ns) { least_ns_.add(took_ns, now_ns); }
    // As Window::completed(), of a slice that has this window.
    void completed(uint64_t length, uint64_t posted, uint64_t post_ns, uint64_t now_ns) {
        window_.completed(length, posted, post_ns, now_ns, target_ns());
    }

  private:
    Window window_{kLeast, kLeast};
    RecentLeast least_ns_;
};

}  // namespace rove::tent
