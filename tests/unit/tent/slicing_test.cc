// SPDX-License-Identifier: Apache-2.0
// Tests how requests are divided into slices.
#include "tent/placement/slicing.h"

#include <gtest/gtest.h>

#include <random>

namespace rove::tent {
namespace {

constexpr uint64_t kBlock = 65'536;

TEST(Slicing, T1_DocumentedCases) {
    EXPECT_EQ(plan_slices(0, 64, kBlock).count, 0u);
    EXPECT_EQ(plan_slices(1, 64, kBlock).count, 1u);
    EXPECT_EQ(plan_slices(kBlock, 64, kBlock).count, 1u);
    // 65 blocks do not fit into 64 slices, so the block size doubles.
    const SlicePlan doubled = plan_slices(65 * kBlock, 64, kBlock);
    EXPECT_EQ(doubled.block, 2 * kBlock);
    EXPECT_EQ(doubled.count, 33u);
    const SlicePlan large = plan_slices(64 << 20, 64, kBlock);
    EXPECT_EQ(large.block, 1u << 20);
    EXPECT_EQ(large.count, 64u);
}

TEST(Slicing, T1_TailUnderAQuarterBlockJoinsItsNeighbour) {
    const SlicePlan joined = plan_slices(2 * kBlock + kBlock / 4 - 1, 64, kBlock);
    EXPECT_EQ(joined.count, 2u);
    EXPECT_EQ(joined.bytes(1), kBlock + kBlock / 4 - 1);
    const SlicePlan kept = plan_slices(2 * kBlock + kBlock / 4, 64, kBlock);
    EXPECT_EQ(kept.count, 3u);
    EXPECT_EQ(kept.bytes(2), kBlock / 4);
}

TEST(Slicing, T1_SlicesCoverTheRequestExactlyAndNoneIsEmpty) {
    std::mt19937_64 random(1);
    for (int run = 0; run < 200'000; ++run) {
        const uint64_t length = 1 + (random() >> (random() % 50 + 14));
        const auto most = static_cast<uint32_t>(1 + random() % 64);
        const uint64_t block_size = uint64_t{1} << (random() % 21);
        const SlicePlan plan = plan_slices(length, most, block_size);
        SCOPED_TRACE(testing::Message() << length << " bytes, " << most << " slices, blocks of " << block_size);
        ASSERT_GE(plan.count, 1u);
        ASSERT_LE(plan.count, most);
        ASSERT_EQ(plan.block % block_size, 0u);
        uint64_t at = 0;
        for (uint32_t slice = 0; slice < plan.count; ++slice) {
            ASSERT_EQ(plan.offset(slice), at);
            ASSERT_GT(plan.bytes(slice), 0u);
            if (slice + 1 < plan.count) {
                ASSERT_EQ(plan.bytes(slice), plan.block);
            } else if (plan.count > 1) {
                ASSERT_GE(plan.bytes(slice), plan.block / 4);
                ASSERT_LT(plan.bytes(slice), plan.block + (plan.block + 3) / 4);
            }
            at += plan.bytes(slice);
        }
        ASSERT_EQ(at, length);
        // No smaller block would be enough.
        if (plan.block > block_size) {
            ASSERT_GT(length, (plan.block - block_size) * most);
        }
    }
}

}  // namespace
}  // namespace rove::tent
