// SPDX-License-Identifier: Apache-2.0
// Faults from a seed: the same for the same seed, as often as asked for.
#include "datapath/impair.h"

#include <gtest/gtest.h>

#include <vector>

namespace rove::datapath {
namespace {

constexpr uint32_t kFrameBytes = 100;

std::vector<Fate> fates(const ImpairConfig& config, size_t count) {
    FateDice dice(config);
    std::vector<Fate> drawn;
    for (size_t i = 0; i < count; ++i) drawn.push_back(dice.next(kFrameBytes));
    return drawn;
}

TEST(FateDiceTest, SameSeedSameFates) {
    const ImpairConfig config{.loss = 0.1, .duplicate = 0.1, .corrupt = 0.1, .reorder = 0.1, .seed = 7};
    EXPECT_EQ(fates(config, 10'000), fates(config, 10'000));
    ImpairConfig other = config;
    other.seed = 8;
    EXPECT_NE(fates(config, 10'000), fates(other, 10'000));
}

TEST(FateDiceTest, NothingHappensWhenNothingIsAsked) {
    EXPECT_TRUE(FateDice(ImpairConfig{}).fair());
    for (const Fate& fate : fates({}, 1000)) EXPECT_EQ(fate, Fate{});
    EXPECT_FALSE(FateDice(ImpairConfig{.loss = 0.001}).fair());
}

TEST(FateDiceTest, CertaintyIsCertain) {
    for (const Fate& fate : fates({.loss = 1}, 1000)) EXPECT_TRUE(fate.lose);
    for (const Fate& fate : fates({.duplicate = 1}, 1000)) EXPECT_TRUE(fate.duplicate);
    for (const Fate& fate : fates({.reorder = 1}, 1000)) EXPECT_GT(fate.hold_frames, 0u);
}

TEST(FateDiceTest, RatesAreThoseAskedFor) {
    constexpr size_t kDraws = 200'000;
    size_t lost = 0, duplicated = 0, corrupted = 0, held = 0;
    for (const Fate& fate : fates({.loss = 0.01, .duplicate = 0.02, .corrupt = 0.03, .reorder = 0.04}, kDraws)) {
        lost += fate.lose;
        duplicated += fate.duplicate;
        corrupted += fate.flip_bit >= 0;
        held += fate.hold_frames != 0;
        EXPECT_LT(fate.flip_bit, static_cast<int64_t>(kFrameBytes * 8));
    }
    // Five standard deviations: 200 000 draws of probability p deviate by sqrt(200 000 p).
    EXPECT_NEAR(lost, 2000, 225);
    EXPECT_NEAR(duplicated, 4000 * 0.95, 320);  // neither lost nor held
    EXPECT_NEAR(corrupted, 6000 * 0.99, 390);
    EXPECT_NEAR(held, 8000 * 0.99, 450);
}

}  // namespace
}  // namespace rove::datapath
