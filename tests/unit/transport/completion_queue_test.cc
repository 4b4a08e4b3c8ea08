// SPDX-License-Identifier: Apache-2.0
#include "transport/completion_queue.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace rove::transport {
namespace {

ibv_wc completion(uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS, uint32_t qpn = 0) {
    ibv_wc wc{};
    wc.wr_id = wr_id;
    wc.status = status;
    wc.qp_num = qpn;
    return wc;
}

bool push(CompletionQueue& cq, const ibv_wc& wc, bool solicited = false, bool* notify = nullptr) {
    bool ignored = false;
    return cq.push(solicited, notify != nullptr ? notify : &ignored, [&](ibv_wc& written) { written = wc; });
}

std::vector<uint64_t> poll_all(CompletionQueue& cq, int batch = 3) {
    std::vector<uint64_t> ids;
    std::vector<ibv_wc> wc(batch);
    for (int n; (n = cq.poll(wc.data(), batch)) > 0;) {
        for (int i = 0; i < n; ++i) ids.push_back(wc[i].wr_id);
    }
    return ids;
}

class EitherUse : public testing::TestWithParam<bool> {
  protected:
    const CompletionQueueUse use{.one_producer = GetParam(), .never_armed = GetParam()};
};
INSTANTIATE_TEST_SUITE_P(CompletionQueue, EitherUse, testing::Bool());

TEST_P(EitherUse, first_in_first_out_over_many_rounds) {
    CompletionQueue cq;
    ASSERT_TRUE(cq.init(5, use));
    EXPECT_GT(cq.capacity(), 5u);
    uint64_t next = 0;
    for (int round = 0; round < 100; ++round) {
        std::vector<uint64_t> expected;
        for (int i = 0; i < round % 6; ++i) {
            expected.push_back(next);
            ASSERT_TRUE(push(cq, completion(next++)));
        }
        EXPECT_EQ(cq.empty(), expected.empty());
        EXPECT_EQ(poll_all(cq), expected);
        EXPECT_TRUE(cq.empty());
    }
}

TEST_P(EitherUse, full_is_an_overrun_and_loses_only_the_newest) {
    CompletionQueue cq;
    ASSERT_TRUE(cq.init(3, use));
    for (uint64_t i = 0; i < cq.capacity(); ++i) ASSERT_TRUE(push(cq, completion(i)));
    EXPECT_FALSE(push(cq, completion(99)));
    EXPECT_EQ(poll_all(cq), (std::vector<uint64_t>{0, 1, 2, 3}));
    EXPECT_TRUE(push(cq, completion(4)));
    EXPECT_EQ(poll_all(cq), std::vector<uint64_t>{4});
}

TEST(CompletionQueue, says_when_each_completion_was_pushed) {
    CompletionQueue cq;
    ASSERT_TRUE(cq.init(5));
    bool notify;
    const auto push_at = [&](uint64_t now_ns, uint32_t qpn) {
        ASSERT_TRUE(cq.push(
            false, &notify, [&](ibv_wc& wc) { wc.qp_num = qpn; }, now_ns));
    };
    push_at(10, 1);
    push_at(20, 2);
    push_at(30, 1);
    push_at(40, 2);
    ibv_wc wc[4];
    uint64_t times[4];
    EXPECT_EQ(cq.poll(wc, 1, times), 1);
    EXPECT_EQ(times[0], 10u);
    cq.forget(1);
    ASSERT_EQ(cq.resize(NoReaders::instance(), 20), 0);
    EXPECT_EQ(cq.poll(wc, 4, times), 2);
    EXPECT_EQ(times[0], 20u);
    EXPECT_EQ(times[1], 40u);
}

TEST(CompletionQueue, an_overrun_is_told_once_or_not_at_all) {
    CompletionQueue told, ignored;
    ASSERT_TRUE(told.init(1));
    ASSERT_TRUE(ignored.init(1, {.ignores_overrun = true}));
    EXPECT_TRUE(told.first_loss());
    EXPECT_FALSE(told.first_loss());
    EXPECT_FALSE(ignored.first_loss());
}

// IBTA 11.4.2.2: the wider of two arms holds until there is an event.
TEST(CompletionQueue, arming_for_solicited_does_not_undo_arming_for_any) {
    CompletionQueue cq;
    ASSERT_TRUE(cq.init(16));
    bool notify = false;
    cq.arm(false);
    cq.arm(true);
    push(cq, completion(0), false, &notify);
    EXPECT_TRUE(notify);
    notify = false;
    cq.arm(true);
    cq.arm(false);
    push(cq, completion(1), false, &notify);
    EXPECT_TRUE(notify);
    notify = false;
    cq.arm(true);
    push(cq, completion(2), false, &notify);
    EXPECT_FALSE(notify) << "the event ended what was armed before";
}

TEST(CompletionQueue, notifies_once_per_arming) {
    CompletionQueue cq;
    ASSERT_TRUE(cq.init(16));
    bool notify = false;
    push(cq, completion(0), true, &notify);
    EXPECT_FALSE(notify) << "not armed";
    cq.arm(false);
    push(cq, completion(1), false, &notify);
    EXPECT_TRUE(notify);
    notify = false;
    push(cq, completion(2), true, &notify);
    EXPECT_FALSE(notify) << "armed once, told once";
}

TEST(CompletionQueue, armed_for_solicited_waits_for_one_or_an_error) {
    CompletionQueue cq;
    ASSERT_TRUE(cq.init(16));
    bool notify = false;
    cq.arm(true);
    push(cq, completion(0), false, &notify);
    EXPECT_FALSE(notify);
    push(cq, completion(1), true, &notify);
    EXPECT_TRUE(notify);
    notify = false;
    cq.arm(true);
    push(cq, completion(2, IBV_WC_WR_FLUSH_ERR), false, &notify);
    EXPECT_TRUE(notify) << "an unsuccessful completion counts as solicited (ibv_req_notify_cq)";
}

TEST(CompletionQueue, resize_keeps_what_is_queued) {
    CompletionQueue cq;
    ASSERT_TRUE(cq.init(4));
    for (uint64_t i = 0; i < 3; ++i) push(cq, completion(100 + i));
    poll_all(cq);
    for (uint64_t i = 0; i < 4; ++i) push(cq, completion(i));
    EXPECT_EQ(cq.resize(NoReaders::instance(), 3), EINVAL) << "fewer than are queued";
    EXPECT_EQ(cq.resize(NoReaders::instance(), 64), 0);
    EXPECT_GE(cq.capacity(), 64u);
    for (uint64_t i = 4; i < 60; ++i) ASSERT_TRUE(push(cq, completion(i)));
    const std::vector<uint64_t> ids = poll_all(cq);
    ASSERT_EQ(ids.size(), 60u);
    for (uint64_t i = 0; i < 60; ++i) EXPECT_EQ(ids[i], i);
    EXPECT_EQ(cq.resize(NoReaders::instance(), 2), 0);
    for (uint64_t round = 0; round < 9; ++round) {
        ASSERT_TRUE(push(cq, completion(round)));
        EXPECT_EQ(poll_all(cq), std::vector<uint64_t>{round});
    }
}

TEST(CompletionQueue, forget_drops_one_queue_pairs_completions) {
    CompletionQueue cq;
    ASSERT_TRUE(cq.init(16));
    for (uint64_t i = 0; i < 12; ++i) push(cq, completion(i, IBV_WC_SUCCESS, i % 3));
    cq.forget(1);
    EXPECT_EQ(cq.resize(NoReaders::instance(), 30), 0);
    EXPECT_EQ(poll_all(cq), (std::vector<uint64_t>{0, 2, 3, 5, 6, 8, 9, 11}));
    EXPECT_TRUE(cq.empty());
    for (uint64_t i = 0; i < 40; ++i) {
        push(cq, completion(i, IBV_WC_SUCCESS, 1));
        if (i % 2 == 0) cq.forget(1);
        EXPECT_EQ(poll_all(cq).size(), i % 2);
    }
}

// A QP is destroyed without stopping the workers that serve others.
TEST(CompletionQueue, forget_beside_workers) {
    constexpr uint64_t kCompletions = 50'000;
    CompletionQueue cq;
    ASSERT_TRUE(cq.init(64));
    std::thread worker([&] {
        for (uint64_t i = 0; i < kCompletions; ++i)
            while (!push(cq, completion(i, IBV_WC_SUCCESS, i % 5 == 0 ? 1 : 2))) std::this_thread::yield();
    });
    uint64_t others = 0;
    for (uint64_t last = 0; last != kCompletions - 1;) {
        ibv_wc wc[8];
        cq.forget(1);
        const int count = cq.poll(wc, 8);
        for (int i = 0; i < count; ++i) {
            others += wc[i].qp_num == 2;
            last = wc[i].wr_id;
        }
    }
    worker.join();
    EXPECT_EQ(others, kCompletions / 5 * 4);
}

TEST(CompletionQueue, one_worker_and_a_polling_thread) {
    constexpr uint64_t kCompletions = 200'000;
    CompletionQueue cq;
    ASSERT_TRUE(cq.init(20, {.one_producer = true, .never_armed = true}));
    std::thread worker([&] {
        for (uint64_t i = 0; i < kCompletions; ++i)
            while (!push(cq, completion(i))) std::this_thread::yield();
    });
    uint64_t next = 0;
    while (next < kCompletions) {
        const std::vector<uint64_t> ids = poll_all(cq, 5);
        for (const uint64_t id : ids) EXPECT_EQ(id, next++);
        if (ids.empty()) std::this_thread::yield();
    }
    worker.join();
}

// Two workers produce, one thread polls. The ring has room for everything at any moment, so no push may fail.
TEST(CompletionQueue, workers_and_a_polling_thread) {
    constexpr uint64_t kEach = 100'000;
    constexpr uint64_t kAhead = 20;
    CompletionQueue cq;
    ASSERT_TRUE(cq.init(64));
    std::atomic<uint64_t> polled[2] = {0, 0};
    std::atomic<uint64_t> events{0};
    std::vector<std::thread> workers;
    for (uint32_t worker = 0; worker < 2; ++worker) {
        workers.emplace_back([&, worker] {
            for (uint64_t i = 0; i < kEach; ++i) {
                while (i - polled[worker].load(std::memory_order_acquire) >= kAhead) std::this_thread::yield();
                bool notify = false;
                if (!push(cq, completion(i, IBV_WC_SUCCESS, worker), false, &notify)) ADD_FAILURE() << "false overrun";
                if (notify) events.fetch_add(1);
            }
        });
    }
    uint64_t expected[2] = {0, 0}, armed = 0;
    while (expected[0] + expected[1] < 2 * kEach) {
        ibv_wc wc[8];
        const int n = cq.poll(wc, 8);
        for (int i = 0; i < n; ++i) {
            ASSERT_EQ(wc[i].wr_id, expected[wc[i].qp_num]++);
            polled[wc[i].qp_num].store(expected[wc[i].qp_num], std::memory_order_release);
        }
        if (n == 0) {
            // This is the pattern of ibv_get_cq_event users: arm, poll once more, and anything later must cause an
            // event.
            const uint64_t before = events.load();
            cq.arm(false);
            ++armed;
            while (cq.empty() && events.load() == before) std::this_thread::yield();
        }
    }
    for (std::thread& worker : workers) worker.join();
    EXPECT_LE(events.load(), armed);
}

}  // namespace
}  // namespace rove::transport
