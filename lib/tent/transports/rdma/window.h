// SPDX-License-Identifier: Apache-2.0
// The bytes that may be posted on a rail: as many as complete within kTargetNs. More would wait in queues on the way.
// There HIGH could not overtake LOW, the rail's bandwidth would be learned late, and the bytes would be lost if the
// rail died. The rule is one of delay-based congestion control (Swift, SIGCOMM'20): the window grows by one slice per
// round trip while completions are in time, and shrinks in proportion when they are late, once per round trip. Units:
// bytes, nanoseconds.
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

    // A slice completed. `posted` is the number of bytes that were in flight with it, including its own.
    void completed(uint64_t length, uint64_t posted, uint64_t post_ns, uint64_t now_ns,
                   uint64_t target_ns = kTargetNs) {
        const uint64_t took_ns = now_ns - post_ns;
        if (took_ns <= target_ns) {
            if (posted * 2 >= bytes_) bytes_ = std::min(kMost, bytes_ + length * length / bytes_ + 1);
        } else if (post_ns >= cut_ns_) {  // posted after the last cut, so it saw its effect
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

// The least value of the last one or two periods.
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
    std::array<uint64_t, 2> least_{kNone, kNone};  // this period and the one before
};

// The window of lower priorities while higher ones are in use, for any peer: HIGH waits behind the bytes that they have
// in flight. A fixed time would be many times the duration of HIGH alone on a fast rail, and unsuitable for a slow one.
// The target is 1.5 times the time of a slice that finds the rail free, so that the rail always has something to carry.
class WindowBesideHigher {
  public:
    static constexpr uint64_t kMinTargetNs = 50'000;  // since threads and processes take turns
    static constexpr uint64_t kMaxTargetNs = 1'000'000;
    static constexpr uint64_t kLeast = 128 << 10;  // two slices: the one being carried, and the next

    uint64_t bytes() const { return window_.bytes(); }
    uint64_t target_ns() const {
        const uint64_t free_ns = least_ns_.value_or(kMaxTargetNs);
        return std::clamp(free_ns + free_ns / 2, kMinTargetNs, kMaxTargetNs);
    }
    // A slice of at least a block, of any priority, completed after `took_ns`.
    void saw(uint64_t took_ns, uint64_t now_ns) { least_ns_.add(took_ns, now_ns); }
    // Does the work of Window::completed() for a slice to which this window applies.
    void completed(uint64_t length, uint64_t posted, uint64_t post_ns, uint64_t now_ns) {
        window_.completed(length, posted, post_ns, now_ns, target_ns());
    }

  private:
    Window window_{kLeast, kLeast};
    RecentLeast least_ns_;
};

}  // namespace rove::tent
