// SPDX-License-Identifier: Apache-2.0
#include "transport/paths/unused_acks.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace rove::transport {
namespace {

TEST(UnusedAcksTest, WithoutAnyThereIsNoMemory) {
    const UnusedAcks acks;
    EXPECT_EQ(acks.count(), 0u);
    EXPECT_EQ(acks.bytes(), 0u);
}

TEST(UnusedAcksTest, BehavesLikeABoundedQueue) {
    std::minstd_rand random(1);
    UnusedAcks acks;
    std::deque<uint16_t> model;
    for (uint32_t i = 0; i < 100'000; ++i) {
        const bool filling = i / 1000 % 2 == 0;
        if (random() % 8 < (filling ? 6 : 2)) {
            const auto vp = static_cast<uint16_t>(random());
            ASSERT_EQ(acks.add(vp), model.size() < UnusedAcks::kMost);
            if (model.size() < UnusedAcks::kMost) model.push_back(vp);
        } else if (!model.empty()) {
            ASSERT_EQ(acks.first(), model.front());
            ASSERT_FALSE(acks.is_first_used());
            ASSERT_EQ(acks.use_first(), 1u);
            acks.remove_first();
            model.pop_front();
        }
        if (random() % 5000 == 0) {
            acks.clear();
            model.clear();
        }
        ASSERT_EQ(acks.count(), model.size());
        for (uint32_t at = 0; at < model.size(); at += 1 + at / 4) ASSERT_EQ(acks[at], model[at]);
    }
    EXPECT_EQ(acks.bytes(), UnusedAcks::kMost * sizeof(uint16_t));
}

TEST(UnusedAcksTest, ClearingForgetsThatTheFirstWasUsed) {
    UnusedAcks acks;
    ASSERT_TRUE(acks.add(1));
    acks.use_first();
    acks.clear();
    ASSERT_TRUE(acks.add(2));
    EXPECT_FALSE(acks.is_first_used());
    EXPECT_EQ(acks.first(), 2u);
}

}  // namespace
}  // namespace rove::transport
