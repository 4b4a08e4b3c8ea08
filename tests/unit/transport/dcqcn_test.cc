// SPDX-License-Identifier: Apache-2.0
// DCQCN's reaction point by itself: by its paper, and as in HPCC's public simulator.
#include "transport/congestion/dcqcn.h"

#include <gtest/gtest.h>

namespace rove::transport {
namespace {

constexpr uint64_t kLine = 8'000'000'000;  // bytes per second
constexpr uint32_t kPacket = 1000;

// The times are short, so that alpha is nearly 1 all the while.
struct Reaction : ::testing::Test {
    DcqcnConfig config{.line_rate_bytes_per_s = kLine,
                       .min_rate_bytes_per_s = 1'000'000,
                       .decrease_interval_ns = 4'000,
                       .alpha_timer_ns = 1'000,
                       .rate_timer_ns = 300'000,
                       .byte_counter = 1'000'000'000'000,
                       .fast_recovery_steps = 1};
    Dcqcn rate;

    double part_at(uint64_t now_ns) {
        rate.on_sent(config, kPacket, now_ns);
        return static_cast<double>(rate.rate_bytes_per_s()) / kLine;
    }
};
struct Paper : Reaction {};
struct OfThePort : Reaction {
    OfThePort() { config.line_rate_bytes_per_s = 0; }
};
struct Hpcc : Reaction {
    Hpcc() { config.reaction = DcqcnReaction::kHpcc; }
};

TEST_F(Paper, EachCutTakesTheTargetAlong) {
    rate.on_cnp(config, 10);
    EXPECT_NEAR(part_at(10), 1. / 2, 0.01);
    rate.on_cnp(config, 20);
    EXPECT_NEAR(part_at(20), 1. / 4, 0.01);
    EXPECT_NEAR(part_at(300'019), 1. / 4, 0.01);
    EXPECT_NEAR(part_at(300'020), (1. / 2 + 1. / 4) / 2, 0.01) << "half way to where the first cut had left it";
}

// Half the line's rate: 250 ns for a packet of 1000 bytes.
TEST_F(Paper, APacketThatIsLateIsMadeUpFor) {
    rate.on_cnp(config, 10'000);
    part_at(11'000);
    EXPECT_NEAR(static_cast<double>(rate.next_send_ns()), 10'250, 5);
}

// A QP of a port of 10 Gb/s that started at 100 Gb/s would not be slowed down by its first three CNPs.
TEST_F(OfThePort, TheFirstCnpHalvesItsRate) {
    rate.set_port_rate(1'250'000'000);
    rate.on_cnp(config, 10);
    EXPECT_NEAR(static_cast<double>(rate.rate_bytes_per_s()), 625'000'000, 1e6);
}

TEST_F(OfThePort, ARateInTheConfigurationComesFirst) {
    config.line_rate_bytes_per_s = kLine;
    rate.set_port_rate(1'250'000'000);
    rate.on_cnp(config, 10);
    EXPECT_NEAR(part_at(10), 1. / 2, 0.01);
}

// The least rate of the configuration exceeds what the port has.
TEST_F(OfThePort, ASlowPortKeepsItsRate) {
    config.min_rate_bytes_per_s = 12'500'000;
    rate.set_port_rate(1'250'000);
    rate.on_cnp(config, 10);
    EXPECT_EQ(rate.rate_bytes_per_s(), 1'250'000u);
}

TEST_F(Hpcc, APacketThatIsLateIsNot) {
    rate.on_cnp(config, 10'000);
    part_at(14'000);
    const uint64_t next_ns = rate.next_send_ns();
    EXPECT_NEAR(static_cast<double>(next_ns), 14'250, 5);
    part_at(next_ns + 1'000);
    EXPECT_NEAR(static_cast<double>(rate.next_send_ns()), static_cast<double>(next_ns) + 1'250, 5);
}

TEST_F(Hpcc, TheTargetStaysWhileNoIncreaseComesBetween) {
    rate.on_cnp(config, 10);
    rate.on_cnp(config, 4'020);
    EXPECT_NEAR(part_at(8'010), 1. / 4, 0.02);
    EXPECT_NEAR(part_at(308'009), 1. / 4, 0.02);
    EXPECT_NEAR(part_at(308'010), (1 + 1. / 4) / 2, 0.01) << "half way to the line's rate";
    // After an increase the next cut moves the target too.
    const double before = part_at(308'020);
    rate.on_cnp(config, 309'000);
    const double after = part_at(312'010);
    EXPECT_LT(after, before);
    EXPECT_NEAR(part_at(612'010), (before + after) / 2, 0.01);
}

TEST_F(Hpcc, MarksAreNotedAndTheRateIsCutByTheClock) {
    for (uint64_t at = 10; at < 4'010; at += 500) {
        rate.on_cnp(config, at);
        EXPECT_EQ(part_at(at), 1);
    }
    EXPECT_NEAR(part_at(4'010), 1. / 2, 0.01);
    EXPECT_NEAR(part_at(20'000), 1. / 2, 0.01) << "no mark, no cut";
    rate.on_cnp(config, 21'000);  // the clock's ticks are at 10, 4 010, ... 20 010, 24 010
    EXPECT_NEAR(part_at(24'009), 1. / 2, 0.01);
    EXPECT_LT(part_at(24'010), 0.3);
}

// A cut takes half of alpha. This small number of them leaves enough of the rate to measure the last.
TEST_F(Hpcc, AlphaGrowsWithEveryIntervalThatHadAMarkAndFallsWithTheOthers) {
    config.min_rate_bytes_per_s = 1;
    config.rate_timer_ns = 1'000'000'000;
    config.decrease_interval_ns = 50'000;
    const auto alpha_after_800_us = [&](uint64_t step_ns) {
        rate = {};
        double before = 0;
        for (uint64_t now = 10; now < 800'010; now += step_ns) {
            rate.on_cnp(config, now);
            before = part_at(now);
        }
        return 2 * (1 - part_at(800'010) / before);
    };
    EXPECT_NEAR(alpha_after_800_us(1'000), 1, 0.01);
    EXPECT_NEAR(alpha_after_800_us(4'000), 0.28, 0.02) << "on its way from 1 to 1/4, 3.1 time constants later";
}

TEST_F(Hpcc, TheHyperStepComesByTimeAlone) {
    config.additive_bytes_per_s = kLine / 100;
    config.hyper_bytes_per_s = kLine / 10;
    config.min_rate_bytes_per_s = kLine / 10;
    for (uint64_t at = 10; at < 200'010; at += 1'000) rate.on_cnp(config, at);
    part_at(500'010);              // half way
    rate.on_cnp(config, 500'020);  // this rate becomes the target
    const double cut = part_at(504'010);
    const double target = 0.55;
    double now = (cut + target) / 2;
    EXPECT_NEAR(part_at(804'010), now, 0.01);
    now = (now + target + 0.01) / 2;
    EXPECT_NEAR(part_at(1'104'010), now, 0.01);
    now = (now + target + 0.01 + 0.1) / 2;
    EXPECT_NEAR(part_at(1'404'010), now, 0.01);
}

}  // namespace
}  // namespace rove::transport
