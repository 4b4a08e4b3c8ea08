// SPDX-License-Identifier: Apache-2.0
// A rail's states, in virtual time.
#include "tent/rail_health.h"

#include <gtest/gtest.h>

#include <vector>

namespace rove::tent {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1'000 * kMs;

TEST(RailHealth, T19_PausesAtTheThresholdOnly) {
    const RailConfig config;
    RailHealth rail(config);
    EXPECT_FALSE(rail.on_error(1 * kMs));
    EXPECT_FALSE(rail.on_error(2 * kMs));
    EXPECT_TRUE(rail.usable());
    EXPECT_EQ(rail.next_probe_ns(), kNever);
    EXPECT_TRUE(rail.on_error(3 * kMs));
    EXPECT_FALSE(rail.usable());
    EXPECT_EQ(rail.pauses(), 1u);
}

TEST(RailHealth, T19_ErrorsFarApartDoNotAddUp) {
    const RailConfig config;
    RailHealth rail(config);
    for (uint64_t i = 1; i < 100; ++i) EXPECT_FALSE(rail.on_error(i * (config.error_window_ns + 1)));
    EXPECT_TRUE(rail.usable());
    EXPECT_EQ(rail.errors(), 1u);
}

TEST(RailHealth, T19_SuccessClearsWhatWas) {
    const RailConfig config;
    RailHealth rail(config);
    rail.on_error(1);
    rail.on_error(2);
    EXPECT_FALSE(rail.on_success());
    EXPECT_FALSE(rail.on_error(3));
    EXPECT_FALSE(rail.on_error(4));
    EXPECT_TRUE(rail.usable());
}

// The errors before the pause must not have lengthened it, as they do in the original (120 s instead of 30).
TEST(RailHealth, T19_CooldownDoublesFromProbeToProbeUpToItsBound) {
    const RailConfig config;
    RailHealth rail(config);
    for (uint64_t now : {1, 2, 3}) rail.on_error(now * kMs);
    std::vector<uint64_t> probes;
    for (uint64_t now = 3 * kMs; now < 200 * kMs; now += kMs / 10) {
        if (rail.take_probe(now)) probes.push_back(now / kMs);
        EXPECT_FALSE(rail.on_error(now));  // late errors of what was under way change nothing
    }
    EXPECT_EQ(probes, (std::vector<uint64_t>{13, 33, 73, 113, 153, 193}));
}

TEST(RailHealth, T19_ReadmittedWithin50MsOfItsReturnHoweverLongItWasAway) {
    const RailConfig config;
    for (uint64_t away = kMs; away < 2 * kSecond; away += 7 * kMs) {
        RailHealth rail(config);
        for (int i = 0; i < 3; ++i) rail.on_error(0);
        uint64_t now = 0;
        for (; !rail.usable(); now += 100'000)
            if (rail.take_probe(now) && now >= away) rail.on_success();  // a probe that finds the rail back
        EXPECT_LT(now - away, 50 * kMs) << "away for " << away;
        EXPECT_EQ(rail.next_probe_ns(), kNever);
        // As if nothing had been: the next pause is a short one again.
        for (int i = 0; i < 3; ++i) rail.on_error(now);
        EXPECT_EQ(rail.next_probe_ns(), now + config.cooldown_ns);
    }
}

TEST(RailHealth, T19_LinkDownPausesAtOnceAndIsProbedInCaseItsReturnIsNotTold) {
    const RailConfig config;
    RailHealth rail(config);
    EXPECT_TRUE(rail.on_down(5 * kMs));
    EXPECT_FALSE(rail.on_down(6 * kMs));
    EXPECT_FALSE(rail.usable());
    EXPECT_FALSE(rail.take_probe(15 * kMs - 1));
    EXPECT_TRUE(rail.take_probe(15 * kMs));
    EXPECT_TRUE(rail.on_success());
    EXPECT_TRUE(rail.usable());
}

}  // namespace
}  // namespace rove::tent
