// SPDX-License-Identifier: Apache-2.0
// Regions and QPs come and go beside workers that look them up: what was taken out is poisoned and freed at once.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "datapath/drive_lock.h"
#include "transport/memory.h"
#include "transport/qp_table.h"

namespace rove::datapath {
namespace {

using transport::MemoryTable;
using transport::QueuePair;
using transport::QueuePairTable;
using transport::Region;
using transport::Secret;

constexpr int kWorkers = 3;
constexpr uint64_t kBytes = 64;

struct Locks final : transport::GracePeriod {
    std::array<DriveLock, kWorkers> all;
    void wait() override {
        std::array<uint32_t, kWorkers> asked;
        for (int i = 0; i < kWorkers; ++i) asked[i] = all[i].ask();
        for (int i = 0; i < kWorkers; ++i)
            while (!all[i].has_ended(asked[i])) sched_yield();
    }
};

// One worker keeps its lock from round to round, as a dedicated lcore; one takes it for each, as drivers of shared
// progress do; the third does so seldom.
struct GracePeriodTest : testing::Test {
    template <class Round>
    void work(int index, Round round) {
        DriveLock& lock = locks.all[index];
        while (!stop.load(std::memory_order_relaxed)) {
            if (!lock.try_lock()) {
                sched_yield();
                continue;
            }
            if (index == 0) {
                for (int i = 0; i < 100 && !lock.wanted(); ++i) {
                    round();
                    lock.end_round();
                }
            } else {
                round();
            }
            lock.unlock();
            if (index == 2) std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
    }
    void run(auto round, auto writer) {
        std::vector<std::thread> threads;
        for (int i = 0; i < kWorkers; ++i) threads.emplace_back([&, i] { work(i, round); });
        writer();
        stop = true;
        for (std::thread& thread : threads) thread.join();
    }

    Locks locks;
    std::atomic<bool> stop{false};
};

TEST_F(GracePeriodTest, MemoryIsFreedWhenNoRoundUsesIt) {
    MemoryTable table(Secret::random(), locks);
    const int pd = 0;
    std::atomic<uint32_t> key{0};
    std::atomic<uint64_t> wrong{0};
    // What was freed is poisoned before, and TSan sees whoever still reads it.
    const auto round = [&] {
        for (int i = 0; i < 4; ++i) {
            if (uint8_t* at = table.translate(key.load(std::memory_order_relaxed), 0, kBytes, 0, &pd)) {
                if (*at != 0x5A) ++wrong;
            }
        }
    };
    std::vector<std::unique_ptr<Region>> others;
    run(round, [&] {
        for (int i = 0; i < 300; ++i) {
            auto memory = std::make_unique<uint8_t[]>(kBytes);
            std::memset(memory.get(), 0x5A, kBytes);
            auto region = std::unique_ptr<Region>(new Region{0, kBytes, memory.get(), 0, &pd});
            ASSERT_TRUE(table.insert(*region));
            key = region->key;
            if (i % 3 == 0) {  // registered anew
                auto next = std::unique_ptr<Region>(new Region{0, kBytes, memory.get(), 0, &pd});
                ASSERT_TRUE(table.replace(*region, *next));
                std::memset(static_cast<void*>(region.get()), 0xEE, sizeof(Region));
                region = std::move(next);
            }
            if (i % 4 == 0) {  // so that the table grows
                others.push_back(std::make_unique<Region>());
                ASSERT_TRUE(table.insert(*others.back()));
            }
            ASSERT_TRUE(table.remove(*region));
            std::memset(static_cast<void*>(region.get()), 0xEE, sizeof(Region));
            std::memset(memory.get(), 0xEE, kBytes);
        }
    });
    EXPECT_EQ(wrong, 0u);
}

TEST_F(GracePeriodTest, AWindowIsBoundAndUnboundUnderReaders) {
    MemoryTable table(Secret::random(), locks);
    const int pd = 0;
    QueuePair qp;
    qp.pd = &pd;
    std::array<uint8_t, 256> memory{};
    Region low{0, 128, memory.data(), IBV_ACCESS_MW_BIND, &pd},
        high{0, 64, memory.data() + 128, IBV_ACCESS_MW_BIND, &pd};
    transport::Window window(IBV_MW_TYPE_1, &pd);
    ASSERT_TRUE(table.insert(low) && table.insert(high) && table.insert(window));
    std::atomic<uint64_t> wrong{0};
    // Of one binding or of the other, and of no mixture.
    const auto round = [&] {
        const uint32_t rkey = window.rkey();
        const uint8_t* const end = table.translate(rkey, 0, 128, IBV_ACCESS_REMOTE_READ, &pd, &qp);
        const uint8_t* const part = table.translate(rkey, 0, 64, IBV_ACCESS_REMOTE_READ, &pd, &qp);
        wrong += end != nullptr && end != memory.data();
        wrong += part != nullptr && part != memory.data() && part != memory.data() + 128;
    };
    run(round, [&] {
        for (int i = 0; i < 3000; ++i) {
            ASSERT_TRUE(
                table.bind({window.key, static_cast<uint32_t>(i), low.key, 0, 128, IBV_ACCESS_REMOTE_READ}, qp));
            ASSERT_TRUE(
                table.bind({window.key, static_cast<uint32_t>(i), high.key, 0, 64, IBV_ACCESS_REMOTE_READ}, qp));
        }
    });
    EXPECT_EQ(wrong, 0u);
    EXPECT_TRUE(table.remove(window));
    EXPECT_EQ(low.windows + high.windows, 0);
}

TEST_F(GracePeriodTest, AQueuePairIsFreedWhenNoRoundUsesIt) {
    QueuePairTable table(Secret::random());
    std::atomic<uint32_t> number{0};
    std::atomic<uint64_t> wrong{0};
    const auto round = [&] {
        const QueuePair* qp = table.find(number.load(std::memory_order_relaxed));
        if (qp != nullptr && qp->worker != 7) ++wrong;
    };
    run(round, [&] {
        for (int i = 0; i < 300; ++i) {
            auto qp = std::make_unique<QueuePair>();
            qp->worker = 7;
            ASSERT_TRUE(table.insert(*qp));
            number = qp->qpn;
            table.remove(*qp);
            locks.wait();
            qp->worker = 9;
        }
    });
    EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace rove::datapath
