// SPDX-License-Identifier: Apache-2.0
// Tests copies through shared memory. Any number of threads makes them, without the drive lock.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "local_engine.h"
#include "tent/engine/shard.h"

namespace rove::tent {
namespace {

using namespace std::chrono_literals;
using Time = std::chrono::steady_clock;

uint8_t* allocate(Engine& engine, uint64_t bytes, int value) {
    void* memory = nullptr;
    EXPECT_TRUE(engine.allocate_memory(bytes, {}, &memory).ok());
    std::memset(memory, value, bytes);  // touches the pages
    return static_cast<uint8_t*>(memory);
}

TransferStatusEnum write(Engine& engine, void* source, uint64_t target, void* there, uint64_t bytes) {
    const Request request{.opcode = Request::WRITE,
                          .source = source,
                          .target_id = target,
                          .target_offset = reinterpret_cast<uint64_t>(there),
                          .length = bytes,
                          .transport_hint = Transport::SHM};
    const uint64_t batch = engine.allocate_batch(1);
    EXPECT_TRUE(engine.submit(batch, {&request, 1}, nullptr).ok());
    TaskStatus status;
    const auto deadline = Time::now() + 30s;
    do EXPECT_TRUE(engine.overall_status(batch, &status).ok());
    while (status.state == TransferStatusEnum::PENDING && Time::now() < deadline);
    EXPECT_TRUE(engine.free_batch(batch).ok());
    return status.state;
}

TEST(Copies, ALongOneDoesNotHoldTheLock) {
    constexpr uint64_t kBytes = 64 << 20;
    const auto engine = start_local_engine({{"transports/rdma/workers/block_size", std::to_string(kBytes)}});
    uint8_t* from = allocate(*engine, kBytes, 'f');
    uint8_t* to = allocate(*engine, kBytes, 't');
    ASSERT_EQ(write(*engine, from, Peers::kLocal, to, 32 << 10), TransferStatusEnum::COMPLETED) << "it is mapped now";
    uint64_t took_ns = 0, held_ns = 0, before_ns = 0;
    // There are several attempts, because other threads may take our core.
    for (int i = 0; i < 20 && held_ns >= took_ns / 4; ++i) {
        engine->core().shard(0).with_lock([&] { before_ns = engine->core().shard(0).held_ns.sum(); });
        const auto begun = Time::now();
        ASSERT_EQ(write(*engine, from, Peers::kLocal, to, kBytes), TransferStatusEnum::COMPLETED);
        took_ns = static_cast<uint64_t>((Time::now() - begun) / 1ns);
        engine->core().shard(0).with_lock([&] { held_ns = engine->core().shard(0).held_ns.sum() - before_ns; });
    }
    EXPECT_EQ(std::memcmp(from, to, kBytes), 0);
    EXPECT_LT(held_ns, took_ns / 4) << "of all the time that a slice of 64 MiB takes";
}

// The lengths are copied by the driving thread, by the submitting thread, and by all threads together.
TEST(Copies, ThreadsShareThem) {
    constexpr uint64_t kBytes = 1 << 20;
    constexpr int kThreads = 4, kRounds = 20;
    const auto engine = start_local_engine(), peer = start_local_engine();
    uint64_t segment = 0;
    ASSERT_TRUE(engine->open_segment(peer->segment_name(), &segment).ok());
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, from = allocate(*engine, kBytes, 0), to = allocate(*peer, kBytes, 0), i] {
            for (int round = 0; round < kRounds; ++round) {
                std::memset(from, i * kRounds + round, kBytes);
                for (const uint64_t bytes : {uint64_t{4} << 10, uint64_t{64} << 10, kBytes}) {
                    EXPECT_EQ(write(*engine, from, segment, to, bytes), TransferStatusEnum::COMPLETED);
                    EXPECT_EQ(std::memcmp(from, to, bytes), 0);
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

// The submitting thread ends, or never polls, and another thread drives.
TEST(Copies, ThoseOfAThreadThatDoesNotComeAreMadeByOthers) {
    constexpr uint64_t kBytes = 4 << 20;
    constexpr int kRounds = 50;
    constexpr size_t kRequests = 32;
    const auto engine = start_local_engine(), peer = start_local_engine();
    uint64_t segment = 0;
    ASSERT_TRUE(engine->open_segment(peer->segment_name(), &segment).ok());
    uint8_t* from = allocate(*engine, kBytes, 'f');
    uint8_t* to = allocate(*peer, kBytes, 't');
    for (int round = 0; round < kRounds; ++round) {
        std::memset(from, round, kBytes);
        const uint64_t batch = engine->allocate_batch(kRequests);
        std::atomic<size_t> submitted{0};
        std::thread submitter([&] {
            for (size_t i = 0; i < kRequests; ++i) {
                const uint64_t at = i * (kBytes / kRequests), bytes = i % 2 == 0 ? 4 << 10 : kBytes / kRequests;
                const Request request{.opcode = Request::WRITE,
                                      .source = from + at,
                                      .target_id = segment,
                                      .target_offset = reinterpret_cast<uint64_t>(to + at),
                                      .length = bytes,
                                      .transport_hint = Transport::SHM};
                EXPECT_TRUE(engine->submit(batch, {&request, 1}, nullptr).ok());
                ++submitted;
            }
        });
        TaskStatus status;
        while (submitted < kRequests) EXPECT_TRUE(engine->overall_status(batch, &status).ok());
        submitter.join();
        const auto deadline = Time::now() + 30s;
        do EXPECT_TRUE(engine->overall_status(batch, &status).ok());  // the state of the whole batch
        while (status.state == TransferStatusEnum::PENDING && Time::now() < deadline);
        EXPECT_EQ(status.state, TransferStatusEnum::COMPLETED);
        for (size_t i = 0; i < kRequests; ++i) {
            const uint64_t at = i * (kBytes / kRequests), bytes = i % 2 == 0 ? 4 << 10 : kBytes / kRequests;
            EXPECT_EQ(std::memcmp(from + at, to + at, bytes), 0) << "request " << i << " of round " << round;
        }
        EXPECT_TRUE(engine->free_batch(batch).ok());
    }
}

}  // namespace
}  // namespace rove::tent
