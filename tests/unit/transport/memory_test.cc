// SPDX-License-Identifier: Apache-2.0
#include "transport/memory.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <deque>
#include <set>
#include <vector>

#include "transport/queue_pair.h"

namespace rove::transport {
namespace {

struct MemoryTest : ::testing::Test {
    MemoryTable table{Secret::random()};
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

struct WindowTest : MemoryTest {
    WindowTest() {
        mine.pd = another.pd = &pd;
        region.access |= IBV_ACCESS_MW_BIND;
        EXPECT_TRUE(table.insert(region) && table.insert(window) && table.insert(old_kind));
    }
    bool bind(Window& which, uint32_t rkey, uint32_t lkey, uint64_t length, QueuePair& qp,
              int access = IBV_ACCESS_REMOTE_READ) {
        return table.bind({which.key, rkey, lkey, 0x10010, length, access}, qp);
    }

    QueuePair mine, another;
    Window window{IBV_MW_TYPE_2, &pd}, old_kind{IBV_MW_TYPE_1, &pd};
};

TEST_F(WindowTest, serves_its_queue_pair_only) {
    EXPECT_EQ(table.find(window.key), nullptr) << "not bound";
    const uint32_t key = window.key ^ 0x33;
    EXPECT_FALSE(bind(window, key, region.key, 985, mine)) << "beyond the region";
    EXPECT_FALSE(bind(window, key, region.key + 1, 100, mine)) << "no such region";
    EXPECT_FALSE(bind(window, key, region.key, 0, mine)) << "nothing";
    EXPECT_FALSE(bind(window, key, window.key, 100, mine)) << "no region";
    ASSERT_TRUE(bind(window, key, region.key, 100, mine));
    EXPECT_FALSE(bind(window, key, region.key, 100, mine)) << "bound already";
    EXPECT_EQ(window.rkey(), key);
    EXPECT_EQ(region.windows, 1);
    EXPECT_FALSE(table.remove(region)) << "a window is bound to it";
    EXPECT_EQ(table.translate(key, 0x10010, 8, IBV_ACCESS_REMOTE_READ, &pd, &mine), bytes + 0x10);
    EXPECT_EQ(table.translate(key, 0x1000F, 8, IBV_ACCESS_REMOTE_READ, &pd, &mine), nullptr);
    EXPECT_EQ(table.translate(key, 0x10010, 101, IBV_ACCESS_REMOTE_READ, &pd, &mine), nullptr);
    EXPECT_EQ(table.translate(key, 0x10010, 8, IBV_ACCESS_REMOTE_WRITE, &pd, &mine), nullptr);
    EXPECT_EQ(table.translate(key, 0x10010, 8, 0, &pd, &another), nullptr);
    EXPECT_EQ(table.translate(key, 0x10010, 8, 0, &pd), nullptr);
    EXPECT_EQ(table.translate(key ^ 1, 0x10010, 8, 0, &pd, &mine), nullptr);
    EXPECT_EQ(table.open(key, 0, &pd), nullptr) << "for no local access";
    EXPECT_FALSE(table.invalidate(key, another));
    EXPECT_FALSE(table.invalidate(region.key, mine)) << "a region is no window";
    EXPECT_TRUE(table.invalidate(key, mine));
    EXPECT_FALSE(table.invalidate(key, mine));
    EXPECT_EQ(region.windows, 0);
    EXPECT_EQ(table.translate(key, 0x10010, 8, 0, &pd, &mine), nullptr);
    EXPECT_TRUE(table.remove(region));
    EXPECT_FALSE(bind(window, key, region.key, 100, mine));
}

// IBTA 10.6.7.2.2: the consumer owns the low byte, and nothing else.
TEST_F(WindowTest, only_the_low_byte_of_a_bind_counts) {
    ASSERT_TRUE(bind(window, 0xABCDEF33, region.key, 100, mine));
    EXPECT_EQ(window.rkey(), (window.key & ~0xFFu) | 0x33);
    EXPECT_NE(table.translate(window.rkey(), 0x10010, 8, 0, &pd, &mine), nullptr);
}

TEST_F(WindowTest, of_type_1_serves_its_domain_and_is_bound_again) {
    ASSERT_TRUE(bind(old_kind, 1, region.key, 100, mine));
    const uint32_t first = old_kind.rkey();
    for (const QueuePair* qp : {&mine, &another})
        EXPECT_EQ(table.translate(first, 0x10010, 8, IBV_ACCESS_REMOTE_READ, &pd, qp), bytes + 0x10);
    EXPECT_EQ(table.translate(first, 0x10010, 8, 0, &other_pd, &mine), nullptr);
    EXPECT_FALSE(table.invalidate(first, mine)) << "only a bind ends it";
    ASSERT_TRUE(bind(old_kind, 2, region.key, 50, another));
    EXPECT_EQ(region.windows, 1);
    EXPECT_EQ(table.translate(first, 0x10010, 8, 0, &pd, &mine), nullptr);
    EXPECT_NE(table.translate(old_kind.rkey(), 0x10010, 50, 0, &pd, &mine), nullptr);
    ASSERT_TRUE(bind(old_kind, 3, 0, 0, another)) << "to nothing";
    EXPECT_EQ(region.windows, 0);
    EXPECT_EQ(table.translate(old_kind.rkey(), 0x10010, 8, 0, &pd, &mine), nullptr);
    EXPECT_TRUE(bind(old_kind, 4, region.key, 50, another));
    EXPECT_TRUE(table.remove(old_kind));
    EXPECT_EQ(region.windows, 0);
}

TEST_F(WindowTest, of_type_2_ends_with_its_queue_pair) {
    Window second{IBV_MW_TYPE_2, &pd}, others{IBV_MW_TYPE_2, &pd};
    ASSERT_TRUE(table.insert(second) && table.insert(others));
    ASSERT_TRUE(bind(window, 1, region.key, 100, mine) && bind(second, 2, region.key, 100, mine));
    ASSERT_TRUE(bind(others, 3, region.key, 100, another) && bind(old_kind, 4, region.key, 100, mine));
    EXPECT_EQ(region.windows, 4);
    table.unbind_all(mine);
    EXPECT_EQ(mine.windows.first(), nullptr);
    EXPECT_FALSE(window.is_bound() || second.is_bound());
    EXPECT_TRUE(others.is_bound() && old_kind.is_bound());
    EXPECT_EQ(region.windows, 2);
    EXPECT_TRUE(bind(window, 5, region.key, 100, another)) << "free again";
    table.unbind_all(another);
    EXPECT_FALSE(window.is_bound() || others.is_bound());
}

TEST_F(WindowTest, leaves_its_queue_pairs_list_however_it_ends) {
    Window second{IBV_MW_TYPE_2, &pd}, third{IBV_MW_TYPE_2, &pd};
    ASSERT_TRUE(table.insert(second) && table.insert(third));
    for (Window* each : {&window, &second, &third}) ASSERT_TRUE(bind(*each, 1, region.key, 100, mine));
    ASSERT_TRUE(table.remove(second)) << "from the middle";
    ASSERT_TRUE(table.invalidate(third.rkey(), mine)) << "the first";
    EXPECT_EQ(mine.windows.first(), &window);
    ASSERT_TRUE(table.remove(window)) << "the last";
    EXPECT_EQ(mine.windows.first(), nullptr);
    EXPECT_FALSE(bind(second, 2, region.key, 100, mine)) << "it is gone";
    EXPECT_EQ(region.windows, 0);
}

TEST_F(MemoryTest, another_region_under_the_same_key) {
    ASSERT_TRUE(table.insert(region));
    Region next{.iova = 0, .length = 10, .host = bytes, .access = 0, .pd = &other_pd};
    ASSERT_TRUE(table.replace(region, next));
    EXPECT_EQ(next.key, region.key);
    EXPECT_EQ(table.find(next.key), &next);
    EXPECT_TRUE(table.remove(next));
    EXPECT_EQ(table.find(next.key), nullptr);
}

TEST_F(MemoryTest, all_regions_that_hold_an_address_die_with_it) {
    Region other{.iova = 0, .length = 500, .host = bytes, .pd = &pd},
        apart{.iova = 0, .length = 500, .host = bytes + 500, .pd = &pd};
    ASSERT_TRUE(table.insert(region) && table.insert(other) && table.insert(apart));
    EXPECT_NE(table.invalidate_at(bytes + 499), 0u);
    EXPECT_EQ(table.translate(region.key, 0x10000, 1, 0, &pd), nullptr);
    EXPECT_EQ(table.translate(other.key, 0, 1, 0, &pd), nullptr);
    EXPECT_NE(table.translate(apart.key, 0, 1, 0, &pd), nullptr);
    EXPECT_EQ(table.invalidate_at(bytes + 1000), 0u);
}

TEST_F(MemoryTest, old_keys_find_nothing_until_all_others_were_used) {
    constexpr uint32_t kTimes = 100'000;
    std::vector<bool> tags(MemoryTable::kTags);
    for (uint32_t i = 0; i < kTimes; ++i) {
        ASSERT_TRUE(table.insert(region));
        ASSERT_FALSE(tags[region.key >> 8]) << "given twice after " << i;
        tags[region.key >> 8] = true;
        ASSERT_EQ(table.find(region.key), &region);
        table.remove(region);
        ASSERT_EQ(table.find(region.key), nullptr);
    }
    const Secret secret = Secret::random();
    std::vector<bool> seen(MemoryTable::kTags);
    for (uint32_t i = 0; i < MemoryTable::kTags; i += i < 1000 ? 1 : 97) {
        const uint32_t tag = secret.permute24(i);
        ASSERT_LT(tag, MemoryTable::kTags);
        ASSERT_FALSE(seen[tag]);
        seen[tag] = true;
    }
}

TEST_F(MemoryTest, many_regions_have_keys_of_their_own) {
    std::deque<Region> regions;
    std::set<uint32_t> keys;
    for (int i = 0; i < 5000; ++i) {
        Region& r = regions.emplace_back();
        ASSERT_TRUE(table.insert(r));
        keys.insert(r.key);
    }
    EXPECT_EQ(keys.size(), regions.size());
    EXPECT_EQ(keys.count(0), 0u);
    for (Region& r : regions) EXPECT_EQ(table.find(r.key), &r);
    for (size_t i = 0; i < regions.size(); i += 2) table.remove(regions[i]);
    for (size_t i = 0; i < regions.size(); ++i)
        EXPECT_EQ(table.find(regions[i].key), i % 2 == 0 ? nullptr : &regions[i]);
}

// A peer knows addresses and QPNs, but no key: each region has one of 2^32 keys, and each window 256, because the test
// grants the peer any consumer byte.
TEST_F(MemoryTest, keys_are_not_guessed) {
    std::set<uint32_t> first;
    for (int process = 0; process < 3; ++process) {
        MemoryTable another(Secret::random());
        ASSERT_TRUE(another.insert(region));
        first.insert(region.key);
    }
    EXPECT_EQ(first.size(), 3u);

    constexpr uint32_t kRegions = 1000, kTries = 2'000'000;
    std::deque<Region> regions;
    std::vector<uint32_t> keys;
    for (uint32_t i = 0; i < kRegions; ++i) {
        ASSERT_TRUE(table.insert(regions.emplace_back()));
        keys.push_back(regions.back().key);
    }
    // Guesses from known keys: their neighbours and their differences.
    uint32_t hits = 0;
    for (uint32_t i = 1; i < kRegions; ++i) {
        const uint32_t next = keys[i] + (keys[i] - keys[i - 1]), beside = keys[i] + 0x100;
        for (const uint32_t guess : {next, beside, next ^ 1}) hits += table.find(guess) != nullptr;
    }
    for (uint32_t i = 0; i < kTries; ++i) hits += table.find(0x100 + i * 2147u) != nullptr;
    EXPECT_LE(hits, 10u) << "expected 0.5";
    const double one = 4294967296.0 / 2;
    std::printf(
        "expected tries to hit a key: %.2g with one region, %.2g with %u; to hit a tag of 24 bits: %.2g, %.2g\n", one,
        4294967296.0 / (kRegions + 1), kRegions, MemoryTable::kTags / 2.0, MemoryTable::kTags / (kRegions + 1.0));
}

}  // namespace
}  // namespace rove::transport
