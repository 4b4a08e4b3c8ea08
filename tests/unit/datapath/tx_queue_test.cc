// SPDX-License-Identifier: Apache-2.0
// When frames are sent past the caches.
#include "datapath/tx_queue.h"

#include <gtest/gtest.h>

namespace rove::datapath {
namespace {

constexpr uint32_t kTrial = PastCaches::kTrial;

// Sends `bursts`, and returns how many of them went past the caches.
uint32_t send(PastCaches& way, uint32_t bursts, uint64_t cost_through, uint64_t cost_past) {
    uint32_t past = 0;
    for (uint32_t i = 0; i < bursts; ++i) {
        const bool goes_past = way.next();
        past += goes_past;
        way.cost(goes_past, goes_past ? cost_past : cost_through);
    }
    return past;
}

TEST(PastCaches, IsTriedAndUsedWhereItSavesMuch) {
    PastCaches near, middling, far;
    EXPECT_EQ(send(near, 100 * kTrial, 40, 32), 100u);
    EXPECT_FALSE(near.pays());
    EXPECT_EQ(send(middling, 100 * kTrial, 90, 32), 100u);
    EXPECT_FALSE(middling.pays());
    // Not before the first trial, and not in those after it.
    EXPECT_EQ(send(far, 100 * kTrial, 390, 32), 99 * kTrial - 98);
    EXPECT_TRUE(far.pays());
}

TEST(PastCaches, FollowsCoresThatMove) {
    PastCaches way;
    for (int move = 0; move < 3; ++move) {
        send(way, 10 * kTrial, 40, 32);
        EXPECT_FALSE(way.pays());
        send(way, kTrial, 390, 32);
        EXPECT_TRUE(way.pays());
    }
}

TEST(PastCaches, IsNotMisledByPauses) {
    PastCaches near, far;
    send(near, 10 * kTrial, 40, 32);
    send(far, 10 * kTrial, 390, 32);
    for (int pause = 0; pause < 100; ++pause) {
        near.cost(false, 10'000'000);
        EXPECT_FALSE(near.pays());
        send(near, 20, 40, 32);
        far.cost(true, 10'000'000);
        EXPECT_TRUE(far.pays());
        send(far, 20, 390, 32);
    }
}

}  // namespace
}  // namespace rove::datapath
