// SPDX-License-Identifier: Apache-2.0
// RC over a path that keeps losing packets, retransmissions too. Probes and NAKs must find the losses, not the verbs'
// timeout, and the window must open again.
#include "transport/pair.h"

namespace rove::test {
namespace {

using ::testing::Each;

struct RcLoss : Pair {
    // Loses b's packets with the given `numbers`, counted from 0, and the first middle packet of a's WRITE.
    void lose_answers(std::vector<size_t> numbers) {
        net.filter = [numbers, answers = size_t{0}, begun = false](const Observed& p) mutable {
            if (p.from == 0) {
                const bool first = !begun && p.op() == Op::kWriteMiddle;
                begun |= first;
                return first ? Verdict::kDrop : Verdict::kPass;
            }
            return std::ranges::find(numbers, answers++) == numbers.end() ? Verdict::kPass : Verdict::kDrop;
        };
    }
    void expect_success(size_t count) {
        const std::vector<ibv_wc_status> got = statuses(sent());
        EXPECT_EQ(got.size(), count);
        EXPECT_THAT(got, Each(IBV_WC_SUCCESS));
    }
};

// The NAK is lost, and so is the answer to the packet that is then sent alone: there is more to retransmit, and nothing
// moves.
TEST_F(RcLoss, a_repetition_that_waits_for_an_answer_is_probed_for) {
    for (const std::vector<size_t>& lost : {std::vector<size_t>{0, 2}, {0, 1, 3}, {0, 2, 3}, {0, 2, 4, 5}}) {
        connect();
        lose_answers(lost);
        const uint64_t begun = net.now(), timeouts = a.counter(Counter::kTimeouts);
        post(write(1, 0, 30'000, 0));
        ASSERT_TRUE(run());
        expect_success(1);
        EXPECT_EQ(a.counter(Counter::kTimeouts), timeouts);
        EXPECT_LT(net.now() - begun, 16 * kMillisecond);
    }
}

// The case of READs that wait for the answers to others, and of requests behind a fence.
TEST_F(RcLoss, requests_that_wait_for_lost_answers_are_asked_for_again) {
    for (const int flags : {0, int{IBV_SEND_FENCE}}) {
        for (const uint8_t most : {1, 4}) {
            connect({.max_rd_atomic = most});
            net.filter = [responses = 0](const Observed& p) mutable {
                return p.from == 1 && responses++ < 3 ? Verdict::kDrop : Verdict::kPass;
            };
            const uint64_t begun = net.now(), timeouts = a.counter(Counter::kTimeouts);
            for (uint64_t i = 0; i < 3 * most; ++i) {
                Send s = i % 3 == 2 ? write(i, 0, 1000, 0) : read(i, 2000 * i, 2000, 0);
                if (i % 3 == 2) s.flags |= flags;
                post(s);
            }
            ASSERT_TRUE(run());
            expect_success(3 * most);
            EXPECT_EQ(a.counter(Counter::kTimeouts), timeouts) << int{most} << " READs, flags " << flags;
            EXPECT_LT(net.now() - begun, 32 * kMillisecond);
        }
    }
}

TEST_F(RcLoss, nothing_waits_for_the_timeout) {
    net.keep_trace = false;
    net.egress[0].loss = net.egress[1].loss = 0.03;
    connect();
    set_word(mb, 0, 0);
    uint64_t posted = 0, completed = 0, added = 0;
    while (completed < 3000) {
        while (posted < completed + 16) {
            const uint64_t i = posted++;
            switch (net.random().below(8)) {
                case 0:
                    post(read(i, 50'000, 20'000, 30'000));
                    break;
                case 1:
                    post(fetch_add(i, 8, 0, 1));
                    ++added;
                    break;
                case 2:
                    post(write(i, 100, 60'000, 60'000));
                    break;
                case 3:
                    post(read(i, 50'000, 100, 100));
                    break;
                default:
                    post(write(i, 100, 100, 100));
                    break;
            }
        }
        net.run_for(100 * kMicrosecond);
        for (const ibv_wc& wc : sent()) {
            ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << wc.wr_id;
            ++completed;
        }
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(word(mb, 0), added);
    EXPECT_EQ(a.counter(Counter::kTimeouts), 0u) << a.counter(Counter::kTailProbes) << " probes";
}

// A NAK is lost in the midst of WRITEs.
struct RcLostNak : RcLoss {
    void keep_busy(uint64_t time) {
        for (const uint64_t until = net.now() + time; net.now() < until;) {
            for (; qa->sq.room() != 0; ++posted_) post(write(posted_, 0, bytes_, 0));
            net.run_for(10 * kMicrosecond);
            for (const ibv_wc& wc : sent()) ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        }
    }
    uint64_t rate() {
        const uint64_t before = a.counter(Counter::kPsnsAcknowledged);
        keep_busy(kMillisecond);
        return a.counter(Counter::kPsnsAcknowledged) - before;
    }
    void lose_a_nak() {
        const uint64_t probes = a.counter(Counter::kTailProbes);
        net.filter = [first = true](const Observed& p) mutable {
            const bool lost =
                p.from == 0 ? std::exchange(first, false) : p.headers.aeth.syndrome == wire::kSyndromeNakSequence;
            return lost ? Verdict::kDrop : Verdict::kPass;
        };
        keep_busy(100 * kMicrosecond);
        net.filter = nullptr;
        keep_busy(5 * kMillisecond);
        EXPECT_EQ(a.counter(Counter::kTailProbes), probes + 1);
    }
    size_t bytes_ = 100;
    uint64_t posted_ = 0;
};

// Afterwards as many packets are in flight as before, although each is acknowledged by itself.
TEST_F(RcLostNak, the_window_opens_again) {
    net.keep_trace = false;
    connect();
    net.egress[0].delay_ns = 40 * kMicrosecond;
    keep_busy(kMillisecond);
    const uint64_t before = rate();
    lose_a_nak();
    EXPECT_EQ(a.counter(Counter::kTimeouts), 0u);
    EXPECT_GE(rate(), before * 9 / 10);
}

// After a stall, sending resumes at its place then, not at the place of the loss.
TEST_F(RcLostNak, a_stall_costs_no_more_afterwards) {
    const auto repeated_by_stall = [&] {
        const uint64_t before = a.counter(Counter::kRetransmittedPackets);
        net.stall(b.index(), net.now() + 200 * kMillisecond);
        keep_busy(kMillisecond);
        EXPECT_TRUE(run());
        sent();
        return a.counter(Counter::kRetransmittedPackets) - before;
    };
    net.keep_trace = false;
    bytes_ = 5000;
    connect();
    const uint64_t before = repeated_by_stall();
    lose_a_nak();
    EXPECT_LE(repeated_by_stall(), before + 8);
}

}  // namespace
}  // namespace rove::test
