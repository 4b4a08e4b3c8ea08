// SPDX-License-Identifier: Apache-2.0
// Tests in virtual time when a rail rests.
#include "tent/transports/rdma/rail.h"

#include <gtest/gtest.h>

#include "short_names.h"

namespace rove::tent {
namespace {

TEST(Rail, T19_RestsAtTheThresholdOnly) {
    const RailConfig config;
    Rail rail(config);
    EXPECT_FALSE(rail.count_error(1 * kMs));
    EXPECT_FALSE(rail.count_error(2 * kMs));
    EXPECT_TRUE(rail.count_error(3 * kMs));
    EXPECT_TRUE(rail.count_error(4 * kMs)) << "and with each that follows";
}

TEST(Rail, T19_ErrorsFarApartDoNotAddUp) {
    const RailConfig config;
    Rail rail(config);
    for (uint64_t i = 1; i < 100; ++i) EXPECT_FALSE(rail.count_error(i * (config.error_window_ns + 1)));
}

TEST(Rail, T19_ASuccessForgetsErrors) {
    const RailConfig config;
    Rail rail(config);
    for (uint64_t i = 1; i < 100; ++i) {
        EXPECT_FALSE(rail.count_error(i * kMs));
        EXPECT_FALSE(rail.count_error(i * kMs));
        rail.succeeded();
    }
}

TEST(Rail, T19_TheCooldownDoublesTwiceUntilASuccess) {
    const RailConfig config{.cooldown_ns = 10 * kMs};
    Rail rail(config);
    rail.put_to_rest(100 * kMs);
    EXPECT_EQ(rail.rest_ns, 110 * kMs);
    EXPECT_EQ(rail.counters.pauses, 1u);
    for (const uint64_t pause : {20, 40, 40}) EXPECT_EQ(rail.next_pause_ns(), pause * kMs);
    rail.succeeded();
    EXPECT_EQ(rail.next_pause_ns(), 10 * kMs);
}

TEST(CqCredits, HigherPrioritiesFindRoomThatLowerOnesDoNot) {
    CqCredits credits(16);
    const auto fill = [&](uint8_t priority) {
        uint32_t posted = 0;
        for (; credits.has_room(priority); ++posted) credits.post();
        return posted;
    };
    EXPECT_EQ(fill(2), 10u);
    EXPECT_EQ(fill(1), 2u);
    EXPECT_EQ(fill(0), 2u);
    EXPECT_EQ(credits.posted(), 14u) << "the rest is for probes";
    credits.complete();
    EXPECT_TRUE(credits.has_room(0));
}

// The completions of a closed connection stay in the queue, although no request waits for them.
TEST(CqCredits, WhatAClosedConnectionLeftTakesRoomUntilTheQueueWasEmpty) {
    CqCredits credits(16);
    for (int i = 0; i < 14; ++i) credits.post();
    for (int i = 0; i < 14; ++i) credits.complete();
    credits.leave(14);
    EXPECT_FALSE(credits.has_room(0));
    credits.seen_empty();
    EXPECT_TRUE(credits.has_room(0));
}

}  // namespace
}  // namespace rove::tent
