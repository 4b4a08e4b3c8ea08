// SPDX-License-Identifier: Apache-2.0
// Tests the division of peers among shards: several threads work with several peers at the same time.
#include <gtest/gtest.h>

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

constexpr uint64_t kTransferBytes = 256 << 10;
constexpr int kPeers = 4;

class ShardsTest : public testing::Test {
  protected:
    ShardsTest() {
        for (auto& peer : peers) {
            peer = start_local_engine();
            EXPECT_TRUE(engine->open_segment(peer->segment_name(), &segments.emplace_back()).ok());
            targets.push_back(allocate(*peer, kTransferBytes));
        }
    }
    static uint8_t* allocate(Engine& of, uint64_t bytes) {
        void* memory = nullptr;
        EXPECT_TRUE(of.allocate_memory(bytes, {}, &memory).ok());
        return static_cast<uint8_t*>(memory);
    }
    Request request(uint8_t* source, size_t peer, Transport transport) const {
        return {.opcode = Request::WRITE,
                .source = source,
                .target_id = segments[peer],
                .target_offset = reinterpret_cast<uint64_t>(targets[peer]),
                .length = kTransferBytes,
                .transport_hint = transport};
    }
    TransferStatusEnum transfer(std::span<const Request> requests) {
        const uint64_t batch = engine->allocate_batch(requests.size());
        EXPECT_TRUE(engine->submit(batch, requests, nullptr).ok());
        TaskStatus status;
        const auto deadline = Time::now() + 30s;
        do EXPECT_TRUE(engine->overall_status(batch, &status).ok());
        while (status.state == TransferStatusEnum::PENDING && Time::now() < deadline);
        EXPECT_TRUE(engine->free_batch(batch).ok());
        return status.state;
    }

    std::unique_ptr<Engine> engine = start_local_engine({{"transports/rdma/workers/num_workers", "4"}});
    std::array<std::unique_ptr<Engine>, kPeers> peers;
    std::vector<uint64_t> segments;
    std::vector<uint8_t*> targets;
};

TEST_F(ShardsTest, ThreadsWithAPeerEachUseAShardEach) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kPeers; ++i) {
        threads.emplace_back([&, source = allocate(*engine, kTransferBytes), i] {
            for (int round = 0; round < 20; ++round) {
                std::memset(source, static_cast<int>(10 * i) + round, kTransferBytes);
                const Request one = request(source, i, round % 2 == 0 ? Transport::SHM : Transport::TCP);
                EXPECT_EQ(transfer({&one, 1}), TransferStatusEnum::COMPLETED);
                EXPECT_EQ(std::memcmp(source, targets[i], kTransferBytes), 0);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& shard : engine->core().shards()) {
        uint64_t slices = 0;
        shard->with_lock([&] {
            for (const TransportCounters& one : shard->transports) slices += one.slices;
        });
        EXPECT_EQ(slices, 20 * kTransferBytes / 65536) << "the peers are divided evenly";
    }
    EXPECT_EQ(engine->core().unfinished(), 0u);
}

TEST_F(ShardsTest, ABatchMayHaveRequestsOfAllShards) {
    uint8_t* const source = allocate(*engine, kTransferBytes);
    for (int round = 0; round < 10; ++round) {
        std::memset(source, round + 1, kTransferBytes);
        std::vector<Request> requests;
        for (size_t i = 0; i < kPeers; ++i) requests.push_back(request(source, i, Transport::SHM));
        EXPECT_EQ(transfer(requests), TransferStatusEnum::COMPLETED);
        for (const uint8_t* target : targets) EXPECT_EQ(std::memcmp(source, target, kTransferBytes), 0);
    }
    EXPECT_TRUE(engine->unregister_memory(source, kTransferBytes).ok()) << "no shard has a task with it any more";
}

TEST_F(ShardsTest, APeerMayBeClosedWhileOthersTransfer) {
    std::atomic<bool> stop{false};
    std::thread other([&, source = allocate(*engine, kTransferBytes)] {
        const Request one = request(source, 1, Transport::SHM);
        while (!stop.load()) EXPECT_EQ(transfer({&one, 1}), TransferStatusEnum::COMPLETED);
    });
    uint8_t* const source = allocate(*engine, kTransferBytes);
    for (int round = 0; round < 10; ++round) {
        const Request one = request(source, 0, Transport::SHM);
        EXPECT_EQ(transfer({&one, 1}), TransferStatusEnum::COMPLETED);
        EXPECT_TRUE(engine->close_segment(segments[0]).ok());
        EXPECT_TRUE(engine->open_segment(peers[0]->segment_name(), &segments[0]).ok());
    }
    stop.store(true);
    other.join();
}

}  // namespace
}  // namespace rove::tent
