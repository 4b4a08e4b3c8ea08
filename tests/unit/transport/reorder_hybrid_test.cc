// SPDX-License-Identifier: Apache-2.0
// EU-1 and EU-3: when a stream's bitmap is allocated, grows, merges and is freed. Blocks have 16 slots, and there are
// at most 16 of them, unless a case differs.
#include <algorithm>
#include <vector>

#include "support/random.h"
#include "transport/reorder_receiver.h"

namespace rove::test {
namespace {

struct HybridBitmap : ::testing::Test {
    Reorder worker{transport::kEunomiaSizes};
    Receiver r{worker};
};

TEST_F(HybridBitmap, EU1_a_stream_in_order_has_no_memory) {
    for (uint32_t packet = 0; packet < 100; ++packet) {
        EXPECT_EQ(r.arrive(packet), Arrival::kInOrder);
        EXPECT_EQ(r.expected(), packet + 1);
    }
    EXPECT_EQ(r.bytes(), sizeof(ReorderStream) - sizeof(Psn));
    EXPECT_EQ(worker.usage().peak_bytes, 0u);
}

TEST_F(HybridBitmap, EU1_the_first_packet_out_of_order_takes_one_block) {
    EXPECT_EQ(r.arrive(15), Arrival::kOutOfOrder);
    EXPECT_EQ(r.blocks(), 1u);
    EXPECT_EQ(worker.usage().blocks, 12u);  // eleven are metadata
    EXPECT_EQ(worker.usage().bytes, 48u);
    EXPECT_TRUE(r.has(15));
    EXPECT_FALSE(r.has(0) || r.has(14) || r.has(16));
}

TEST_F(HybridBitmap, EU1_the_first_packet_may_take_several_blocks) {
    r.arrive_all(0, 5);
    EXPECT_EQ(r.arrive(40), Arrival::kOutOfOrder);
    EXPECT_EQ(r.blocks(), 3u);
    r.arrive_all(5, 40);
    EXPECT_EQ(r.expected(), 41u);
}

TEST_F(HybridBitmap, EU1_the_circular_part_wraps) {
    r.arrive_swapped(202);
    EXPECT_EQ(r.expected(), 202u);
    EXPECT_EQ(r.blocks(), 1u);
    r.arrive(202 + 15);
    EXPECT_EQ(r.blocks(), 1u);
    r.arrive(202 + 16);
    EXPECT_EQ(r.blocks(), 2u);
}

TEST_F(HybridBitmap, EU1_growth_leaves_every_packet_in_its_place) {
    r.arrive_swapped(10);  // the head is in the middle of the ring
    for (const uint32_t packet : {10 + 5, 10 + 7, 10 + 15, 10 + 16, 10 + 31, 10 + 32, 10 + 100}) r.arrive(packet);
    EXPECT_EQ(r.blocks(), 7u);  // 16 .. 100 after the head are linear
    for (uint32_t packet = 10; packet < 200; ++packet) {
        const uint32_t ahead = packet - 10;
        const bool arrived = ahead == 1 || ahead == 5 || ahead == 7 || ahead == 15 || ahead == 16 || ahead == 31 ||
                             ahead == 32 || ahead == 100;
        EXPECT_EQ(r.has(packet), arrived) << ahead;
    }
}

TEST_F(HybridBitmap, EU1_the_tail_stays_while_there_is_a_linear_part) {
    r.arrive_swapped(10);
    r.arrive(10 + 16);  // tail: 25
    r.arrive_all(10, 20);
    EXPECT_EQ(r.expected(), 20u);
    EXPECT_EQ(r.arrive(25 + 16), Arrival::kOutOfOrder);
    EXPECT_EQ(r.blocks(), 2u);
    r.arrive(25 + 17);
    EXPECT_EQ(r.blocks(), 3u);
    EXPECT_EQ(r.arrive(25 + 15 * 16), Arrival::kOutOfOrder);
    EXPECT_EQ(r.blocks(), 16u);
    EXPECT_EQ(r.arrive(25 + 15 * 16 + 1), Arrival::kBeyond);
}

TEST_F(HybridBitmap, EU1_the_linear_part_merges_once_the_circular_part_is_flushed) {
    r.arrive_swapped(10);
    r.arrive(25 + 20);  // tail: 25; two linear blocks
    r.arrive_all(10, 25);
    EXPECT_EQ(r.expected(), 25u);
    EXPECT_EQ(r.blocks(), 3u);
    r.arrive(25);  // the tail itself: three blocks are one ring
    EXPECT_EQ(r.arrive(26 + 47), Arrival::kOutOfOrder);
    EXPECT_EQ(r.blocks(), 3u);
    for (uint32_t packet = 27; packet < 100; ++packet) EXPECT_EQ(r.has(packet), packet == 45 || packet == 73) << packet;
    r.arrive_all(26, 73);
    EXPECT_EQ(r.expected(), 74u);
    EXPECT_EQ(r.blocks(), 3u);
}

TEST_F(HybridBitmap, EU1_one_packet_may_flush_both_parts) {
    r.arrive_all(0, 3);
    r.arrive_all(4, 150);
    EXPECT_EQ(r.blocks(), 10u);  // 3 .. 149
    r.arrive(3);
    EXPECT_EQ(r.expected(), 150u);
    EXPECT_EQ(worker.degree(r.stream), 0u);
    r.arrive(150 + 159);
    EXPECT_EQ(r.blocks(), 10u);
}

TEST_F(HybridBitmap, EU1_no_bitmap_grows_beyond_the_cap) {
    EXPECT_EQ(r.arrive(256), Arrival::kBeyond);
    EXPECT_EQ(r.arrive((1u << 23) - 1), Arrival::kBeyond);
    EXPECT_EQ(r.bytes(), 4u);
    EXPECT_EQ(r.arrive(255), Arrival::kOutOfOrder);
    EXPECT_EQ(r.arrive(256), Arrival::kBeyond);
    EXPECT_EQ(r.bytes(), 4u + 44 + 64);
    EXPECT_EQ(worker.usage().exhausted, 0u);
}

// Design note 4 of hybrid_bitmap.h: (cap - block) / 2 = 120 packets ahead, whatever the history of the bitmap.
TEST_F(HybridBitmap, EU1_half_the_cap_is_always_tracked) {
    Random random(1);
    std::vector<std::pair<uint64_t, uint32_t>> order;
    for (uint32_t packet = 0; packet < 100'000; ++packet) {
        const uint64_t degree = 1 + packet % 10'000 * 120 / 9'999;  // rises slowly, again and again
        order.emplace_back(packet + random.below(degree), packet);
    }
    std::stable_sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.first < b.first; });
    uint32_t most = 0;
    for (const auto& [time, packet] : order) {
        ASSERT_LE(r.arrive(packet, Slot::kReceived, packet % 10'000 == 9'999), Arrival::kOutOfOrder) << packet;
        most = std::max(most, worker.degree(r.stream));
    }
    EXPECT_EQ(r.expected(), 100'000u);
    EXPECT_GT(most, 110u);
    EXPECT_EQ(worker.usage().blocks, 0u);
}

TEST_F(HybridBitmap, EU1_memory_stays_where_no_last_has_passed_and_the_whole_of_it_is_used_again) {
    r.arrive(33);
    r.arrive_all(0, 34);
    EXPECT_EQ(worker.degree(r.stream), 0u);
    EXPECT_EQ(r.blocks(), 3u);
    r.arrive_all(34, 39);
    EXPECT_EQ(r.arrive(39 + 47), Arrival::kOutOfOrder);
    EXPECT_EQ(r.blocks(), 3u);
}

TEST_F(HybridBitmap, EU3_last_frees_once_the_stream_is_in_order) {
    r.arrive(1);
    r.arrive_last(3);
    r.arrive(0);
    EXPECT_EQ(r.blocks(), 1u);  // 2 is missing
    r.arrive(2);
    EXPECT_EQ(r.expected(), 4u);
    EXPECT_EQ(r.bytes(), 4u);
    EXPECT_EQ(worker.usage().blocks, 0u);
}

TEST_F(HybridBitmap, EU3_last_frees_when_it_fills_the_hole) {
    r.arrive(1);
    r.arrive_last(0);
    EXPECT_EQ(r.expected(), 2u);
    EXPECT_EQ(worker.usage().blocks, 0u);
}

TEST_F(HybridBitmap, EU3_last_frees_when_it_comes_in_order) {
    r.arrive(1);
    r.arrive(0);
    EXPECT_EQ(r.blocks(), 1u);
    r.arrive_last(2);
    EXPECT_EQ(r.expected(), 3u);
    EXPECT_EQ(worker.usage().blocks, 0u);
    r.arrive_last(3);
    EXPECT_EQ(r.expected(), 4u);
}

TEST_F(HybridBitmap, EU3_a_last_that_has_passed_is_forgotten_with_the_memory) {
    r.arrive_last(1);
    r.arrive(0);
    EXPECT_EQ(r.bytes(), 4u);
    r.arrive(3);
    r.arrive(2);
    EXPECT_EQ(r.blocks(), 1u);
}

TEST_F(HybridBitmap, EU3_a_queue_pair_that_goes_gives_its_memory_back) {
    r.arrive(100);
    r.arrive_last(1);
    worker.stop(r.stream);
    EXPECT_EQ(worker.usage().blocks, 0u);
    worker.start(r.stream, Receiver::psn(0));
    EXPECT_FALSE(r.has(1) || r.has(100));
    EXPECT_EQ(r.arrive(1), Arrival::kOutOfOrder);
    EXPECT_FALSE(r.has(2) || r.has(15));
    r.arrive(0);
    EXPECT_EQ(r.blocks(), 1u);  // the Last belongs to the former life
}

// 64 blocks: metadata for five streams, and nine more.
TEST(ReorderExhausted, EU3_refuses_counts_and_recovers) {
    Reorder worker({.block_slots = 16, .cap_slots = 256, .arena_blocks = 64});
    Receiver a(worker), b(worker);
    EXPECT_EQ(a.arrive(255), Arrival::kOutOfOrder);  // 27
    EXPECT_EQ(b.arrive(255), Arrival::kOutOfOrder);  // 27, ten left
    Receiver c(worker);
    EXPECT_EQ(c.arrive(1), Arrival::kExhausted);
    EXPECT_EQ(c.arrive(1), Arrival::kExhausted);
    EXPECT_EQ(worker.usage().exhausted, 2u);
    EXPECT_EQ(worker.usage().blocks, 54u);
    EXPECT_EQ(c.bytes(), 4u);
    EXPECT_EQ(worker.degree(c.stream), 0u);
    EXPECT_EQ(c.arrive(0), Arrival::kInOrder);       // in order, nothing is needed
    EXPECT_EQ(b.arrive(254), Arrival::kOutOfOrder);  // and nothing where memory exists already
    a.arrive_all(0, 255);
    a.arrive_last(256);
    EXPECT_EQ(worker.usage().blocks, 27u);
    EXPECT_EQ(c.arrive(2), Arrival::kOutOfOrder);
    EXPECT_EQ(worker.usage().exhausted, 2u);
    EXPECT_EQ(worker.usage().peak_blocks, 54u);
}

// A stream with metadata and n blocks has 11 + n of the 64.
TEST(ReorderExhausted, EU3_no_peer_uses_more_than_it_leaves_free) {
    Reorder worker({.block_slots = 16, .cap_slots = 256, .arena_blocks = 64});
    Receiver a(worker, 1), b(worker, 1), c(worker, 1), other(worker, 2);
    EXPECT_EQ(a.arrive(150), Arrival::kOutOfOrder);  // 21
    EXPECT_EQ(b.arrive(1), Arrival::kExhausted);     // 12 more would leave 31 beside 33
    EXPECT_EQ(a.arrive(16 * 14), Arrival::kOutOfOrder);
    EXPECT_EQ(c.arrive(1), Arrival::kExhausted);
    EXPECT_EQ(other.arrive(1), Arrival::kOutOfOrder);
    EXPECT_EQ(worker.usage().exhausted, 2u);
    a.arrive_all(0, 150);
    worker.stop(a.stream);
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(b.arrive(150), Arrival::kOutOfOrder) << "it is given back each time";
        worker.stop(b.stream);
    }
}

TEST(ReorderExhausted, EU3_growth_is_all_or_nothing) {
    Reorder worker({.block_slots = 16, .cap_slots = 256, .arena_blocks = 64});
    Receiver a(worker), b(worker), c(worker);
    a.arrive(255);
    b.arrive(150);  // 27 + 21
    c.arrive(1);    // 12: four left
    EXPECT_EQ(c.arrive(5 * 16), Arrival::kExhausted);
    EXPECT_EQ(c.blocks(), 1u);
    EXPECT_FALSE(c.has(5 * 16));
    EXPECT_EQ(c.arrive(4 * 16), Arrival::kOutOfOrder);
    EXPECT_EQ(worker.usage().blocks, 64u);
    c.arrive_all(0, 4 * 16);
    EXPECT_EQ(c.expected(), 65u);
}

TEST(HybridBitmapSizes, EU1_the_largest_bitmap) {
    Reorder worker({.block_slots = 256, .cap_slots = 64 * 256});
    Receiver r(worker);
    constexpr uint32_t kAll = 64 * 256;
    for (uint32_t packet = kAll - 1; packet > 0; --packet) ASSERT_EQ(r.arrive(packet), Arrival::kOutOfOrder);
    EXPECT_EQ(r.arrive(kAll), Arrival::kBeyond);
    EXPECT_EQ(worker.degree(r.stream), kAll - 1);
    r.arrive(0);
    EXPECT_EQ(r.expected(), kAll);
}

}  // namespace
}  // namespace rove::test
