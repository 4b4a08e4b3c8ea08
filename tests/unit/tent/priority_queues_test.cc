// SPDX-License-Identifier: Apache-2.0
// Tests the order and promotion of waiting requests in virtual time, and many threads that submit at the same time.
#include "tent/engine/priority_queues.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "short_names.h"

namespace rove::tent {
namespace {

constexpr uint8_t kAllLevels = 0b111;

// A request with some slices, which it owns.
struct Entry : Waiting {
    Entry(Priority of, int number, uint32_t slices_ = 1) : id(number), slices(slices_) { priority = of; }
    // Prepares the request as a submitter does.
    Entry& at(uint64_t now_ns) {
        since_ns = now_ns;
        count = static_cast<uint32_t>(slices.size());
        first = &slices.front();
        last = &slices.back();
        for (size_t i = 0; i < slices.size(); ++i) slices[i].next = i + 1 < slices.size() ? &slices[i + 1] : nullptr;
        return *this;
    }
    int id;
    std::vector<Queued> slices;
};

// Consumes the next slice of all levels, and returns its request, or null without any.
Entry* take(PriorityQueues& queues, uint64_t now_ns, uint8_t allowed = kAllLevels) {
    for (uint8_t level = 0; level < kPriorities; ++level) {
        Waiting* one = queues.first(level, allowed);
        if (one == nullptr) continue;
        queues.take(*one, now_ns);
        return static_cast<Entry*>(one);
    }
    return nullptr;
}

std::vector<int> drain(PriorityQueues& queues, uint64_t now_ns = 0, uint8_t allowed = kAllLevels) {
    std::vector<int> ids;
    while (Entry* entry = take(queues, now_ns, allowed)) ids.push_back(entry->id);
    return ids;
}

TEST(PriorityQueues, T10_EachRequestGoesToTheListOfItsOwnPriority) {
    PriorityQueues queues({});
    Entry a(kLow, 1), b(kHigh, 2), c(kMedium, 3, 2), d(kHigh, 4), e(kLow, 5);
    for (Entry* one : {&a, &b, &c, &d, &e}) queues.put(one->at(0));
    EXPECT_EQ(queues.levels(), kAllLevels);
    EXPECT_EQ(queues.depth(kHigh), 2u);
    EXPECT_EQ(queues.depth(kMedium), 2u) << "slices";
    EXPECT_EQ(queues.depth(kLow), 2u);
    EXPECT_EQ(drain(queues), (std::vector<int>{2, 4, 3, 3, 1, 5}));
    for (const Priority priority : {kHigh, kMedium, kLow}) EXPECT_EQ(queues.depth(priority), 0u);
    EXPECT_TRUE(queues.empty());
    EXPECT_EQ(queues.levels(), 0);
}

TEST(PriorityQueues, T10_HigherOnesThatComeLaterGoBetweenSlices) {
    PriorityQueues queues({});
    Entry a(kLow, 1, 3), c(kHigh, 3);
    queues.put(a.at(0));
    EXPECT_EQ(take(queues, 0), &a);
    queues.put(c.at(1));
    EXPECT_EQ(drain(queues), (std::vector<int>{3, 1, 1}));
}

TEST(PriorityQueues, T10_SlicesOfARequestGoInOrder) {
    PriorityQueues queues({});
    Entry a(kLow, 1, 3);
    queues.put(a.at(0));
    EXPECT_EQ(queues.take(a, 0), &a.slices[0]);
    queues.put_back(a, a.slices[0], 0);
    EXPECT_EQ(queues.take(a, 0), &a.slices[1]);
    EXPECT_EQ(queues.take(a, 0), &a.slices[2]);
    EXPECT_EQ(queues.take(a, 0), &a.slices[0]);
    EXPECT_TRUE(queues.empty());
    queues.put_back(a, a.slices[2], 5);
    EXPECT_EQ(queues.first(2, kAllLevels), &a) << "listed again";
}

TEST(PriorityQueues, AllOfARequestCanBeTakenFromTheMiddle) {
    PriorityQueues queues({});
    Entry a(kLow, 1), b(kLow, 2, 3), c(kLow, 3);
    for (Entry* one : {&a, &b, &c}) queues.put(one->at(0));
    int slices = 0;
    for (const Queued* one = queues.take_all(b); one != nullptr; one = one->next) ++slices;
    EXPECT_EQ(slices, 3);
    EXPECT_EQ(queues.depth(kLow), 2u);
    EXPECT_EQ(drain(queues), (std::vector<int>{1, 3}));
}

TEST(PriorityQueues, T11_RequestsPastTheTimeoutArePromotedAndNoOthers) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    Entry old_low(kLow, 1), old_medium(kMedium, 2), young_low(kLow, 3), young_medium(kMedium, 4), high(kHigh, 5);
    for (Entry* one : {&old_low, &old_medium}) queues.put(one->at(100 * kMs));
    for (Entry* one : {&young_low, &young_medium}) queues.put(one->at(105 * kMs));
    queues.promote(99 * kMs);  // a time from before the submitter's clock reading
    queues.promote(109 * kMs);
    EXPECT_EQ(queues.promoted(kLow) + queues.promoted(kMedium), 0u);
    queues.promote(110 * kMs);  // both levels in one check
    EXPECT_EQ(queues.promoted(kLow), 1u);
    EXPECT_EQ(queues.promoted(kMedium), 1u);
    queues.put(high.at(111 * kMs));
    // The old MEDIUM request is now in HIGH, before the one that arrived later. The old LOW request is behind the
    // MEDIUM request that was already there.
    EXPECT_EQ(drain(queues, 112 * kMs), (std::vector<int>{2, 5, 4, 1, 3}));
}

TEST(PriorityQueues, T11_LowReachesHighAfterTwoTimeouts) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    Entry low(kLow, 1);
    queues.put(low.at(0));
    std::deque<Entry> high;
    uint64_t served_at = 0;
    for (uint64_t ms = 0; ms < 40 && served_at == 0; ++ms) {  // HIGH always has work
        queues.put(high.emplace_back(kHigh, 2).at(ms * kMs));
        queues.promote(ms * kMs);
        if (take(queues, ms * kMs)->id == 1) served_at = ms;
    }
    EXPECT_GE(served_at, 20u);
    EXPECT_LE(served_at, 22u);
    EXPECT_EQ(queues.promoted(kLow), 2u);
}

// A request behind a long one still waits while the long one makes progress.
TEST(PriorityQueues, T11_TheOneThatIsServedIsNotPromotedAndTheOneBehindItIs) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    Entry bulk(kLow, 1, 1000), behind(kLow, 2);
    queues.put(bulk.at(0));
    queues.put(behind.at(0));
    std::vector<int> served;
    for (uint64_t ms = 1; ms < 30; ++ms) {
        queues.promote(ms * kMs);
        served.push_back(take(queues, ms * kMs)->id);
        if (served.back() == 2) break;
    }
    EXPECT_EQ(served.size(), 10u);
    EXPECT_EQ(served.back(), 2);
    EXPECT_EQ(queues.promoted(kLow), 1u);
}

// Otherwise a delayed bulk transfer would go before HIGH with all its slices.
TEST(PriorityQueues, T11_OnceServedItIsBackAtItsOwnLevel) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    Entry bulk(kLow, 1, 100), high(kHigh, 2, 100);
    queues.put(bulk.at(0));
    queues.put(high.at(0));
    int low_served = 0;
    for (uint64_t ms = 1; ms < 90; ++ms) {
        queues.promote(ms * kMs);
        low_served += take(queues, ms * kMs)->id == 1;
    }
    EXPECT_GE(low_served, 3);
    EXPECT_LE(low_served, 5) << "one in two timeouts";
}

TEST(PriorityQueues, T11_PromotedLowIsStillLowToTheGate) {
    PriorityQueues queues({.promotion_timeout_ns = 10 * kMs});
    Entry low(kLow, 1), medium(kMedium, 2);
    queues.put(low.at(0));
    queues.promote(10 * kMs);
    ASSERT_EQ(queues.promoted(kLow), 1u);
    queues.put(medium.at(11 * kMs));
    EXPECT_EQ(drain(queues, 12 * kMs, 0b011), (std::vector<int>{2}));  // does not block the requests behind it
    EXPECT_EQ(queues.depth(kLow), 1u);
    EXPECT_EQ(drain(queues, 12 * kMs, 0b100), (std::vector<int>{1}));
}

TEST(PriorityQueues, T11_TimeoutOfZeroPromotesNothing) {
    PriorityQueues queues({.promotion_timeout_ns = 0});
    Entry low(kLow, 1);
    queues.put(low.at(0));
    queues.promote(1'000 * kMs);
    EXPECT_EQ(queues.promoted(kLow), 0u);
}

TEST(PriorityQueues, StuckIsWhatWaitsWhereNothingMoves) {
    PriorityQueues queues({});
    Entry a(kLow, 1, 2), b(kLow, 2), c(kHigh, 3);
    for (Entry* one : {&a, &b}) queues.put(one->at(10 * kMs));
    queues.put(c.at(50 * kMs));
    EXPECT_EQ(queues.stuck(9 * kMs), nullptr);
    EXPECT_EQ(queues.stuck(10 * kMs), &a);
    queues.take(a, 60 * kMs);
    EXPECT_EQ(queues.stuck(20 * kMs), nullptr) << "b waits behind one that gets on";
    EXPECT_EQ(queues.stuck(50 * kMs), &c);
    EXPECT_EQ(queues.stuck(59 * kMs), &c);
    drain(queues, 70 * kMs);
    EXPECT_EQ(queues.stuck(100 * kMs), nullptr);
}

TEST(Intake, T10_ManyThreadsSubmitAndNothingIsLostOrTwice) {
    constexpr int kThreads = 3, kRequests = 10'000;
    Intake intake;
    std::vector<std::deque<Entry>> entries(kThreads);
    for (int thread = 0; thread < kThreads; ++thread)
        for (int i = 0; i < kRequests; ++i)
            entries[static_cast<size_t>(thread)].emplace_back(static_cast<Priority>((i / 7 + thread) % 3),
                                                              thread * kRequests + i);
    std::atomic<int> running{kThreads};
    std::vector<std::thread> threads;
    for (auto& own : entries) {
        threads.emplace_back([&] {
            for (Entry& entry : own) intake.submit(entry);
            --running;
        });
    }
    // The requests of one thread come out in the order of submission.
    int taken = 0;
    int next[kThreads] = {};
    while (true) {
        const bool finished = running == 0;
        for (Waiting* one = intake.take(); one != nullptr; one = one->next) {
            const int id = static_cast<Entry*>(one)->id;
            ASSERT_EQ(id % kRequests, next[id / kRequests]++);
            ++taken;
        }
        if (finished) break;
        std::this_thread::yield();
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(taken, kThreads * kRequests);
    EXPECT_TRUE(intake.empty());
}

}  // namespace
}  // namespace rove::tent
