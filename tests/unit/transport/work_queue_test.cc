// SPDX-License-Identifier: Apache-2.0
#include "transport/work_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace rove::transport {
namespace {

TEST(WorkQueue, room_is_what_was_asked_for) {
    for (uint32_t count : {1u, 2u, 3u, 5u, 64u, 100u}) {
        SendQueue queue;
        ASSERT_TRUE(queue.init(count, 4, 0));
        EXPECT_EQ(queue.room(), count);
        EXPECT_GE(queue.capacity(), count);
        queue.publish(count);
        EXPECT_EQ(queue.room(), 0u);
        EXPECT_EQ(queue.available_until(), count);
        queue.consume_to(1);
        EXPECT_EQ(queue.room(), 1u);
        queue.reset();
        EXPECT_EQ(queue.room(), count);
    }
}

TEST(WorkQueue, slots_hold_their_entries_and_inline_data) {
    SendQueue queue;
    ASSERT_TRUE(queue.init(7, 3, 200));
    for (uint32_t i = 0; i < 8; ++i) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(&queue.at(i)) % 64, 0u);
        std::memset(queue.at(i).inline_data(), static_cast<int>(i), 200);
    }
    for (uint32_t i = 0; i < 8; ++i) {
        for (int byte = 0; byte < 200; ++byte) ASSERT_EQ(queue.at(i).inline_data()[byte], i);
    }
    RecvQueue receives;
    ASSERT_TRUE(receives.init(4, kMaxSge));
    for (uint32_t i = 0; i < 4; ++i) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(&receives.at(i)) % alignof(RecvWqe), 0u);
        for (uint32_t s = 0; s < kMaxSge; ++s) receives.at(i).sges()[s] = {i, s, i + s};
    }
    for (uint32_t i = 0; i < 4; ++i) {
        for (uint32_t s = 0; s < kMaxSge; ++s) ASSERT_EQ(receives.at(i).sges()[s].lkey, i + s);
    }
}

TEST(WorkQueue, a_producer_and_a_consumer_thread_see_every_slot_once) {
    constexpr uint32_t kRequests = 200'000;
    SendQueue queue;
    ASSERT_TRUE(queue.init(48, 1, 0));
    std::thread producer([&] {
        for (uint32_t next = 0; next < kRequests;) {
            const uint32_t batch = std::min({queue.room(), 1 + next % 7, kRequests - next});
            if (batch == 0) std::this_thread::yield();
            for (uint32_t i = 0; i < batch; ++i) queue.at(queue.produced() + i).wr_id = next++;
            queue.publish(batch);
        }
    });
    uint64_t expected = 0;
    while (expected < kRequests) {
        const uint32_t until = queue.available_until();
        uint32_t index = queue.consumed();
        if (index == until) std::this_thread::yield();
        for (; index != until; ++index) ASSERT_EQ(queue.at(index).wr_id, expected++);
        queue.consume_to(index);
    }
    producer.join();
}

}  // namespace
}  // namespace rove::transport
