// SPDX-License-Identifier: Apache-2.0
// Tests wall-clock times of completions with scripted measurements.
#include "verbs/wall_clock.h"

#include <gtest/gtest.h>

namespace rove::verbs {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

TEST(WallClock, MeasuresOnceASecond) {
    WallClock clock;
    int measured = 0;
    uint64_t difference = 1000;
    const auto convert = [&](uint64_t ns, uint64_t now) {
        return clock.convert(ns, now, [&] {
            ++measured;
            return difference;
        });
    };
    EXPECT_EQ(convert(5, 10), 1005u);
    difference = 1007;
    EXPECT_EQ(convert(5, 20), 1005u) << "the same whenever it is asked";
    EXPECT_EQ(convert(6, 9 + kSecond), 1006u);
    EXPECT_EQ(measured, 1);
    EXPECT_EQ(convert(6, 10 + kSecond), 1013u);
    EXPECT_EQ(measured, 2);
}

struct CompletionTimesTest : testing::Test {
    uint64_t of(uint64_t ns) {
        return times.of(ns, [this](uint64_t ns) { return ns + difference; });
    }
    CompletionTimes times;
    uint64_t difference = 100 * kSecond;
};

TEST_F(CompletionTimesTest, StayWhatTheyAre) {
    const uint64_t first = of(1000);
    EXPECT_EQ(first, 100 * kSecond + 1000);
    difference += 50;
    EXPECT_EQ(of(1000), first);
    EXPECT_EQ(of(1001), 100 * kSecond + 1051) << "another completion";
}

TEST_F(CompletionTimesTest, DoNotGoBackWhileTheClockIsSlewed) {
    const uint64_t first = of(1000);
    difference -= 5000;
    EXPECT_EQ(of(2000), first);
    EXPECT_EQ(of(6000), first);
    EXPECT_EQ(of(6001), first + 1);
}

TEST_F(CompletionTimesTest, FollowAClockThatIsSet) {
    const uint64_t first = of(1000);
    difference -= kSecond;
    EXPECT_EQ(of(1001), first + 1 - kSecond);
    difference += 2 * kSecond;
    EXPECT_EQ(of(1002), first + 2 + kSecond);
}

TEST_F(CompletionTimesTest, AnOlderCompletionIsEarlier) {
    const uint64_t first = of(1000);
    EXPECT_EQ(of(900), first - 100) << "of another queue pair and another worker";
}

}  // namespace
}  // namespace rove::verbs
