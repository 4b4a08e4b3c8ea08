// SPDX-License-Identifier: Apache-2.0
#include "runtime/doorbells.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace rove::datapath {
namespace {

using transport::QueuePair;

TEST(Doorbells, AreTakenInTheOrderInWhichTheyRang) {
    Doorbells rung;
    std::array<QueuePair, 3> qps;
    std::vector<QueuePair*> taken;
    const auto take = [&](QueuePair& qp) { taken.push_back(&qp); };
    rung.take_all(take);
    EXPECT_TRUE(taken.empty());
    for (QueuePair& qp : qps) rung.add(qp);
    rung.take_all(take);
    EXPECT_EQ(taken, (std::vector{&qps[0], &qps[1], &qps[2]}));
    rung.take_all(take);
    EXPECT_EQ(taken.size(), 3u);
}

TEST(Doorbells, MayRingAgainWhileTheyAreTaken) {
    Doorbells rung;
    std::array<QueuePair, 2> qps;
    for (QueuePair& qp : qps) rung.add(qp);
    int visits = 0;
    rung.take_all([&](QueuePair& qp) {
        ++visits;
        rung.add(qp);
    });
    EXPECT_EQ(visits, 2);
    rung.take_all([&](QueuePair&) { ++visits; });
    EXPECT_EQ(visits, 4);
}

// Uses doorbells as WorkerCore does. Each QP is in the list at most once, and the reader sees everything that was
// published before the ring.
TEST(Doorbells, LoseNothingOfManyThreads) {
    constexpr uint32_t kThreads = 8, kRings = 20'000;
    struct Rung {
        QueuePair qp;
        uint64_t published = 0, seen = 0;
    };
    Doorbells rung;
    std::array<Rung, kThreads> all;
    std::array<std::atomic<uint64_t>, kThreads> answers{};
    for (uint32_t i = 0; i < kThreads; ++i) all[i].qp.qpn = i;
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
            for (uint64_t number = 1; number <= kRings; ++number) {
                all[i].published = number;
                if (!all[i].qp.doorbell.exchange(true, std::memory_order_acq_rel)) rung.add(all[i].qp);
                while (answers[i].load(std::memory_order_acquire) != number) std::this_thread::yield();
            }
        });
    }
    for (uint64_t left = uint64_t{kThreads} * kRings; left != 0;) {
        rung.take_all([&](QueuePair& qp) {
            qp.doorbell.exchange(false, std::memory_order_acq_rel);
            Rung& from = all[qp.qpn];
            EXPECT_EQ(from.published, ++from.seen);
            answers[qp.qpn].store(from.seen, std::memory_order_release);
            --left;
        });
        std::this_thread::yield();
    }
    for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace rove::datapath
