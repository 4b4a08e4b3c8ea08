// SPDX-License-Identifier: Apache-2.0
// Order, admission and promotion of a worker's queues, in virtual time, and many threads submitting at once.
#include "tent/priority_queues.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace rove::tent {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint8_t kAll = 0b111;
constexpr Priority kHigh = Priority::kHigh, kMedium = Priority::kMedium, kLow = Priority::kLow;

struct Entry : Queued {
    explicit Entry(Priority of, int id_ = 0) : id(id_) { priority = of; }
    int id;
};

Status submit(PriorityQueues& queues, std::vector<Entry*> entries, uint64_t now_ns = 0) {
    const std::vector<Queued*> batch(entries.begin(), entries.end());
    return queues.submit(batch, now_ns);
}

std::vector<int> drain(PriorityQueues& queues, uint64_t now_ns = 0, uint8_t allowed = kAll) {
    std::vector<int> ids;
    while (Queued* entry = queues.pop(allowed, now_ns)) ids.push_back(static_cast<Entry*>(entry)->id);
    return ids;
}

TEST(PriorityQueues, T10_EachEntryGoesToTheQueueOfItsOwnPriority) {
    PriorityQueues queues({});
    Entry a(kLow, 1), b(kHigh, 2), c(kMedium, 3), d(kHigh, 4), e(kLow, 5);
    ASSERT_TRUE(submit(queues, {&a, &b, &c, &d, &e}).ok());
    EXPECT_EQ(queues.depth(kHigh), 2u);
    EXPECT_EQ(queues.depth(kMedium), 1u);
    EXPECT_EQ(queues.depth(kLow), 2u);
    EXPECT_EQ(drain(queues), (std::vector<int>{2, 4, 3, 1, 5}));
    for (const Priority priority : {kHigh, kMedium, kLow}) EXPECT_EQ(queues.depth(priority), 0u);
}

TEST(PriorityQueues, T10_HigherOnesThatComeLaterGoFirst) {
    PriorityQueues queues({});
    Entry a(kLow, 1), b(kLow, 2), c(kHigh, 3);
    ASSERT_TRUE(submit(queues, {&a, &b}).ok());
    EXPECT_EQ(static_cast<Entry*>(queues.pop(kAll, 0))->id, 1);
    ASSERT_TRUE(submit(queues, {&c}).ok());
    EXPECT_EQ(drain(queues), (std::vector<int>{3, 2}));
}

TEST(PriorityQueues, T10_ABatchIsTakenWholeOrNotAtAll) {
    PriorityQueues queues({.capacity = 8});
    std::vector<Entry> low(6, Entry(kLow)), high(3, Entry(kHigh));
    for (Entry& entry : low) ASSERT_TRUE(submit(queues, {&entry}).ok());
    Entry x(kLow), y(kLow), z(kLow);
    const Status status = submit(queues, {&high[0], &x, &high[1], &y, &z});
    EXPECT_EQ(status.code(), Code::kTooManyRequests);
    EXPECT_EQ(status.message(), "the queue of priority low has room for 2 of 3 slices");
    EXPECT_EQ(queues.depth(kHigh), 0u);
    EXPECT_EQ(queues.depth(kLow), 6u);
    EXPECT_EQ(queues.rejected(), 1u);
    // A full LOW queue holds up no HIGH, and what fits exactly is taken.
    ASSERT_TRUE(submit(queues, {&high[0], &x, &y}).ok());
    EXPECT_EQ(submit(queues, {&z}).code(), Code::kTooManyRequests);
    ASSERT_TRUE(submit(queues, {&high[1]}).ok());
    EXPECT_EQ(drain(queues).size(), 10u);
    ASSERT_TRUE(submit(queues, {&z}).ok());
}

TEST(PriorityQueues, T10_WhatCanNeverBeTakenIsAnError) {
    PriorityQueues queues({.capacity = 4});
    std::vector<Entry> five(5, Entry(kLow));
    std::vector<Entry*> batch;
    for (Entry& entry : five) batch.push_back(&entry);
    EXPECT_EQ(submit(queues, batch).code(), Code::kInvalidArgument);
    five[0].priority = static_cast<Priority>(3);
    EXPECT_EQ(submit(queues, {&five[0]}).code(), Code::kInvalidArgument);
    EXPECT_EQ(drain(queues).size(), 0u);
}

TEST(PriorityQueues, T11_EntriesPastTheTimeoutArePromotedAndNoOthers) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    Entry old_low(kLow, 1), old_medium(kMedium, 2), young_low(kLow, 3), young_medium(kMedium, 4), high(kHigh, 5);
    ASSERT_TRUE(submit(queues, {&old_low, &old_medium}, 100 * kMs).ok());
    ASSERT_TRUE(submit(queues, {&young_low, &young_medium}, 105 * kMs).ok());
    queues.promote(99 * kMs);  // by a clock that was read before the submitter's
    EXPECT_EQ(queues.promoted(kLow) + queues.promoted(kMedium), 0u);
    queues.promote(109 * kMs);
    EXPECT_EQ(queues.promoted(kLow) + queues.promoted(kMedium), 0u);
    queues.promote(110 * kMs);  // both levels at one check
    EXPECT_EQ(queues.promoted(kLow), 1u);
    EXPECT_EQ(queues.promoted(kMedium), 1u);
    ASSERT_TRUE(submit(queues, {&high}, 111 * kMs).ok());
    // The old MEDIUM is among HIGH, before the one that came later; the old LOW is behind the MEDIUM that was there.
    EXPECT_EQ(drain(queues, 112 * kMs), (std::vector<int>{2, 5, 4, 1, 3}));
}

TEST(PriorityQueues, T11_ChecksAreAMillisecondApart) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    Entry low(kLow);
    ASSERT_TRUE(submit(queues, {&low}, 100 * kMs).ok());
    queues.promote(109'500'000);
    queues.promote(110 * kMs);
    EXPECT_EQ(queues.promoted(kLow), 0u);
    queues.promote(110'500'000);
    EXPECT_EQ(queues.promoted(kLow), 1u);
}

TEST(PriorityQueues, T11_LowReachesHighAfterTwoTimeouts) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    Entry low(kLow, 1);
    ASSERT_TRUE(submit(queues, {&low}, 0).ok());
    std::vector<Entry> high(40, Entry(kHigh, 2));
    uint64_t served_at = 0;
    for (uint64_t ms = 0; ms < 40 && served_at == 0; ++ms) {  // HIGH never has nothing to do
        ASSERT_TRUE(submit(queues, {&high[ms]}, ms * kMs).ok());
        queues.promote(ms * kMs);
        if (static_cast<Entry*>(queues.pop(kAll, ms * kMs))->id == 1) served_at = ms;
    }
    EXPECT_GE(served_at, 20u);
    EXPECT_LE(served_at, 22u);
    EXPECT_EQ(queues.promoted(kLow), 2u);
}

// Else all of a bulk transfer that takes longer than the timeout would be in front of HIGH.
TEST(PriorityQueues, T11_ALongQueueThatMovesOnIsNotStarved) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    std::vector<Entry> low(200, Entry(kLow));
    std::vector<Entry*> batch;
    for (Entry& entry : low) batch.push_back(&entry);
    ASSERT_TRUE(submit(queues, batch, 0).ok());
    for (uint64_t ms = 1; ms < 200; ++ms) {
        queues.promote(ms * kMs);
        if (ms % 2 == 0) {
            ASSERT_NE(queues.pop(kAll, ms * kMs), nullptr);
        }
    }
    EXPECT_EQ(queues.promoted(kLow), 0u);
    Entry high(kHigh, 7);
    ASSERT_TRUE(submit(queues, {&high}, 200 * kMs).ok());
    EXPECT_EQ(static_cast<Entry*>(queues.pop(kAll, 200 * kMs))->id, 7);
}

TEST(PriorityQueues, T11_PromotedLowIsStillLowToTheGate) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    Entry low(kLow, 1), medium(kMedium, 2);
    ASSERT_TRUE(submit(queues, {&low}, 0).ok());
    queues.promote(10 * kMs);
    ASSERT_EQ(queues.promoted(kLow), 1u);
    ASSERT_TRUE(submit(queues, {&medium}, 11 * kMs).ok());
    EXPECT_EQ(drain(queues, 12 * kMs, 0b011), (std::vector<int>{2}));  // and does not block what is behind it
    EXPECT_EQ(queues.depth(kLow), 1u);
    EXPECT_EQ(drain(queues, 12 * kMs, 0b100), (std::vector<int>{1}));
}

TEST(PriorityQueues, T11_TimeoutOfZeroPromotesNothing) {
    PriorityQueues queues({.promotion_timeout_ns = 0});
    Entry low(kLow);
    ASSERT_TRUE(submit(queues, {&low}, 0).ok());
    queues.promote(1'000 * kMs);
    EXPECT_EQ(queues.promoted(kLow), 0u);
}

TEST(PriorityQueues, ARetryIsPutBackAtTheEndOfItsOwnQueueEvenIfThatIsFull) {
    PriorityQueues queues({.capacity = 2});
    Entry a(kMedium, 1), b(kMedium, 2), c(kMedium, 3);
    ASSERT_TRUE(submit(queues, {&a, &b}).ok());
    Queued* retried = queues.pop(kAll, 0);
    ASSERT_TRUE(submit(queues, {&c}).ok());
    queues.requeue(retried, 0);
    EXPECT_EQ(queues.depth(kMedium), 3u);
    Entry d(kMedium, 4);
    EXPECT_EQ(submit(queues, {&d}).code(), Code::kTooManyRequests);
    EXPECT_EQ(drain(queues), (std::vector<int>{2, 3, 1}));
    EXPECT_TRUE(submit(queues, {&d}).ok());
}

TEST(PriorityQueues, T10_ManyThreadsSubmitAndNothingIsLostOrTwice) {
    constexpr int kThreads = 3, kBatches = 2'000, kBatch = 5;
    PriorityQueues queues({.capacity = 64});
    std::vector<std::vector<Entry>> entries(kThreads);
    for (int thread = 0; thread < kThreads; ++thread)
        for (int i = 0; i < kBatches * kBatch; ++i)
            entries[static_cast<size_t>(thread)].emplace_back(static_cast<Priority>((i / 7 + thread) % 3), i);
    std::atomic<int> running{kThreads};
    std::vector<std::thread> threads;
    for (auto& own : entries) {
        threads.emplace_back([&] {
            for (size_t at = 0; at < own.size(); at += kBatch) {
                Queued* batch[kBatch];
                for (size_t i = 0; i < kBatch; ++i) batch[i] = &own[at + i];
                while (!queues.submit(batch, at).ok()) std::this_thread::yield();
            }
            --running;
        });
    }
    // Entries of one thread and priority come out in the order in which they went in.
    size_t popped = 0;
    std::array<std::array<int, kPriorities>, kThreads> last{};
    for (auto& of_thread : last) of_thread.fill(-1);
    while (true) {
        const bool finished = running == 0;
        while (Queued* taken = queues.pop(kAll, 0)) {
            auto* entry = static_cast<Entry*>(taken);
            ++popped;
            size_t thread = 0;
            while (entry < entries[thread].data() || entry >= entries[thread].data() + entries[thread].size()) ++thread;
            int& before = last[thread][index(entry->priority)];
            ASSERT_LT(before, entry->id);
            before = entry->id;
        }
        if (finished) break;
        std::this_thread::yield();
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(popped, size_t{kThreads} * kBatches * kBatch);
    for (const Priority priority : {kHigh, kMedium, kLow}) EXPECT_EQ(queues.depth(priority), 0u);
}

}  // namespace
}  // namespace rove::tent
