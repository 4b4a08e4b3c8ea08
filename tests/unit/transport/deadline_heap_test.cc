// SPDX-License-Identifier: Apache-2.0
// The heap of deadlines against a std::multimap.
#include "transport/deadline_heap.h"

#include <gtest/gtest.h>

#include <map>

#include "support/random.h"

namespace rove::transport {
namespace {

TEST(DeadlineHeap, earliest_comes_out_first) {
    DeadlineHeap heap;
    QueuePair a, b, c;
    EXPECT_EQ(heap.earliest(), kNever);
    EXPECT_EQ(heap.pop(kNever - 1), nullptr);
    heap.schedule(a, 30);
    heap.schedule(b, 10);
    heap.schedule(c, 20);
    EXPECT_EQ(heap.earliest(), 10u);
    EXPECT_EQ(heap.pop(9), nullptr);
    EXPECT_EQ(heap.pop(10), &b);
    EXPECT_EQ(heap.pop(25), &c);
    EXPECT_EQ(heap.pop(25), nullptr);
    heap.remove(a);
    heap.remove(a);
    EXPECT_EQ(heap.earliest(), kNever);
}

TEST(DeadlineHeap, only_an_earlier_deadline_moves_a_queue_pair) {
    DeadlineHeap heap;
    QueuePair qp;
    heap.schedule(qp, 100);
    heap.schedule(qp, 200);
    EXPECT_EQ(heap.earliest(), 100u);
    heap.schedule(qp, 50);
    EXPECT_EQ(heap.earliest(), 50u);
    heap.schedule(qp, kNever);
    EXPECT_EQ(heap.earliest(), 50u);
    EXPECT_EQ(heap.pop(50), &qp);
    EXPECT_EQ(heap.pop(1000), nullptr);
}

TEST(DeadlineHeap, behaves_like_a_multimap) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        test::Random random(seed);
        DeadlineHeap heap;
        std::vector<std::unique_ptr<QueuePair>> qps;
        for (int i = 0; i < 60; ++i) qps.push_back(std::make_unique<QueuePair>());
        std::map<QueuePair*, uint64_t> by_qp;
        std::multimap<uint64_t, QueuePair*> by_deadline;
        const auto forget = [&](QueuePair* qp) {
            for (auto [it, end] = by_deadline.equal_range(by_qp.at(qp)); it != end; ++it) {
                if (it->second == qp) {
                    by_deadline.erase(it);
                    break;
                }
            }
            by_qp.erase(qp);
        };
        for (int step = 0; step < 3000; ++step) {
            QueuePair* qp = qps[random.below(qps.size())].get();
            switch (random.below(4)) {
                case 0:
                case 1: {
                    const uint64_t deadline = random.below(500);
                    heap.schedule(*qp, deadline);
                    if (by_qp.count(qp) == 0 || deadline < by_qp[qp]) {
                        if (by_qp.count(qp) != 0) forget(qp);
                        by_qp[qp] = deadline;
                        by_deadline.insert({deadline, qp});
                    }
                    break;
                }
                case 2:
                    heap.remove(*qp);
                    if (by_qp.count(qp) != 0) forget(qp);
                    break;
                default: {
                    const uint64_t now = random.below(300);
                    QueuePair* popped = heap.pop(now);
                    const bool due = !by_deadline.empty() && by_deadline.begin()->first <= now;
                    ASSERT_EQ(popped != nullptr, due) << "seed " << seed;
                    if (popped != nullptr) {
                        ASSERT_EQ(by_qp.at(popped), by_deadline.begin()->first);
                        forget(popped);
                    }
                }
            }
            ASSERT_EQ(heap.earliest(), by_deadline.empty() ? kNever : by_deadline.begin()->first) << "seed " << seed;
        }
    }
}

TEST(DeadlineHeap, what_is_advanced_comes_earlier) {
    DeadlineHeap heap;
    QueuePair before, after;
    heap.schedule(before, 100);
    heap.advance(30);
    EXPECT_EQ(heap.earliest(), 70u);
    heap.schedule(after, 80);
    EXPECT_EQ(heap.earliest(), 70u);
    EXPECT_EQ(heap.pop(69), nullptr);
    EXPECT_EQ(heap.pop(79), &before);
    EXPECT_EQ(heap.pop(79), nullptr);
    EXPECT_EQ(heap.pop(80), &after);
    heap.schedule(before, 10);
    heap.advance(50);
    EXPECT_EQ(heap.earliest(), 0u) << "long ago";
}

}  // namespace
}  // namespace rove::transport
