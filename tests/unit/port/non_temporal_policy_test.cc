// SPDX-License-Identifier: Apache-2.0
// Tests when frames are stored with non-temporal stores.
#include "port/non_temporal_policy.h"

#include <gtest/gtest.h>

namespace rove::datapath {
namespace {

constexpr uint32_t kTrial = NonTemporalPolicy::kTrial, kLargeFrame = 1024;

// Sends `bursts` bursts of one frame each. Returns the number of bursts that bypassed the caches.
uint32_t send(NonTemporalPolicy& way, uint32_t bursts, uint64_t cost_through, uint64_t cost_past) {
    uint32_t past = 0;
    for (uint32_t i = 0; i < bursts; ++i) {
        way.next_burst();
        past += way.bypasses_cache();
        if (way.is_timed()) way.cost(way.bypasses_cache() ? cost_past : cost_through, kLargeFrame);
    }
    return past;
}

bool pays(NonTemporalPolicy& way) {
    way.next_burst();
    return way.bypasses_cache();
}

TEST(NonTemporalPolicy, IsTriedAndUsedWhereItSavesMuch) {
    NonTemporalPolicy near, middling, far;
    EXPECT_EQ(send(near, 100 * kTrial, 40, 32), 100u);
    EXPECT_FALSE(pays(near));
    EXPECT_EQ(send(middling, 100 * kTrial, 63, 32), 100u);
    EXPECT_FALSE(pays(middling));
    // Bursts before the first trial and in the later trials do not bypass them.
    EXPECT_EQ(send(far, 100 * kTrial, 390, 32), 99 * kTrial - 98);
    EXPECT_TRUE(pays(far));
}

TEST(NonTemporalPolicy, IsTimedSeldom) {
    NonTemporalPolicy way;
    uint32_t timed = 0;
    for (uint32_t burst = 0; burst < 10 * kTrial; ++burst) {
        way.next_burst();
        timed += way.is_timed();
    }
    EXPECT_EQ(timed, 10 * kTrial / NonTemporalPolicy::kTimed);
}

TEST(NonTemporalPolicy, FollowsCoresThatMove) {
    NonTemporalPolicy way;
    for (int move = 0; move < 3; ++move) {
        send(way, 20 * kTrial, 40, 32);
        EXPECT_FALSE(pays(way));
        send(way, 2 * kTrial, 390, 32);
        EXPECT_TRUE(pays(way));
    }
}

TEST(NonTemporalPolicy, IsNotMisledByPauses) {
    NonTemporalPolicy near, far;
    send(near, 10 * kTrial, 40, 32);
    send(far, 10 * kTrial, 390, 32);
    for (int pause = 0; pause < 100; ++pause) {
        send(near, NonTemporalPolicy::kTimed, 10'000'000, 32);
        EXPECT_FALSE(pays(near));
        send(near, 20 * NonTemporalPolicy::kTimed, 40, 32);
        send(far, NonTemporalPolicy::kTimed, 390, 10'000'000);
        EXPECT_TRUE(pays(far));
        send(far, 20 * NonTemporalPolicy::kTimed, 390, 32);
    }
}

}  // namespace
}  // namespace rove::datapath
