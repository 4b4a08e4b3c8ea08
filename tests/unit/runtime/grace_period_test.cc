// SPDX-License-Identifier: Apache-2.0
// Regions, QPs, multicast groups and CQ rings are created and destroyed while workers use them. Everything removed from
// the workers' view is poisoned and freed immediately after the grace period.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/drive_lock.h"
#include "transport/completion_queue.h"
#include "transport/memory.h"
#include "transport/multicast.h"
#include "transport/qp_table.h"

namespace rove::datapath {
namespace {

using transport::CompletionQueue;
using transport::MemoryTable;
using transport::MulticastGroup;
using transport::MulticastGroups;
using transport::QueuePair;
using transport::QueuePairTable;
using transport::Region;

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

// One worker keeps its lock across rounds, like a dedicated lcore. The second acquires it for each round, like the
// drivers of shared progress. The third does the same, but rarely.
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
                    round(index);
                    lock.end_round();
                }
            } else {
                round(index);
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
    // Freed memory was poisoned first, and TSan reports threads that still read it.
    const auto round = [&](int) {
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
            if (i % 3 == 0) {  // registered again
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
    // Readers see one binding or the other, and no mixture.
    const auto round = [&](int) {
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
    const auto round = [&](int) {
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

TEST_F(GracePeriodTest, AGroupIsJoinedAndLeftUnderReaders) {
    constexpr uint32_t kMember = 7, kGone = 9;
    MulticastGroups groups(locks);
    const auto group = [](int number) {
        return wire::Gid{0xFF, 0x0E, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, static_cast<uint8_t>(number)};
    };
    std::atomic<uint64_t> wrong{0};
    const auto round = [&](int) {
        for (int number = 0; number < 4; ++number) {
            const MulticastGroup* const joined = groups.find(0, group(number));
            if (joined == nullptr) continue;
            for (const QueuePair* qp : joined->members(0)) wrong += qp->qpn != kMember;
        }
    };
    std::vector<std::unique_ptr<QueuePair>> others;
    run(round, [&] {
        for (int i = 0; i < 200; ++i) {
            auto qp = std::make_unique<QueuePair>();
            qp->qpn = kMember;
            ASSERT_TRUE(groups.attach(group(i % 4), *qp));
            ASSERT_FALSE(groups.attach(group(i % 4), *qp));
            if (i % 4 != 0 && i < 40) {  // the first group is created and destroyed each time, the others keep members
                others.push_back(std::move(qp));
                continue;
            }
            ASSERT_TRUE(groups.attach(group(10 + i), *qp));  // so that the table grows
            ASSERT_TRUE(groups.detach(group(i % 4), *qp));
            ASSERT_FALSE(groups.detach(group(i % 4), *qp));
            if (i % 2 != 0) {
                others.push_back(std::move(qp));
                continue;
            }
            ASSERT_TRUE(groups.detach(group(10 + i), *qp));
            qp->qpn = kGone;
        }
    });
    EXPECT_EQ(wrong, 0u);
}

// Each worker's completions arrive exactly once and in order, from both the old and the new ring.
TEST_F(GracePeriodTest, ACompletionQueueGrowsUnderWorkers) {
    constexpr int kQueues = 20, kTimes = 8;
    std::array<CompletionQueue, kQueues> queues;
    for (CompletionQueue& cq : queues) ASSERT_TRUE(cq.init(7));
    std::atomic<int> current{0};
    std::array<uint64_t, kWorkers> pushed{}, polled{};
    const auto round = [&](int worker) {
        CompletionQueue& cq = queues[current.load(std::memory_order_relaxed)];
        for (int i = 0; i < 4; ++i) {
            bool notify;
            const bool has_room = cq.push(false, &notify, [&](ibv_wc& wc) {
                wc.wr_id = pushed[worker];
                wc.qp_num = static_cast<uint32_t>(worker);
            });
            if (!has_room) return;
            ++pushed[worker];
        }
    };
    uint64_t wrong = 0;
    const auto poll = [&](CompletionQueue& cq, int most) {
        ibv_wc wc[16];
        for (int count = 1; count != 0 && most > 0; most -= count) {
            count = cq.poll(wc, std::min(most, 16));
            for (int i = 0; i < count; ++i) wrong += wc[i].wr_id != polled[wc[i].qp_num]++;
        }
    };
    run(round, [&] {
        for (int i = 0; i < kQueues; ++i) {
            CompletionQueue& cq = queues[i];
            for (int time = 0; time < kTimes; ++time) {
                const uint32_t capacity = cq.capacity();
                ASSERT_EQ(cq.resize(locks, 2 * capacity - 1), 0);
                ASSERT_EQ(cq.capacity(), 2 * capacity);
                poll(cq, static_cast<int>(capacity));
            }
            current = (i + 1) % kQueues;
            locks.wait();
            if (i + 1 == kQueues) stop = true;
            poll(cq, INT32_MAX);
            EXPECT_TRUE(cq.empty()) << "completions were lost";
        }
    });
    poll(queues[0], INT32_MAX);
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(polled, pushed);
}

// The ring is replaced while a worker writes a completion. The completion moves to the new ring only when it is
// complete.
TEST_F(GracePeriodTest, ACompletionQueueGrowsWhenNoRoundUsesIt) {
    CompletionQueue cq;
    ASSERT_TRUE(cq.init(7));
    std::atomic<bool> begun{false};
    std::thread worker([&] {
        while (!locks.all[0].try_lock()) sched_yield();
        bool notify;
        cq.push(false, &notify, [&](ibv_wc& wc) {
            begun = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            wc.wr_id = 5;
        });
        locks.all[0].unlock();
    });
    while (!begun) sched_yield();
    ASSERT_EQ(cq.resize(locks, 15), 0);
    ibv_wc wc{};
    EXPECT_EQ(cq.poll(&wc, 1), 1);
    EXPECT_EQ(wc.wr_id, 5u);
    worker.join();
}

}  // namespace
}  // namespace rove::datapath
