// SPDX-License-Identifier: Apache-2.0
// Order and promotion of a worker's queues, in virtual time, and many threads submitting at once.
#include "tent/priority_queues.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <span>
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

std::array<Chain, kPriorities> chains(std::span<Entry* const> entries, uint64_t now_ns) {
    std::array<Chain, kPriorities> chains{};
    for (Entry* entry : entries) chains[index(entry->priority)].add(entry, now_ns);
    return chains;
}

void submit(PriorityQueues& queues, const std::vector<Entry*>& entries, uint64_t now_ns = 0) {
    const auto by_priority = chains(entries, now_ns);
    for (const Priority priority : {kHigh, kMedium, kLow})
        if (const Chain& chain = by_priority[index(priority)]; chain.newest != nullptr) queues.submit(priority, chain);
}

std::vector<int> drain(PriorityQueues& queues, uint64_t now_ns = 0, uint8_t allowed = kAll) {
    std::vector<int> ids;
    while (Queued* entry = queues.pop(allowed, now_ns)) ids.push_back(static_cast<Entry*>(entry)->id);
    return ids;
}

TEST(PriorityQueues, T10_EachEntryGoesToTheQueueOfItsOwnPriority) {
    PriorityQueues queues({});
    Entry a(kLow, 1), b(kHigh, 2), c(kMedium, 3), d(kHigh, 4), e(kLow, 5);
    submit(queues, {&a, &b, &c, &d, &e});
    EXPECT_EQ(queues.depth(kHigh), 2u);
    EXPECT_EQ(queues.depth(kMedium), 1u);
    EXPECT_EQ(queues.depth(kLow), 2u);
    EXPECT_EQ(drain(queues), (std::vector<int>{2, 4, 3, 1, 5}));
    for (const Priority priority : {kHigh, kMedium, kLow}) EXPECT_EQ(queues.depth(priority), 0u);
}

TEST(PriorityQueues, T10_HigherOnesThatComeLaterGoFirst) {
    PriorityQueues queues({});
    Entry a(kLow, 1), b(kLow, 2), c(kHigh, 3);
    submit(queues, {&a, &b});
    EXPECT_EQ(static_cast<Entry*>(queues.pop(kAll, 0))->id, 1);
    submit(queues, {&c});
    EXPECT_EQ(drain(queues), (std::vector<int>{3, 2}));
}

TEST(PriorityQueues, T10_TheWorkerPutsItsOwnBehindWhatOthersSubmitted) {
    PriorityQueues queues({});
    Entry a(kLow, 1), b(kLow, 2), c(kLow, 3), d(kLow, 4);
    submit(queues, {&a});
    Chain own;
    own.add(&b, 0);
    own.add(&c, 0);
    queues.put(kLow, own);
    EXPECT_FALSE(queues.empty());
    EXPECT_EQ(queues.depth(kLow), 3u);
    submit(queues, {&d});
    EXPECT_EQ(drain(queues), (std::vector<int>{1, 2, 3, 4}));
    EXPECT_TRUE(queues.empty());
}

TEST(PriorityQueues, T11_EntriesPastTheTimeoutArePromotedAndNoOthers) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    Entry old_low(kLow, 1), old_medium(kMedium, 2), young_low(kLow, 3), young_medium(kMedium, 4), high(kHigh, 5);
    submit(queues, {&old_low, &old_medium}, 100 * kMs);
    submit(queues, {&young_low, &young_medium}, 105 * kMs);
    queues.promote(99 * kMs);  // by a clock that was read before the submitter's
    EXPECT_EQ(queues.promoted(kLow) + queues.promoted(kMedium), 0u);
    queues.promote(109 * kMs);
    EXPECT_EQ(queues.promoted(kLow) + queues.promoted(kMedium), 0u);
    queues.promote(110 * kMs);  // both levels at one check
    EXPECT_EQ(queues.promoted(kLow), 1u);
    EXPECT_EQ(queues.promoted(kMedium), 1u);
    submit(queues, {&high}, 111 * kMs);
    // The old MEDIUM is among HIGH, before the one that came later; the old LOW is behind the MEDIUM that was there.
    EXPECT_EQ(drain(queues, 112 * kMs), (std::vector<int>{2, 5, 4, 1, 3}));
}

TEST(PriorityQueues, T11_ChecksAreAMillisecondApart) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    Entry low(kLow);
    submit(queues, {&low}, 100 * kMs);
    queues.promote(109'500'000);
    queues.promote(110 * kMs);
    EXPECT_EQ(queues.promoted(kLow), 0u);
    queues.promote(110'500'000);
    EXPECT_EQ(queues.promoted(kLow), 1u);
}

TEST(PriorityQueues, T11_LowReachesHighAfterTwoTimeouts) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    Entry low(kLow, 1);
    submit(queues, {&low}, 0);
    std::vector<Entry> high(40, Entry(kHigh, 2));
    uint64_t served_at = 0;
    for (uint64_t ms = 0; ms < 40 && served_at == 0; ++ms) {  // HIGH never has nothing to do
        submit(queues, {&high[ms]}, ms * kMs);
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
    submit(queues, batch, 0);
    for (uint64_t ms = 1; ms < 200; ++ms) {
        queues.promote(ms * kMs);
        if (ms % 2 == 0) {
            ASSERT_NE(queues.pop(kAll, ms * kMs), nullptr);
        }
    }
    EXPECT_EQ(queues.promoted(kLow), 0u);
    Entry high(kHigh, 7);
    submit(queues, {&high}, 200 * kMs);
    EXPECT_EQ(static_cast<Entry*>(queues.pop(kAll, 200 * kMs))->id, 7);
}

TEST(PriorityQueues, T11_PromotedLowIsStillLowToTheGate) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    Entry low(kLow, 1), medium(kMedium, 2);
    submit(queues, {&low}, 0);
    queues.promote(10 * kMs);
    ASSERT_EQ(queues.promoted(kLow), 1u);
    submit(queues, {&medium}, 11 * kMs);
    EXPECT_EQ(drain(queues, 12 * kMs, 0b011), (std::vector<int>{2}));  // and does not block what is behind it
    EXPECT_EQ(queues.depth(kLow), 1u);
    EXPECT_EQ(drain(queues, 12 * kMs, 0b100), (std::vector<int>{1}));
}

TEST(PriorityQueues, T11_TimeoutOfZeroPromotesNothing) {
    PriorityQueues queues({.promotion_timeout_ns = 0});
    Entry low(kLow);
    submit(queues, {&low}, 0);
    queues.promote(1'000 * kMs);
    EXPECT_EQ(queues.promoted(kLow), 0u);
}

TEST(PriorityQueues, ARetryIsPutBackAtTheEndOfItsOwnQueue) {
    PriorityQueues queues({});
    Entry a(kMedium, 1), b(kMedium, 2), c(kMedium, 3);
    submit(queues, {&a, &b});
    Queued* retried = queues.pop(kAll, 0);
    submit(queues, {&c});
    queues.requeue(retried, 0);
    EXPECT_EQ(queues.depth(kMedium), 3u);
    EXPECT_EQ(drain(queues), (std::vector<int>{2, 3, 1}));
}

TEST(PriorityQueues, T10_ManyThreadsSubmitAndNothingIsLostOrTwice) {
    constexpr int kThreads = 3, kBatches = 2'000, kBatch = 5;
    PriorityQueues queues({});
    std::vector<std::vector<Entry>> entries(kThreads);
    for (int thread = 0; thread < kThreads; ++thread)
        for (int i = 0; i < kBatches * kBatch; ++i)
            entries[static_cast<size_t>(thread)].emplace_back(static_cast<Priority>((i / 7 + thread) % 3), i);
    std::atomic<int> running{kThreads};
    std::vector<std::thread> threads;
    for (auto& own : entries) {
        threads.emplace_back([&] {
            for (size_t at = 0; at < own.size(); at += kBatch) {
                std::vector<Entry*> batch;
                for (size_t i = 0; i < kBatch; ++i) batch.push_back(&own[at + i]);
                submit(queues, batch, at);
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
