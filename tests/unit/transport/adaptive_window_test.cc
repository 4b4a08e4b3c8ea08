// SPDX-License-Identifier: Apache-2.0
// The window of BX-12 by itself.
#include "transport/congestion/adaptive_window.h"

#include <gtest/gtest.h>

namespace rove::transport {
namespace {

constexpr uint32_t kOne = AdaptiveWindow::kOne, kInitial = 32 * kOne;
constexpr uint64_t kBase = 12'000;  // ns

// A round trip in which every packet met a queue.
constexpr AdaptiveWindow::Round kQueue{.least_ns = kBase + 10'000'000, .base_ns = kBase, .deviation_ns = 1'000};
constexpr AdaptiveWindow::Round kNoQueue{.least_ns = kBase, .base_ns = kBase, .deviation_ns = 1'000};

TEST(AdaptiveWindow, BX12_StreamsShareWhatALoneOneKeeps) {
    EXPECT_EQ(AdaptiveWindow::share(kInitial, 0), kInitial);
    EXPECT_EQ(AdaptiveWindow::share(kInitial, 3), kInitial);
    for (const size_t streams : {4, 10, 100, 1'000}) {
        const uint64_t all = uint64_t{AdaptiveWindow::share(kInitial, streams)} * streams;
        EXPECT_GE(all, 2 * kInitial) << streams;
        EXPECT_LE(all, 4 * kInitial) << streams;
    }
    EXPECT_EQ(AdaptiveWindow::share(kInitial, 1'000'000), AdaptiveWindow::kLeast);
}

TEST(AdaptiveWindow, BX12_DelayAloneLeavesTheShare) {
    AdaptiveWindow window;
    const uint32_t share = AdaptiveWindow::share(kInitial, 1'000);
    uint32_t cwnd = kInitial;
    for (uint64_t round = 0; round < 200; ++round) cwnd = window.end_round(cwnd, share, kQueue, round * 1'000'000);
    EXPECT_EQ(cwnd, share);
}

TEST(AdaptiveWindow, BX12_DelayAloneLeavesALargeWindow256Packets) {
    AdaptiveWindow window;
    window.on_ack(kInitial, 280, 8192);  // the window was used
    const uint32_t cwnd = window.end_round(280 << 16, kInitial, {1'000'000, 10'000, 100}, 1'000'000'000);
    EXPECT_EQ(cwnd >> 16, 256u);
}

// The receiver, the port or the program lets out far less than the window.
TEST(AdaptiveWindow, BX12_AWindowThatIsNotUsedDoesNotGrow) {
    AdaptiveWindow window;
    constexpr uint32_t kMost = 8192;
    uint32_t cwnd = kInitial;
    const auto round = [&](uint32_t packets) {
        cwnd = window.on_ack(cwnd, packets, kMost);
        cwnd = window.end_round(cwnd, kInitial, {10'000, 10'000, 100}, 1'000'000'000);
    };
    for (int i = 0; i < 1000; ++i) round(100);
    EXPECT_LE(cwnd >> 16, 600u);
    for (int i = 0; i < 20; ++i) round(cwnd >> 16);
    EXPECT_EQ(cwnd >> 16, kMost) << "it is used again";
}

// A receiver that waits for its core delays answers, and a cable loses a packet now and then.
TEST(AdaptiveWindow, BX12_DelayAloneLeavesAPacket) {
    AdaptiveWindow window;
    uint32_t cwnd = kInitial;
    uint64_t now = 1'000'000'000;
    const AdaptiveWindow::Round late{20'000'000, 10'000, 5'000'000};
    for (int i = 0; i < 200; ++i) {
        if (i % 8 == 0) cwnd = window.on_loss(cwnd, late, now);
        cwnd = window.end_round(cwnd, kInitial, late, now);
    }
    EXPECT_LT(cwnd, kOne) << "a queue that has just overflowed";
    for (int i = 0; i < 200; ++i) {
        cwnd = window.on_ack(cwnd, 1, 256);
        cwnd = window.end_round(cwnd, kInitial, late, now);
    }
    EXPECT_GE(cwnd, kOne);
}

TEST(AdaptiveWindow, BX12_MarksHalveAWindowBelowAPacketAndTheRestDoubleIt) {
    AdaptiveWindow window;
    const uint32_t share = AdaptiveWindow::share(kInitial, 1'000);
    uint32_t cwnd = kOne;
    cwnd = window.on_mark(cwnd);
    EXPECT_EQ(cwnd, kOne / 2);
    cwnd = window.on_mark(cwnd);
    EXPECT_EQ(cwnd, kOne / 4);
    cwnd = window.end_round(cwnd, share, kNoQueue, 1);
    cwnd = window.on_ack(cwnd, 1, 256);
    EXPECT_EQ(cwnd, kOne / 4 * 2 + kOne / 32);
    for (int i = 0; i < 100; ++i) cwnd = window.on_mark(cwnd);
    EXPECT_GE(cwnd, AdaptiveWindow::kLeast);
    EXPECT_LE(cwnd, share / 16 + AdaptiveWindow::kLeast);
}

TEST(AdaptiveWindow, BX12_ALossWithoutAKnownRoundTripIsCongestion) {
    AdaptiveWindow window;
    const AdaptiveWindow::Round unknown{.least_ns = 1'000'000, .base_ns = UINT64_MAX, .deviation_ns = 0};
    EXPECT_LT(window.on_loss(10 * kOne, unknown, 1), 10 * kOne);
    EXPECT_EQ(AdaptiveWindow().on_loss(10 * kOne, kNoQueue, 1), 10 * kOne)
        << "one packet was lost, and there is no queue";
}

TEST(AdaptiveWindow, BX12_APartOfAPacketIsThatPartOfTheRate) {
    uint64_t sum = 0;
    for (uint64_t random = 0; random < 2 * 4'001; ++random) {
        const uint64_t apart = AdaptiveWindow::spacing_ns(kOne / 4, 1'000, random);
        EXPECT_GE(apart, 2'000u);
        EXPECT_LE(apart, 6'000u);
        sum += apart;
    }
    EXPECT_NEAR(static_cast<double>(sum) / (2 * 4'001), 4'000, 1);
}

}  // namespace
}  // namespace rove::transport
