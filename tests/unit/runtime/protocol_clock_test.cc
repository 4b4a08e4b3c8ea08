// SPDX-License-Identifier: Apache-2.0
// Tests which time counts for the protocol.
#include "runtime/protocol_clock.h"

#include <gtest/gtest.h>

#include <utility>

namespace rove::datapath {
namespace {

constexpr uint64_t kLook = ProtocolClock::kLookNs, kStep = ProtocolClock::kMaxStepNs, kGone = ProtocolClock::kGoneNs;
constexpr uint64_t kMillisecond = 1'000'000;

class ProtocolClockTest : public testing::Test {
  protected:
    // Runs a round every 10 us for `ns`. Returns the protocol time that passed.
    uint64_t pass(uint64_t ns, bool stalled = false) {
        const uint64_t before = now_;
        for (const uint64_t end = real_ + ns; real_ < end;) round(10'000, stalled);
        return now_ - before;
    }
    uint64_t round(uint64_t after_ns, bool stalled = false) {
        real_ += after_ns;
        const uint64_t now = clock_.begin_round(real_, [&] { return stalled; });
        EXPECT_GE(now, now_);  // never runs backwards
        if (now_ == 0) missed_ = clock_.missed_ns();
        return std::exchange(now_, now);
    }

    ProtocolClock clock_;
    uint64_t real_ = kMillisecond, now_ = 0;
    uint64_t missed_ = 0;  // missed time before the first round
};

TEST_F(ProtocolClockTest, RunsWhileRoundsAreMadeAndFramesLeave) {
    round(0);
    EXPECT_EQ(pass(100 * kMillisecond), 100 * kMillisecond);
}

TEST_F(ProtocolClockTest, CountsLittleOfTheTimeInWhichNoRoundIsMade) {
    round(0);
    pass(kMillisecond);
    const uint64_t before = now_;
    round(300 * kMillisecond);
    EXPECT_LE(now_ - before, kStep);
    EXPECT_EQ(pass(kMillisecond), kMillisecond);
}

TEST_F(ProtocolClockTest, CountsWhatWasSleptUntilAFrameWouldHaveRung) {
    round(0);
    pass(kMillisecond);
    const uint64_t before = now_;
    clock_.begin_rest(real_, real_ + 300 * kMillisecond);
    clock_.end_rest(300 * kMillisecond);
    round(310 * kMillisecond);
    EXPECT_EQ(now_ - before, 301 * kMillisecond) << "but not that the core came late";
    EXPECT_EQ(pass(kMillisecond), kMillisecond);
    // Timers for a peer that does not read also expire in time.
    for (int i = 0; i < 30; ++i) {
        clock_.begin_rest(real_, UINT64_MAX);
        clock_.end_rest(100 * kMillisecond);
        round(100 * kMillisecond, true);
    }
    EXPECT_GE(now_ - before, 1100 * kMillisecond);
}

// The application polls every 10 ms while the progress thread sleeps until a frame rings.
TEST_F(ProtocolClockTest, CountsASleepAlsoInTheRoundsOfOtherThreads) {
    round(0);
    pass(kMillisecond);
    const uint64_t before = now_;
    clock_.begin_rest(real_, real_ + 95 * kMillisecond);
    for (int i = 0; i < 9; ++i) round(10 * kMillisecond);
    EXPECT_EQ(now_ - before, 90 * kMillisecond);
    round(10 * kMillisecond);
    EXPECT_EQ(now_ - before, 96 * kMillisecond) << "the core came late";
    clock_.end_rest(95 * kMillisecond);
    round(10 * kMillisecond);
    EXPECT_EQ(now_ - before, 97 * kMillisecond) << "and what has counted does not count again";
    clock_.begin_rest(real_, real_ + 50 * kMillisecond);
    clock_.end_rest(0);
    round(10 * kMillisecond);
    EXPECT_EQ(now_ - before, 98 * kMillisecond) << "it did not sleep";
    EXPECT_EQ(clock_.missed_ns() - missed_, 4 * kMillisecond + 9 * kMillisecond + 9 * kMillisecond);
}

TEST_F(ProtocolClockTest, TimeWithoutRoundsIsMissedIfThePeersTookOurFrames) {
    round(0);
    pass(kMillisecond);
    EXPECT_EQ(clock_.missed_ns(), missed_);
    round(300 * kMillisecond);
    EXPECT_EQ(clock_.missed_ns() - missed_, 299 * kMillisecond);
    round(300 * kMillisecond, true);
    EXPECT_EQ(clock_.missed_ns() - missed_, 299 * kMillisecond) << "they did not";
    pass(100 * kMillisecond, true);
    EXPECT_EQ(clock_.missed_ns() - missed_, 299 * kMillisecond) << "a stall is not missed";
}

TEST_F(ProtocolClockTest, StandsStillWhileFramesLieAtThePort) {
    round(0);
    pass(kMillisecond);
    EXPECT_LE(pass(500 * kMillisecond, true), 2 * kLook);
    EXPECT_GE(pass(kMillisecond), kMillisecond - 2 * kLook);
}

TEST_F(ProtocolClockTest, RunsAgainWhenThePeerIsGone) {
    round(0);
    EXPECT_LE(pass(kGone - kMillisecond, true), 2 * kLook);
    EXPECT_GE(pass(600 * kMillisecond, true), 600 * kMillisecond - 2 * kMillisecond);
    // The clock stalls again after the next sign of life.
    pass(kMillisecond);
    EXPECT_LE(pass(500 * kMillisecond, true), 2 * kLook);
}

TEST_F(ProtocolClockTest, BeingAwayIsNoPartOfAStall) {
    round(0);
    for (int i = 0; i < 100; ++i) round(100 * kMillisecond, true);  // ten seconds with 100 rounds
    const uint64_t before = now_;
    round(100 * kMillisecond, true);
    EXPECT_EQ(now_, before);
}

// A thread that gets its core only for moments must still see its timers expire.
TEST_F(ProtocolClockTest, GoesOnWithRoundsThatAreFarApart) {
    round(0);
    const uint64_t before = now_;
    for (int i = 0; i < 100; ++i) round(50 * kMillisecond);
    EXPECT_EQ(now_ - before, 100 * kStep);
}

TEST_F(ProtocolClockTest, SaysWhenADeadlineWillBe) {
    round(0);
    pass(kMillisecond);
    round(300 * kMillisecond);
    const uint64_t due_ns = now_ + 5 * kMillisecond;
    EXPECT_EQ(clock_.real(due_ns, real_), real_ + 5 * kMillisecond);
    pass(5 * kMillisecond);
    EXPECT_EQ(now_, due_ns);
    EXPECT_EQ(clock_.real(UINT64_MAX, real_), UINT64_MAX);
}

}  // namespace
}  // namespace rove::datapath
