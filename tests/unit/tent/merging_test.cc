// SPDX-License-Identifier: Apache-2.0
// Tests merged requests (T-14), with an engine that copies within its own segment: the data that moved, the number of
// slices, and the state of each request.
#include "tent/engine/merging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <numeric>
#include <thread>

#include "tent/engine/engine.h"
#include "tent/engine/shard.h"

namespace rove::tent {
namespace {

constexpr size_t kBlock = 65536, kSmall = 4096, kAllBytes = 48 << 20;

class MergingTest : public testing::Test {
  protected:
    void start(const char* merge) {
        Config config;
        const std::vector<Override> overrides{
            {"transports/rdma/enable", "false"}, {"rpc_server_hostname", "127.0.0.1"}, {"merge_requests", merge}};
        ASSERT_TRUE(Config::load("", overrides, &config).ok());
        ASSERT_TRUE(Engine::start(config, &engine_).ok());
        void* memory = nullptr;
        ASSERT_TRUE(engine_->allocate_memory(kAllBytes, {}, &memory).ok());
        here_ = static_cast<uint8_t*>(memory);
        ASSERT_TRUE(engine_->allocate_memory(kAllBytes, {}, &memory).ok());
        there_ = static_cast<uint8_t*>(memory);
        for (size_t i = 0; i < kAllBytes; ++i) here_[i] = static_cast<uint8_t>(i * 7 + i / 251);
        carry({request(0, 1)});  // opens the segment
        std::memset(there_, 0, kAllBytes);
    }

    Request request(size_t at, size_t bytes = kSmall, int priority = 0) const {
        return {.opcode = Request::WRITE,
                .source = here_ + at,
                .target_offset = reinterpret_cast<uint64_t>(there_ + at),
                .length = bytes,
                .priority = priority,
                .transport_hint = Transport::SHM};
    }

    uint64_t slices() {
        uint64_t count = 0;
        engine_->core().shard(0).with_lock(
            [&] { count = engine_->core().shard(0).transports[static_cast<size_t>(Transport::SHM)].slices; });
        return count;
    }

    std::vector<TaskStatus> wait(uint64_t batch, size_t tasks) {
        TaskStatus status;
        do EXPECT_TRUE(engine_->overall_status(batch, &status).ok());
        while (status.state == TransferStatusEnum::PENDING);
        std::vector<TaskStatus> list(tasks);
        for (size_t i = 0; i < tasks; ++i) EXPECT_TRUE(engine_->task_status(batch, i, &list[i]).ok());
        EXPECT_TRUE(engine_->free_batch(batch).ok());
        return list;
    }

    // Returns the number of slices used. Expects all requests to be complete with their own bytes, and no other byte to
    // be written.
    uint64_t carry(const std::vector<Request>& requests) {
        const uint64_t before = slices(), batch = engine_->allocate_batch(requests.size());
        EXPECT_TRUE(engine_->submit(batch, requests, nullptr).ok());
        const auto list = wait(batch, requests.size());
        std::vector<uint8_t> expected(kAllBytes);
        for (size_t i = 0; i < requests.size(); ++i) {
            EXPECT_EQ(list[i].state, TransferStatusEnum::COMPLETED);
            EXPECT_EQ(list[i].transferred, requests[i].length);
            const auto at = static_cast<size_t>(static_cast<uint8_t*>(requests[i].source) - here_);
            std::memcpy(&expected[at], here_ + at, requests[i].length);
        }
        EXPECT_EQ(std::memcmp(expected.data(), there_, kAllBytes), 0);
        std::memset(there_, 0, kAllBytes);
        return slices() - before;
    }

    std::unique_ptr<Engine> engine_;
    uint8_t *here_ = nullptr, *there_ = nullptr;
};

TEST_F(MergingTest, NeighboursTravelAsOneInAnyOrder) {
    start("true");
    std::vector<Request> requests;
    for (size_t i = 0; i < 32; ++i) requests.push_back(request((i * 5 % 32) * kSmall));
    EXPECT_EQ(carry(requests), 32 * kSmall / kBlock);
    EXPECT_EQ(carry({request(0, 100), request(100, 200'000), request(200'100, 1)}), 3u) << "not where slices begin";
}

TEST_F(MergingTest, SlicesStayABlock) {
    start("true");
    constexpr size_t kMost = 512 * kBlock;
    EXPECT_EQ(carry({request(0, kMost - kSmall), request(kMost - kSmall, kSmall), request(kMost, kSmall)}), 512u + 1);
}

TEST_F(MergingTest, IsSwitchedOff) {
    start("false");
    EXPECT_EQ(carry({request(0), request(kSmall), request(2 * kSmall)}), 3u);
}

TEST_F(MergingTest, OnlyWhatIsAlike) {
    start("true");
    EXPECT_EQ(carry({request(0), request(kSmall + 1)}), 2u) << "a byte between them";
    EXPECT_EQ(carry({request(0), request(kSmall, kSmall, 1), request(2 * kSmall, kSmall, 1)}), 2u) << "priorities";
    Request moved = request(8 * kSmall);
    moved.source = here_ + kSmall;
    Request other = request(2 * kSmall);
    other.transport_hint = Transport::UNSPEC;
    EXPECT_EQ(carry({request(kSmall), other}), 2u) << "hints";
    // Adjacent at the peer only.
    const uint64_t before = slices(), batch = engine_->allocate_batch(2);
    ASSERT_TRUE(engine_->submit(batch, std::vector{request(7 * kSmall), moved}, nullptr).ok());
    wait(batch, 2);
    EXPECT_EQ(slices() - before, 2u);
    EXPECT_EQ(std::memcmp(there_ + 8 * kSmall, here_ + kSmall, kSmall), 0);
}

TEST_F(MergingTest, EachIsCancelledByItself) {
    start("true");
    // Requests wait while another thread has the drive lock.
    std::promise<void> held, go_on;
    std::thread holder([&] {
        engine_->core().shard(0).with_lock([&] {
            held.set_value();
            go_on.get_future().wait();
        });
    });
    held.get_future().wait();
    const std::vector requests{request(0, kBlock), request(kBlock, 2 * kBlock), request(3 * kBlock, kBlock / 2),
                               request(7 * kBlock / 2, kBlock / 2)};
    const uint64_t batch = engine_->allocate_batch(4);
    ASSERT_TRUE(engine_->submit(batch, requests, nullptr).ok());
    ASSERT_TRUE(engine_->cancel(batch, 1).ok());
    ASSERT_TRUE(engine_->cancel(batch, 2).ok());
    go_on.set_value();
    holder.join();
    const auto list = wait(batch, 4);
    EXPECT_EQ(list[0].state, TransferStatusEnum::COMPLETED);
    EXPECT_EQ(list[1].state, TransferStatusEnum::CANCELED);
    EXPECT_EQ(list[1].transferred, 0u);
    EXPECT_EQ(list[2].state, TransferStatusEnum::COMPLETED) << "it shares a slice with one that is wanted";
    EXPECT_EQ(list[3].state, TransferStatusEnum::COMPLETED);
    EXPECT_EQ(std::memcmp(there_ + 3 * kBlock, here_ + 3 * kBlock, kBlock), 0);
    EXPECT_EQ(std::count(there_ + kBlock, there_ + 3 * kBlock, 0), 2 * kBlock);
}

}  // namespace
}  // namespace rove::tent
