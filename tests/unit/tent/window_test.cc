// SPDX-License-Identifier: Apache-2.0
// Tests the bytes that may be in flight on a rail, and in virtual time the latency of HIGH with LOW traffic.
#include "tent/transports/rdma/window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace rove::tent {

namespace {

constexpr uint64_t kOneSlice = 65'536, kUs = 1'000;

}  // namespace

TEST(Window, GrowsWhileInTimeAndUsed) {
    Window window;
    for (int i = 0; i < 1000; ++i) window.completed(kOneSlice, kOneSlice, 0, Window::kTargetNs / 2);
    EXPECT_EQ(window.bytes(), Window::kFirst) << "one slice at a time says nothing of what fits";
    for (int i = 0; i < 100000; ++i) window.completed(kOneSlice, window.bytes(), 0, Window::kTargetNs / 2);
    EXPECT_EQ(window.bytes(), Window::kMost);
}

TEST(Window, ShrinksOnceARoundTrip) {
    Window window;
    const uint64_t now = 10 * Window::kTargetNs;
    window.completed(kOneSlice, window.bytes(), 0, now);
    const uint64_t once = window.bytes();
    EXPECT_LT(once, Window::kFirst);
    EXPECT_GE(once, Window::kFirst / 2);
    window.completed(kOneSlice, once, 1, now + 1);
    EXPECT_EQ(window.bytes(), once) << "it was posted before the cut";
    for (uint64_t i = 1; i < 100; ++i) window.completed(kOneSlice, once, i * now, (i + 1) * now);
    EXPECT_EQ(window.bytes(), Window::kLeast);
}

TEST(RecentLeast, ForgetsAfterAPeriodOrTwo) {
    constexpr uint64_t kPeriod = RecentLeast::kPeriodNs;
    RecentLeast least;
    EXPECT_EQ(least.value_or(7), 7u);
    least.add(20, 10 * kPeriod);
    least.add(30, 11 * kPeriod - 1);
    EXPECT_EQ(least.value_or(7), 20u);
    least.add(40, 11 * kPeriod);
    EXPECT_EQ(least.value_or(7), 20u);
    least.add(50, 12 * kPeriod);
    EXPECT_EQ(least.value_or(7), 40u);
    least.add(60, 20 * kPeriod);
    EXPECT_EQ(least.value_or(7), 60u);
}

TEST(WindowBesideHigher, IsForHalfAsLongAgainAsAFreeRailTakes) {
    WindowBesideHigher window;
    EXPECT_EQ(window.target_ns(), WindowBesideHigher::kMaxTargetNs) << "nothing is known";
    window.saw(400 * kUs, 0);
    window.saw(900 * kUs, 0);
    EXPECT_EQ(window.target_ns(), 600 * kUs);
    window.saw(kUs, 0);
    EXPECT_EQ(window.target_ns(), WindowBesideHigher::kMinTargetNs);
}

namespace {

// A rail with a fixed rate that serves posted slices in order, and an engine that keeps it full of LOW slices while
// HIGH slices come at random times.
class FullRail {
  public:
    FullRail(double gbps, uint64_t delay_ns)
        : slice_ns_(static_cast<uint64_t>(kOneSlice * 8 / gbps)), delay_ns_(delay_ns) {}

    // Returns the 99th percentile of the latency of HIGH slices.
    uint64_t p99_ns(bool beside_low) {
        std::mt19937_64 random(1);
        std::exponential_distribution<double> pause(1.0 / (4.0 * static_cast<double>(slice_ns_ + delay_ns_)));
        std::vector<uint64_t> took;
        uint64_t next_ns = 0;
        while (took.size() < 10'000) {
            while (beside_low && low_bytes_ < window_.bytes()) post(false);
            if (under_way_.empty() || next_ns < under_way_.front().done_ns) {
                now_ns_ = std::max(now_ns_, next_ns);
                post(true);
                next_ns = now_ns_ + static_cast<uint64_t>(pause(random)) + 1;
                continue;
            }
            const Posted done = under_way_.front();
            under_way_.pop_front();
            now_ns_ = done.done_ns;
            window_.saw(now_ns_ - done.post_ns, now_ns_);
            if (done.is_high) {
                took.push_back(now_ns_ - done.post_ns);
            } else {
                window_.completed(kOneSlice, low_bytes_, done.post_ns, now_ns_);
                low_bytes_ -= kOneSlice;
                low_carried_ += kOneSlice;
            }
        }
        std::sort(took.begin(), took.end());
        return took[took.size() * 99 / 100];
    }
    // Returns the fraction of the rail's time that LOW uses.
    double low_share() const {
        return static_cast<double>(low_carried_ / kOneSlice * slice_ns_) / static_cast<double>(now_ns_);
    }

  private:
    struct Posted {
        bool is_high;
        uint64_t post_ns, done_ns;
    };

    void post(bool is_high) {
        busy_until_ns_ = std::max(busy_until_ns_, now_ns_ + delay_ns_ / 2) + slice_ns_;
        under_way_.push_back({is_high, now_ns_, busy_until_ns_ + delay_ns_ / 2});
        if (!is_high) low_bytes_ += kOneSlice;
    }

    const uint64_t slice_ns_, delay_ns_;
    WindowBesideHigher window_;
    std::deque<Posted> under_way_;
    uint64_t now_ns_ = 0, busy_until_ns_ = 0, low_bytes_ = 0, low_carried_ = 0;
};

}  // namespace

TEST(WindowBesideHigher, OnRailsOfAnySpeedHighTakesNoMoreThanThreeTimesAsLong) {
    for (const double gbps : {0.2, 2.0, 20.0, 100.0}) {
        for (const uint64_t delay_ns : {20 * kUs, 100 * kUs}) {
            const uint64_t alone_ns = FullRail(gbps, delay_ns).p99_ns(false);
            FullRail rail(gbps, delay_ns);
            const uint64_t beside_ns = rail.p99_ns(true);
            EXPECT_LE(beside_ns, 3 * alone_ns) << gbps << " Gb/s, " << delay_ns << " ns";
            EXPECT_GE(rail.low_share(), 0.6) << gbps << " Gb/s, " << delay_ns << " ns";
        }
    }
}

}  // namespace rove::tent
