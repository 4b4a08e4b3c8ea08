// SPDX-License-Identifier: Apache-2.0
#include "transport/memory.h"

#include <gtest/gtest.h>

#include <set>

#include "transport/queue_pair.h"

namespace rove::transport {
namespace {

struct MemoryTest : ::testing::Test {
    MemoryTable table;
    uint8_t bytes[1000];
    int pd = 0, other_pd = 0;
    Region region{.iova = 0x10000,
                  .length = sizeof bytes,
                  .host = bytes,
                  .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
                  .pd = &pd};
};

TEST_F(MemoryTest, translates_inside_the_bounds_only) {
    ASSERT_TRUE(table.insert(region));
    EXPECT_EQ(table.translate(region.key, 0x10000, 1000, 0, &pd), bytes);
    EXPECT_EQ(table.translate(region.key, 0x10000 + 999, 1, 0, &pd), bytes + 999);
    EXPECT_EQ(table.translate(region.key, 0x10000, 1001, 0, &pd), nullptr);
    EXPECT_EQ(table.translate(region.key, 0x10000 - 1, 1, 0, &pd), nullptr);
    EXPECT_EQ(table.translate(region.key, 0x10000 + 1000, 1, 0, &pd), nullptr);
    EXPECT_EQ(table.translate(region.key, 0x10000 + 500, UINT64_MAX - 400, 0, &pd), nullptr);
    EXPECT_EQ(table.translate(region.key, UINT64_MAX, 2, 0, &pd), nullptr);
    EXPECT_EQ(table.translate(region.key, 0, UINT64_MAX, 0, &pd), nullptr);
}

TEST_F(MemoryTest, a_region_at_the_end_of_the_address_space) {
    region.iova = UINT64_MAX - 999;
    ASSERT_TRUE(table.insert(region));
    EXPECT_EQ(table.translate(region.key, UINT64_MAX, 1, 0, &pd), bytes + 999);
    EXPECT_EQ(table.translate(region.key, UINT64_MAX, 2, 0, &pd), nullptr);
}

TEST_F(MemoryTest, checks_rights_domain_and_key) {
    ASSERT_TRUE(table.insert(region));
    EXPECT_NE(table.translate(region.key, 0x10000, 8, IBV_ACCESS_REMOTE_READ, &pd), nullptr);
    EXPECT_NE(table.translate(region.key, 0x10000, 8, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE, &pd), nullptr);
    EXPECT_EQ(table.translate(region.key, 0x10000, 8, IBV_ACCESS_REMOTE_WRITE, &pd), nullptr);
    EXPECT_EQ(table.translate(region.key, 0x10000, 8, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, &pd), nullptr);
    EXPECT_EQ(table.translate(region.key, 0x10000, 8, 0, &other_pd), nullptr);
    EXPECT_EQ(table.translate(region.key ^ 1, 0x10000, 8, 0, &pd), nullptr);
    EXPECT_EQ(table.translate(region.key + 256, 0x10000, 8, 0, &pd), nullptr);
    EXPECT_EQ(table.translate(UINT32_MAX, 0x10000, 8, 0, &pd), nullptr);
    EXPECT_EQ(table.translate(0, 0x10000, 8, 0, &pd), nullptr);
    region.valid = false;
    EXPECT_EQ(table.translate(region.key, 0x10000, 8, 0, &pd), nullptr);
}

TEST_F(MemoryTest, nothing_is_checked_for_no_bytes) {
    EXPECT_NE(table.translate(0x1234, 0, 0, IBV_ACCESS_REMOTE_WRITE, &pd), nullptr);
}

TEST_F(MemoryTest, a_window_serves_its_queue_pair_only) {
    QueuePair mine, another;
    mine.pd = another.pd = &pd;
    region.access |= IBV_ACCESS_MW_BIND;
    ASSERT_TRUE(table.insert(region));
    Region window{.pd = &pd, .is_window = true, .valid = false};
    ASSERT_TRUE(table.insert(window));
    EXPECT_EQ(table.find(window.key), nullptr) << "not bound";
    const uint32_t key = window.key ^ 0x33;
    const auto bind = [&](uint32_t rkey, uint32_t lkey, uint64_t length) {
        return table.bind(window, rkey, lkey, 0x10010, length, IBV_ACCESS_REMOTE_READ, mine);
    };
    EXPECT_FALSE(bind(key, region.key, 985)) << "beyond the region";
    EXPECT_FALSE(bind(key + 256, region.key, 100)) << "another index";
    EXPECT_FALSE(bind(key, region.key + 1, 100)) << "no such region";
    ASSERT_TRUE(bind(key, region.key, 100));
    EXPECT_FALSE(bind(key, region.key, 100)) << "bound already";
    EXPECT_EQ(region.windows, 1u);
    EXPECT_EQ(table.translate(key, 0x10010, 8, IBV_ACCESS_REMOTE_READ, &pd, &mine), bytes + 0x10);
    EXPECT_EQ(table.translate(key, 0x1000F, 8, IBV_ACCESS_REMOTE_READ, &pd, &mine), nullptr);
    EXPECT_EQ(table.translate(key, 0x10010, 101, IBV_ACCESS_REMOTE_READ, &pd, &mine), nullptr);
    EXPECT_EQ(table.translate(key, 0x10010, 8, IBV_ACCESS_REMOTE_WRITE, &pd, &mine), nullptr);
    EXPECT_EQ(table.translate(key, 0x10010, 8, 0, &pd, &another), nullptr);
    EXPECT_EQ(table.translate(key, 0x10010, 8, 0, &pd), nullptr);
    EXPECT_FALSE(table.invalidate(key, another));
    EXPECT_FALSE(table.invalidate(region.key, mine)) << "a region is no window";
    EXPECT_TRUE(table.invalidate(key, mine));
    EXPECT_FALSE(table.invalidate(key, mine));
    EXPECT_EQ(region.windows, 0u);
    EXPECT_EQ(table.translate(key, 0x10010, 8, 0, &pd, &mine), nullptr);
}

TEST_F(MemoryTest, old_keys_find_nothing) {
    std::set<uint32_t> seen;
    for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(table.insert(region));
        EXPECT_TRUE(seen.insert(region.key).second) << "key given twice";
        for (uint32_t key : seen) EXPECT_EQ(table.find(key), key == region.key ? &region : nullptr);
        table.remove(region);
        if (seen.size() > 200) break;  // generations have 8 bits
    }
}

TEST_F(MemoryTest, many_regions_have_keys_of_their_own) {
    std::vector<Region> regions(5000, region);
    std::set<uint32_t> keys;
    for (Region& r : regions) {
        ASSERT_TRUE(table.insert(r));
        keys.insert(r.key);
    }
    EXPECT_EQ(keys.size(), regions.size());
    EXPECT_EQ(keys.count(0), 0u);
    for (Region& r : regions) EXPECT_EQ(table.find(r.key), &r);
}

}  // namespace
}  // namespace rove::transport
