// SPDX-License-Identifier: Apache-2.0
// Tests batches of several threads. A thread that holds a batch has it alone, until the batch is freed and all its
// requests are final. A reused entry must not refer to memory or segments of its previous request that no longer exist.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "local_engine.h"
#include "tent/engine/engine.h"
#include "tent/engine/shard.h"

namespace rove::tent {
namespace {

constexpr size_t kThreads = 4, kSmall = 4096;

class BatchesTest : public testing::Test {
  protected:
    void SetUp() override {
        engine_ = start_local_engine();
        ASSERT_NE(engine_, nullptr);
        void* memory = nullptr;
        ASSERT_TRUE(engine_->allocate_memory(2 * kThreads * kSmall, {}, &memory).ok());
        memory_ = static_cast<uint8_t*>(memory);
        const uint64_t batch = engine_->allocate_batch(1);
        submit(batch, 0);  // opens the segment
        ASSERT_EQ(wait(batch), TransferStatusEnum::COMPLETED);
        ASSERT_TRUE(engine_->free_batch(batch).ok());
    }

    // Each thread has its own source, and copies it to its own target.
    uint8_t* here(size_t thread) const { return memory_ + 2 * thread * kSmall; }
    uint8_t* there(size_t thread) const { return here(thread) + kSmall; }
    void submit(uint64_t batch, size_t thread) {
        const Request request{.opcode = Request::WRITE,
                              .source = here(thread),
                              .target_offset = reinterpret_cast<uint64_t>(there(thread)),
                              .length = kSmall,
                              .transport_hint = Transport::SHM};
        ASSERT_TRUE(engine_->submit(batch, {&request, 1}, nullptr).ok());
    }
    // Runs a request in its own batch, which uses the same entry each time. Returns the status of the submission, and
    // expects the request to complete if it was accepted.
    Status copy(const void* from, uint64_t target, void* to) {
        const Request request{.opcode = Request::WRITE,
                              .source = const_cast<void*>(from),
                              .target_id = target,
                              .target_offset = reinterpret_cast<uint64_t>(to),
                              .length = kSmall};
        const uint64_t batch = engine_->allocate_batch(1);
        Status status = engine_->submit(batch, {&request, 1}, nullptr);
        if (status.ok()) {
            EXPECT_EQ(wait(batch), TransferStatusEnum::COMPLETED);
        }
        EXPECT_TRUE(engine_->free_batch(batch).ok());
        return status;
    }
    TransferStatusEnum wait(uint64_t batch) {
        TaskStatus status;
        do EXPECT_TRUE(engine_->overall_status(batch, &status).ok());
        while (status.state == TransferStatusEnum::PENDING);
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
                if (wait(batches[1]) != TransferStatusEnum::COMPLETED ||
                    std::memcmp(here(thread), there(thread), kSmall) != 0)
                    ++wrong;
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

TEST_F(BatchesTest, NotificationsComeInTheOrderOfTheirSubmits) {
    constexpr int kMany = 300;
    const Request request{.opcode = Request::WRITE,
                          .source = here(0),
                          .target_offset = reinterpret_cast<uint64_t>(there(0)),
                          .length = kSmall};
    for (int i = 0; i < kMany; ++i) {
        const uint64_t batch = engine_->allocate_batch(1);
        const NotificationText text{"n", std::to_string(i)};
        ASSERT_TRUE(engine_->submit(batch, {&request, 1}, &text).ok());
        EXPECT_EQ(wait(batch), TransferStatusEnum::COMPLETED);
        EXPECT_TRUE(engine_->free_batch(batch).ok());
    }
    std::vector<NotificationText> all;
    for (int i = 0; i < 5000 && all.size() < kMany; ++i) {
        for (auto& one : engine_->take_notifications()) all.push_back(std::move(one));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(all.size(), static_cast<size_t>(kMany));
    for (int i = 0; i < kMany; ++i) EXPECT_EQ(all[static_cast<size_t>(i)].message, std::to_string(i));
}

TEST_F(BatchesTest, FreedUnderWayItIsNotGivenAgainBefore) {
    uint64_t under_way = 0, other = 0;
    engine_->core().shard(0).with_lock([&] {  // so that no request advances
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
    EXPECT_EQ(wait(other), TransferStatusEnum::COMPLETED);
    bool given_again = false;  // once it is complete, which may be after `other`
    for (int i = 0; i < 5000 && !given_again; ++i) {
        given_again = engine_->allocate_batch(1) % 16384 == under_way % 16384;
        if (!given_again) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(given_again) << "as another one";
    EXPECT_EQ(engine_->free_batch(under_way).code(), Code::kInvalidArgument);
}

TEST_F(BatchesTest, SeveralWhoAskAboutALargeOneSeeItGrow) {
    constexpr size_t kTasks = 200, kBytes = 64;
    std::vector<Request> requests;
    // The targets are not adjacent, because adjacent requests are merged into one.
    for (size_t i = 0; i < kTasks; ++i) {
        uint8_t* const there = memory_ + kThreads * kSmall + (kTasks - 1 - i) * kBytes;
        requests.push_back({.opcode = Request::WRITE,
                            .source = memory_ + i * kBytes,
                            .target_offset = reinterpret_cast<uint64_t>(there),
                            .length = kBytes,
                            .transport_hint = Transport::TCP});
    }
    for (int round = 0; round < 5; ++round) {
        const uint64_t batch = engine_->allocate_batch(kTasks);
        ASSERT_TRUE(engine_->submit(batch, requests, nullptr).ok());
        const auto watch = [&] {
            TaskStatus status;
            for (uint64_t before = 0; status.state != TransferStatusEnum::COMPLETED; before = status.transferred) {
                ASSERT_TRUE(engine_->overall_status(batch, &status).ok());
                ASSERT_GE(status.transferred, before);
                ASSERT_LE(status.transferred, kTasks * kBytes);
            }
            EXPECT_EQ(status.transferred, kTasks * kBytes);
        };
        std::jthread other(watch);
        watch();
        other.join();
        EXPECT_TRUE(engine_->free_batch(batch).ok());
    }
}

// Some slices are reserved for higher priorities.
TEST_F(BatchesTest, OneWhoFillsTheEngineWithLowDoesNotGetHighRefused) {
    constexpr size_t kLarge = 32 << 20;  // the largest number of slices that a request may have
    void* memory = nullptr;
    ASSERT_TRUE(engine_->allocate_memory(2 * kLarge, {}, &memory).ok());
    const auto request = [&](Priority priority, size_t length) {
        return Request{.opcode = Request::WRITE,
                       .source = memory,
                       .target_offset = reinterpret_cast<uint64_t>(memory) + kLarge,
                       .length = length,
                       .priority = index(priority)};
    };
    std::vector<uint64_t> low;
    uint64_t high = 0;
    engine_->core().shard(0).with_lock([&] {  // so that no request advances
        std::jthread([&] {
            Status status;
            while (status.ok() && low.size() < 1000) {
                low.push_back(engine_->allocate_batch(1));
                const Request one = request(Priority::kLow, kLarge);
                status = engine_->submit(low.back(), {&one, 1}, nullptr);
            }
            EXPECT_EQ(status.code(), Code::kTooManyRequests);
            EXPECT_LT(low.size(), 1000u);
            high = engine_->allocate_batch(1);
            const Request one = request(Priority::kHigh, kSmall);
            EXPECT_TRUE(engine_->submit(high, {&one, 1}, nullptr).ok());
            for (const uint64_t batch : low) (void)engine_->cancel(batch, 0);
        }).join();
    });
    EXPECT_EQ(wait(high), TransferStatusEnum::COMPLETED);
    low.pop_back();  // the refused batch
    for (const uint64_t batch : low) EXPECT_EQ(wait(batch), TransferStatusEnum::CANCELED);
    EXPECT_TRUE(engine_->free_memory(memory).ok());
}

TEST_F(BatchesTest, MemoryThatIsNoLongerRegisteredIsRefused) {
    static uint8_t memory[kSmall];
    for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(engine_->register_memory(memory, sizeof(memory), {}).ok());
        EXPECT_TRUE(copy(memory, 0, there(0)).ok());
        EXPECT_TRUE(engine_->unregister_memory(memory, sizeof(memory)).ok());
        EXPECT_EQ(copy(memory, 0, there(0)).code(), Code::kAddressNotRegistered);
    }
    ASSERT_TRUE(engine_->register_memory(memory, sizeof(memory), {}).ok());
    uint64_t under_way = 0;
    engine_->core().shard(0).with_lock([&] {
        const Request request{.opcode = Request::WRITE,
                              .source = memory,
                              .target_offset = reinterpret_cast<uint64_t>(there(0)),
                              .length = kSmall};
        under_way = engine_->allocate_batch(1);
        ASSERT_TRUE(engine_->submit(under_way, {&request, 1}, nullptr).ok());
        EXPECT_EQ(engine_->unregister_memory(memory, sizeof(memory)).code(), Code::kInvalidArgument);
    });
    EXPECT_EQ(wait(under_way), TransferStatusEnum::COMPLETED);
    EXPECT_TRUE(engine_->unregister_memory(memory, sizeof(memory)).ok());
}

TEST_F(BatchesTest, AHandleThatWasClosedIsRefusedAndMeansAnotherLater) {
    std::unique_ptr<Engine> others[2];
    void* memories[2];
    for (int i = 0; i < 2; ++i) {
        Config config;
        const std::vector<Override> overrides{{"transports/rdma/enable", "false"},
                                              {"rpc_server_hostname", "127.0.0.1"}};
        ASSERT_TRUE(Config::load("", overrides, &config).ok());
        ASSERT_TRUE(Engine::start(config, &others[i]).ok());
        ASSERT_TRUE(others[i]->allocate_memory(kSmall, {}, &memories[i]).ok());
    }
    std::memset(here(0), 1, kSmall);
    uint64_t first = 0, second = 0;
    ASSERT_TRUE(engine_->open_segment(others[0]->segment_name(), &first).ok());
    EXPECT_TRUE(copy(here(0), first, memories[0]).ok());
    EXPECT_EQ(std::memcmp(memories[0], here(0), kSmall), 0);
    ASSERT_TRUE(engine_->close_segment(first).ok());
    EXPECT_EQ(copy(here(0), first, memories[0]).code(), Code::kInvalidEntry);
    ASSERT_TRUE(engine_->open_segment(others[1]->segment_name(), &second).ok());
    ASSERT_EQ(second, first);
    EXPECT_EQ(copy(here(0), second, memories[0]).code(), Code::kAddressNotRegistered);
    EXPECT_TRUE(copy(here(0), second, memories[1]).ok());
    EXPECT_EQ(std::memcmp(memories[1], here(0), kSmall), 0);
}

}  // namespace
}  // namespace rove::tent
