// SPDX-License-Identifier: Apache-2.0
// When a rail rests, in virtual time.
#include "tent/transports/rdma/rail.h"

#include <gtest/gtest.h>

namespace rove::tent {
namespace {

constexpr uint64_t kMs = 1'000'000;

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

}  // namespace
}  // namespace rove::tent
