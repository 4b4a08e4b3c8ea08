// SPDX-License-Identifier: Apache-2.0
// Batches of several threads: who has one, has it alone, until it is freed and all of it is final.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tent/engine.h"

namespace rove::tent {
namespace {

constexpr size_t kThreads = 4, kSmall = 4096;

class BatchesTest : public testing::Test {
  protected:
    void SetUp() override {
        Config config;
        const std::vector<Override> overrides{{"transports/rdma/enable", "false"}, {"rpc_server_hostname", "127.0.0.1"}};
        ASSERT_TRUE(Config::load("", overrides, &config).ok());
        ASSERT_TRUE(Engine::start(config, &engine_).ok());
        void* memory = nullptr;
        ASSERT_TRUE(engine_->allocate_memory(2 * kThreads * kSmall, {}, &memory).ok());
        memory_ = static_cast<uint8_t*>(memory);
        const uint64_t batch = engine_->allocate_batch(1);
        submit(batch, 0);  // the segment is open now
        ASSERT_EQ(wait(batch), TransferState::kCompleted);
        ASSERT_TRUE(engine_->free_batch(batch).ok());
    }

    // Each thread has a place of its own, and copies it to another.
    uint8_t* here(size_t thread) const { return memory_ + 2 * thread * kSmall; }
    uint8_t* there(size_t thread) const { return here(thread) + kSmall; }
    void submit(uint64_t batch, size_t thread) {
        const TransferRequest request{.direction = Direction::kWrite,
                                      .source = here(thread),
                                      .target_offset = reinterpret_cast<uint64_t>(there(thread)),
                                      .length = kSmall,
                                      .transport_hint = static_cast<int>(Transport::kShm)};
        ASSERT_TRUE(engine_->submit(batch, {&request, 1}, nullptr).ok());
    }
    TransferState wait(uint64_t batch) {
        TaskStatus status;
        do EXPECT_TRUE(engine_->overall_status(batch, &status).ok());
        while (status.state == TransferState::kPending);
        return status.state;
    }

    std::unique_ptr<Engine> engine_;
    uint8_t* memory_ = nullptr;
};

TEST_F(BatchesTest, EachIsOneThreadsAlone) {
    constexpr uint64_t kSlots = 16384;
    std::array<std::atomic<int>, kSlots> owners{};
    std::atomic<size_t> shared{0}, wrong{0};
    const auto use = [&](size_t thread) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
        for (int i = 0; std::chrono::steady_clock::now() < until; ++i) {
            std::array<uint64_t, 3> batches{};
            for (uint64_t& batch : batches) {
                batch = engine_->allocate_batch(1);
                if (owners[batch % kSlots].fetch_add(1) != 0) ++shared;
            }
            if (i % 16 == 0) {
                std::memset(here(thread), i / 16, kSmall);
                submit(batches[1], thread);
                if (wait(batches[1]) != TransferState::kCompleted || std::memcmp(here(thread), there(thread), kSmall) != 0) ++wrong;
            }
            for (const uint64_t batch : batches) {
                owners[batch % kSlots].fetch_sub(1);
                if (!engine_->free_batch(batch).ok()) ++wrong;
            }
        }
    };
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kThreads; ++i) threads.emplace_back(use, i);
    threads.clear();
    EXPECT_EQ(shared, 0u);
    EXPECT_EQ(wrong, 0u);
}

TEST_F(BatchesTest, FreedUnderWayItIsNotGivenAgainBefore) {
    uint64_t under_way = 0, other = 0;
    engine_->core().with_lock([&] {  // so that nothing moves
        under_way = engine_->allocate_batch(1);
        std::jthread([&] {
            submit(under_way, 0);
            EXPECT_TRUE(engine_->free_batch(under_way).ok());
            EXPECT_EQ(engine_->free_batch(under_way).code(), Code::kInvalidArgument);
            TaskStatus status;
            EXPECT_EQ(engine_->overall_status(under_way, &status).code(), Code::kInvalidArgument);
        }).join();
        other = engine_->allocate_batch(1);
        EXPECT_NE(other % 16384, under_way % 16384);
    });
    submit(other, 1);
    EXPECT_EQ(wait(other), TransferState::kCompleted);
    EXPECT_EQ(engine_->allocate_batch(1) % 16384, under_way % 16384) << "complete, it is given again, as another one";
    EXPECT_EQ(engine_->free_batch(under_way).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace rove::tent
