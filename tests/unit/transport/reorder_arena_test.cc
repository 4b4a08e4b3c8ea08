// SPDX-License-Identifier: Apache-2.0
// EU-3: the memory controller, against a std::vector<bool> that is searched from its ends.
#include <cstring>

#include "support/random.h"
#include "transport/reorder/arena.h"
#include "transport/reorder_model.h"

namespace rove::test {
namespace {

using transport::ReorderArena;

constexpr uint32_t kBlockBytes = 4, kMetadataBytes = 44, kMetadataBlocks = 11;

TEST(ReorderArena, EU3_blocks_come_from_the_front_and_metadata_from_the_back) {
    ReorderArena arena(128, kBlockBytes, kMetadataBytes);
    EXPECT_EQ(arena.metadata_bytes(), kMetadataBytes);
    EXPECT_EQ(arena.take_block(), 0u);
    EXPECT_EQ(arena.take_block(), 1u);
    EXPECT_EQ(arena.take_metadata(), 128 - kMetadataBlocks);
    EXPECT_EQ(arena.take_metadata(), 128 - 2 * kMetadataBlocks);
    arena.free_block(0);
    EXPECT_EQ(arena.take_block(), 0u);
    arena.free_metadata(128 - kMetadataBlocks);
    EXPECT_EQ(arena.take_metadata(), 128 - kMetadataBlocks);
}

TEST(ReorderArena, EU3_reports_memory_now_and_at_its_peak) {
    ReorderArena arena(128, kBlockBytes, kMetadataBytes);
    const uint32_t metadata = arena.take_metadata(), block = arena.take_block();
    EXPECT_EQ(arena.usage().blocks, kMetadataBlocks + 1);
    EXPECT_EQ(arena.usage().bytes, kMetadataBytes + kBlockBytes);
    arena.free_metadata(metadata);
    arena.free_block(block);
    EXPECT_EQ(arena.usage().blocks, 0u);
    EXPECT_EQ(arena.usage().bytes, 0u);
    EXPECT_EQ(arena.usage().peak_blocks, kMetadataBlocks + 1);
    EXPECT_EQ(arena.usage().peak_bytes, kMetadataBytes + kBlockBytes);
}

TEST(ReorderArena, EU3_a_block_is_empty_whatever_it_held_before) {
    ReorderArena arena(64, kBlockBytes, kMetadataBytes);
    const uint32_t block = arena.take_block();
    std::memset(arena.at(block), 0xFF, kBlockBytes);
    arena.free_block(block);
    EXPECT_EQ(*reinterpret_cast<const uint32_t*>(arena.at(arena.take_block())), 0u);
}

TEST(ReorderArena, EU3_gives_its_last_block_and_no_more) {
    for (const uint32_t blocks : {64u, 65u, 100u, 4096u, 4097u, ReorderArena::kMaxBlocks}) {
        ReorderArena arena(blocks, kBlockBytes, kMetadataBytes);
        EXPECT_TRUE(arena.can_start(blocks - kMetadataBlocks));
        EXPECT_FALSE(arena.can_start(blocks - kMetadataBlocks + 1));
        EXPECT_TRUE(arena.can_extend(blocks));
        EXPECT_FALSE(arena.can_extend(blocks + 1));
        for (uint32_t i = 0; i < blocks; ++i) ASSERT_EQ(arena.take_block(), i);
        EXPECT_FALSE(arena.can_extend(1));
        EXPECT_FALSE(arena.can_start(0));
    }
}

TEST(ReorderArena, EU3_behaves_like_a_vector_of_bools) {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Random random(seed);
        const auto blocks = static_cast<uint32_t>(random.between(64, random.pick(70u, 200u, 5000u)));
        const auto metadata_blocks = static_cast<uint32_t>(random.between(1, 64));
        ReorderArena arena(blocks, kBlockBytes, metadata_blocks * kBlockBytes);
        ModelArena model(blocks, metadata_blocks);
        std::vector<uint32_t> taken, taken_metadata;
        const auto pop = [&](std::vector<uint32_t>& from) {
            std::swap(from[random.below(from.size())], from.back());
            const uint32_t block = from.back();
            from.pop_back();
            return block;
        };
        for (int step = 0; step < 2000; ++step) {
            // Fills up and empties several times.
            const bool fill = random.chance(step / 300 % 2 == 0 ? 0.9 : 0.2);
            if (random.chance(0.2)) {
                ASSERT_EQ(arena.can_start(0), model.free() >= metadata_blocks && model.has_run());
                if (fill && arena.can_start(0)) {
                    taken_metadata.push_back(arena.take_metadata());
                    ASSERT_EQ(taken_metadata.back(), model.take_metadata());
                } else if (!fill && !taken_metadata.empty()) {
                    const uint32_t first = pop(taken_metadata);
                    arena.free_metadata(first);
                    model.set(first, metadata_blocks, false);
                }
            } else {
                ASSERT_EQ(arena.can_extend(1), model.free() >= 1);
                if (fill && arena.can_extend(1)) {
                    taken.push_back(arena.take_block());
                    ASSERT_EQ(taken.back(), model.take_block());
                } else if (!fill && !taken.empty()) {
                    const uint32_t block = pop(taken);
                    arena.free_block(block);
                    model.set(block, 1, false);
                }
            }
            ASSERT_EQ(arena.usage().blocks, model.used());
        }
    }
}

}  // namespace
}  // namespace rove::test
