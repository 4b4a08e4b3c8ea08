// SPDX-License-Identifier: Apache-2.0
// The telemetry of a stream's paths.
#include "transport/paths/path_tally.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rove::transport {
namespace {

constexpr uint64_t kRtt = 12'800;  // ns; a multiple of the record's 64
constexpr uint32_t kWindow = 16;
using wire::MpAck;

struct PathTallyTest : testing::Test {
    PathTallyTest() { paths.start(stream, Psn(0xFFFFF8)); }

    std::vector<Departure> send(uint32_t count) {
        std::vector<Departure> left(count);
        for (Departure& d : left) {
            EXPECT_TRUE(paths.next(stream, true, now, d));
            paths.sent(stream, d, now);
        }
        return left;
    }
    void answer(const Departure& d, MpAck kind, bool ece = false) {
        const wire::MpAckEntry entry{
            .kind = kind, .ece = ece, .retx = d.again, .response = false, .psn = d.psn.value(), .vp = d.vp};
        EXPECT_TRUE(paths.acknowledge(stream, entry, now));
        if (kind == MpAck::kAck) paths.advance(stream, d.psn + 1, now);
    }
    PathTally of(uint16_t vp) const { return tally(paths, stream)[vp]; }
    std::string state(uint16_t vp) const { return of(vp).state(); }

    Paths paths{{.control = PathsConfig::Control::kMpRdma,
                 .initial_window = 8,
                 .max_window = kWindow,
                 .probe_permille = 0,
                 .explore = false},
                7};
    SendStream stream;
    uint64_t now = 1'000'000;
};

TEST_F(PathTallyTest, AcksAndMarksCountOnThePathThatTheyAreOf) {
    const auto left = send(3);
    EXPECT_EQ(of(left[0].vp).on_their_way, 1u);
    EXPECT_EQ(state(left[0].vp), "unknown");
    now += kRtt;
    answer(left[0], MpAck::kAck);
    answer(left[1], MpAck::kAck, true);
    EXPECT_EQ(of(left[0].vp).acknowledged, 1u);
    EXPECT_EQ(of(left[0].vp).acks_to_use, 1u);
    EXPECT_EQ(of(left[0].vp).marked, 0u);
    EXPECT_EQ(state(left[0].vp), "good");
    EXPECT_EQ(of(left[1].vp).acknowledged, 1u);
    EXPECT_EQ(of(left[1].vp).marked, 1u);
    EXPECT_EQ(state(left[1].vp), "congested");
    EXPECT_EQ(of(left[2].vp).on_their_way, 1u);
}

TEST_F(PathTallyTest, ALossCountsWhereItWasThoughItWasSentAgainElsewhere) {
    const auto left = send(3);
    now += kRtt;
    answer(left[1], MpAck::kSack);
    now += 2 * kRtt;
    const auto next = send(1);
    now += kRtt;
    answer(next[0], MpAck::kSack);  // it was sent later, so left[0] is overdue
    paths.advance(stream, stream.una, now);
    EXPECT_EQ(of(left[0].vp).to_send_again, 1u);
    EXPECT_EQ(of(left[0].vp).lost, 1u);
    const auto again = send(1);
    ASSERT_TRUE(again[0].again);
    ASSERT_EQ(again[0].psn, left[0].psn);
    ASSERT_NE(again[0].vp, left[0].vp);
    EXPECT_EQ(of(left[0].vp).packets, 0u);
    EXPECT_EQ(of(left[0].vp).lost, 1u);
    EXPECT_EQ(state(left[0].vp), "dead");
    EXPECT_EQ(of(again[0].vp).retransmitted, 1u);
    EXPECT_EQ(state(again[0].vp), "good");
}

TEST_F(PathTallyTest, ARefusalIsNoLossOfThePath) {
    const auto left = send(2);
    now += kRtt;
    answer(left[1], MpAck::kNack);
    EXPECT_EQ(of(left[1].vp).to_send_again, 1u);
    EXPECT_EQ(of(left[1].vp).lost, 0u);
}

TEST_F(PathTallyTest, AWindowOfPacketsIsRememberedUntilAnotherStreamUsesTheRecords) {
    const auto remembered = [&] {
        uint32_t sum = 0;
        for (const auto& [vp, path] : tally(paths, stream)) sum += path.packets;
        return sum;
    };
    auto left = send(2);
    for (uint32_t i = 2; i < 3 * kWindow; ++i) {
        EXPECT_EQ(remembered(), std::min(i, kWindow));
        now += kRtt;
        answer(left[0], MpAck::kAck);
        left = {left[1], send(1)[0]};
    }
    for (const Departure& d : left) answer(d, MpAck::kAck);
    EXPECT_EQ(remembered(), 0u);
    left = send(1);
    EXPECT_EQ(remembered(), kWindow);
    answer(left[0], MpAck::kAck);
    SendStream other;
    paths.start(other, Psn(0));
    Departure d;
    ASSERT_TRUE(paths.next(other, true, now, d));
    paths.sent(other, d, now);
    paths.stop(other);
    send(1);
    EXPECT_EQ(remembered(), 1u);
}

}  // namespace
}  // namespace rove::transport
