// SPDX-License-Identifier: Apache-2.0
// The guarantees of both implementations (EU-2, EU-4, EU-6), the static bitmap (EU-5), and the configuration.
#include <string>

#include "transport/reorder_receiver.h"

namespace rove::test {
namespace {

constexpr ReorderConfig kEunomia{}, kStatic{.kind = ReorderConfig::Kind::kStatic};

struct ReorderTest : ::testing::TestWithParam<ReorderConfig> {
    Reorder worker{GetParam()};
    Receiver r{worker};
};

TEST_P(ReorderTest, EU2_a_slot_says_received_tail_or_tail_with_completion) {
    r.arrive(1, Slot::kTail);
    r.arrive(2, Slot::kReceived);
    r.arrive(3, Slot::kTailWithCompletion);
    r.arrive(4, Slot::kReceived);
    r.arrive(5, Slot::kTail);
    r.arrive(0, Slot::kTail);  // the caller knows it
    EXPECT_EQ(r.visited, "1 3! 5 ");
}

TEST_P(ReorderTest, EU4_tells_duplicates_apart) {
    r.arrive_all(0, 5);
    r.arrive(7);
    for (const uint32_t packet : {0u, 4u, 7u}) EXPECT_EQ(r.arrive(packet), Arrival::kDuplicate) << packet;
    EXPECT_EQ(r.arrive(0u - 1), Arrival::kDuplicate);
    EXPECT_EQ(r.arrive(5 - (1u << 23)), Arrival::kDuplicate);  // the farthest PSN behind
    EXPECT_EQ(r.arrive(4 + (1u << 23)), Arrival::kBeyond);     // the farthest PSN ahead
    r.arrive(5);
    EXPECT_EQ(r.arrive(5), Arrival::kDuplicate);
    EXPECT_EQ(r.arrive(7), Arrival::kDuplicate);
    EXPECT_EQ(r.expected(), 6u);
    r.arrive(6);
    EXPECT_EQ(r.arrive(7), Arrival::kDuplicate);
}

TEST_P(ReorderTest, EU6_reports_a_tail_only_when_all_before_it_is_there) {
    r.arrive(2, Slot::kTailWithCompletion);
    r.arrive(5, Slot::kTailWithCompletion);
    EXPECT_EQ(r.visited, "");
    r.arrive(4);
    r.arrive(0);
    EXPECT_EQ(r.visited, "");
    r.arrive(1);
    EXPECT_EQ(r.visited, "2! ");
    r.arrive(3);
    EXPECT_EQ(r.visited, "2! 5! ");
}

TEST_P(ReorderTest, EU6_reports_tails_in_order_across_words_and_the_wrap_of_the_psn) {
    std::string all;
    for (uint32_t packet = 60; packet > 0; --packet) r.arrive(packet, Slot::kTail);
    for (uint32_t packet = 1; packet <= 60; ++packet) all += std::to_string(packet) + " ";
    r.arrive(0);
    EXPECT_EQ(r.visited, all);
}

TEST_P(ReorderTest, EU6_a_refused_tail_is_as_if_it_had_not_come) {
    for (uint32_t packet = 1; packet < 30; ++packet) r.arrive(packet, Slot::kTail);
    r.refused = 3;
    r.arrive(0);
    EXPECT_EQ(r.visited, "1 2 3 ");
    EXPECT_EQ(r.expected(), 3u);
    EXPECT_FALSE(r.has(3));
    EXPECT_TRUE(r.has(4));
    r.visited.clear();
    r.refused = 29;
    EXPECT_EQ(r.arrive(3), Arrival::kInOrder);
    EXPECT_EQ(r.expected(), 29u);
    EXPECT_EQ(worker.degree(r.stream), 0u);  // it was the last one tracked
    EXPECT_EQ(r.arrive(29), Arrival::kInOrder);
    EXPECT_EQ(r.expected(), 30u);
}

TEST_P(ReorderTest, EU1_EU5_degree_is_from_the_expected_to_the_highest) {
    EXPECT_EQ(worker.degree(r.stream), 0u);
    r.arrive(20);
    r.arrive(10);
    EXPECT_EQ(worker.degree(r.stream), 20u);
    r.arrive_all(0, 5);
    EXPECT_EQ(worker.degree(r.stream), 15u);
    r.arrive_all(5, 20);
    EXPECT_EQ(worker.degree(r.stream), 0u);
    r.arrive(22);
    EXPECT_EQ(worker.degree(r.stream), 1u);
}

TEST_P(ReorderTest, EU3_EU5_a_stream_begins_anew) {
    r.arrive(7, Slot::kTail);
    worker.start(r.stream, Receiver::psn(3));
    EXPECT_EQ(worker.degree(r.stream), 0u);
    EXPECT_FALSE(r.has(7));
    r.arrive_all(3, 9);
    EXPECT_EQ(r.expected(), 9u);
    EXPECT_EQ(r.visited, "");
}

INSTANTIATE_TEST_SUITE_P(Both, ReorderTest, ::testing::Values(kEunomia, kStatic), [](const auto& info) {
    return info.param.kind == ReorderConfig::Kind::kStatic ? "static" : "eunomia";
});

TEST(StaticBitmap, EU5_tracks_l_slots) {
    for (const uint32_t slots : {16u, 64u, 4096u}) {
        Reorder worker({.kind = ReorderConfig::Kind::kStatic, .static_slots = slots});
        Receiver r(worker);
        r.arrive_swapped(10);
        EXPECT_EQ(r.arrive(10 + slots), Arrival::kBeyond);
        for (uint32_t packet = 10 + slots - 1; packet > 11; --packet) ASSERT_EQ(r.arrive(packet), Arrival::kOutOfOrder);
        EXPECT_EQ(r.arrive(10 + slots), Arrival::kBeyond);
        EXPECT_EQ(worker.usage().exhausted, 0u);
        r.arrive(10);
        EXPECT_EQ(r.expected(), 10 + slots);
        EXPECT_EQ(worker.degree(r.stream), 0u);
    }
}

TEST(StaticBitmap, EU5_costs_the_same_in_order_or_not_until_the_queue_pair_goes) {
    Reorder worker(kStatic);
    {
        Receiver a(worker), b(worker);
        EXPECT_EQ(a.bytes(), 4u + 4 + 16);
        a.arrive(60);
        a.arrive_all(0, 60);
        a.arrive_last(61);
        EXPECT_EQ(a.bytes(), 4u + 4 + 16);
        EXPECT_EQ(worker.usage().bytes, 2u * 20);
    }
    EXPECT_EQ(worker.usage().bytes, 0u);
    Receiver c(worker);
    EXPECT_LT(c.stream.memory, 2u);  // the memory of one of the others
    EXPECT_EQ(worker.usage().blocks, 1u);
    EXPECT_EQ(worker.usage().peak_bytes, 2u * 20);
}

TEST(StaticBitmap, EU5_streams_do_not_share_slots) {
    Reorder worker(kStatic);
    Receiver a(worker), b(worker), c(worker);
    b.arrive_all(1, 64);
    for (uint32_t packet = 0; packet < 64; ++packet) EXPECT_FALSE(a.has(packet) || c.has(packet)) << packet;
}

TEST(ReorderConfig, EU1_EU3_EU5_ranges) {
    using Kind = ReorderConfig::Kind;
    EXPECT_EQ(invalid({}), nullptr);
    EXPECT_EQ(invalid({Kind::kEunomia, 256, 64 * 256, 64, 4096}), nullptr);
    EXPECT_EQ(invalid({Kind::kStatic, 16, 16, 65'536, 16}), nullptr);
    EXPECT_EQ(invalid({.block_slots = 32, .cap_slots = 96}), nullptr);
    const auto refuses = [](const ReorderConfig& config, const std::string& member) {
        const char* message = invalid(config);
        ASSERT_NE(message, nullptr) << member;
        EXPECT_EQ(std::string(message).substr(0, member.size() + 1), member + ":");
    };
    for (const uint32_t slots : {0u, 8u, 17u, 512u}) refuses({.block_slots = slots, .cap_slots = slots}, "block_slots");
    for (const uint32_t slots : {0u, 15u, 17u, 65 * 16u}) refuses({.cap_slots = slots}, "cap_slots");
    for (const uint32_t blocks : {0u, 63u, 65'537u}) refuses({.arena_blocks = blocks}, "arena_blocks");
    for (const uint32_t slots : {0u, 8u, 65u, 8192u}) refuses({.static_slots = slots}, "static_slots");
}

}  // namespace
}  // namespace rove::test
