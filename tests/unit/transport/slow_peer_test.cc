// SPDX-License-Identifier: Apache-2.0
// A peer that is slow, not dead: nothing is lost, so no QP may fail, and few packets may be sent twice.
#include "transport/pair.h"

namespace rove::test {
namespace {

struct SlowPeer : Pair, ::testing::WithParamInterface<bool> {
    static constexpr size_t kBytes = 100'000;

    void connect_with(uint8_t timeout) { connect({.timeout = timeout, .retry_cnt = 7, .multipath = GetParam()}); }
    // Keeps a's send queue busy with WRITEs of 98 packets each until `until`.
    void write_until(uint64_t until) {
        while (net.now() < until && qa->state == IBV_QPS_RTS) {
            while (outstanding_ < 8) {
                post(write(posted_++, 0, kBytes, 0));
                ++outstanding_;
            }
            net.run_for(200 * kMicrosecond);
            take();
        }
        ASSERT_TRUE(run());
        take();
    }
    void take() {
        for (const ibv_wc& wc : sent()) {
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS)
                << "request " << wc.wr_id << " at " << net.now() / kMillisecond << " ms";
            --outstanding_;
            ++completed_;
        }
    }
    void expect_few_repetitions(uint64_t percent) {
        EXPECT_EQ(qa->state, IBV_QPS_RTS);
        EXPECT_EQ(completed_, posted_);
        const uint64_t sent = a.counter(Counter::kPsnsSent), again = a.counter(Counter::kRetransmittedPackets);
        EXPECT_LT(again * 100, percent * sent)
            << again << " of " << sent << " packets were sent again, " << a.counter(Counter::kTimeouts) << " timeouts; "
            << a.counter(Counter::kResentTimeout) << " after timeouts, " << a.counter(Counter::kResentEarly)
            << " as probes, " << a.counter(Counter::kResentInferred) << " inferred";
    }
    uint64_t posted_ = 0, completed_ = 0, outstanding_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Mode, SlowPeer, ::testing::Bool(), [](const auto& info) { return info.param ? "mp" : "rc"; });

// It pauses again and again, for 0.1 to 1.6 s; the timeout is perftest's.
TEST_P(SlowPeer, stands_still_again_and_again) {
    net.keep_trace = false;
    connect_with(14);
    net.egress[0].bytes_per_s = 100'000'000;
    for (uint64_t i = 0, at = net.now(); i < 6; ++i) {
        at += 300 * kMillisecond;
        const uint64_t end = at + (i % 2 == 0 ? 100 : 300 * i) * kMillisecond;
        net.stall_at(at, b.index(), end);
        at = end;
    }
    write_until(net.now() + 6 * kSecond);
    expect_few_repetitions(5);
}

// It takes many timeouts for its unread packets.
TEST_P(SlowPeer, reads_slowly) {
    net.keep_trace = false;
    connect_with(8);                        // 16 ms, the floor
    net.egress[0].bytes_per_s = 2'000'000;  // a window: 136 ms
    write_until(net.now() + 3 * kSecond);
    expect_few_repetitions(
        8);  // rc: about two tail probes for each answer, which are all farther apart than it expects
}

// With a window of a 128th of a packet and a round trip of 10 ms, about 1.3 s pass between two packets. Eight timeouts
// of the program take 0.4 s. Each repeats a packet, or else the peer would count as dead without having been asked.
TEST_P(SlowPeer, a_timeout_does_not_wait_for_a_small_window) {
    connect_with(8);
    net.egress[1].delay_ns = 10 * kMillisecond;
    write_until(net.now() + kSecond);
    for (uint64_t i = 0; i < 3; ++i) {
        if (GetParam()) {
            qa->mp()->requests.cwnd_fixed = transport::AdaptiveWindow::kLeast;
        } else {
            qa->rc()->requester.cwnd_fixed = transport::AdaptiveWindow::kLeast;
            qa->rc()->requester.window_packets = 1;
        }
        lose(0, [](const Observed& packet) { return packet.from == 0; });
        post(write(posted_++, 0, 3 * qa->mtu, 0));
        ASSERT_TRUE(run());
        outstanding_ = 1;
        take();
    }
    EXPECT_EQ(qa->state, IBV_QPS_RTS);
    EXPECT_EQ(completed_, posted_);
}

// Our host is rarely on its core: its clock counts 1 ms of each 10 ms (protocol_clock.h), and misses the rest.
struct SeldomPolled : SlowPeer {
    // Lets `ns` of real time pass; returns the time until `done`.
    uint64_t pass(uint64_t ns, const std::function<bool()>& done) {
        uint64_t passed = 0;
        for (; passed < ns && !done(); passed += 10 * kMillisecond) {
            a.engine.miss(9 * kMillisecond);
            net.run_for(kMillisecond);
        }
        return passed;
    }
};

INSTANTIATE_TEST_SUITE_P(Mode, SeldomPolled, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "mp" : "rc"; });

// IBTA 9.9.2.1.1, C9-141: each timeout is between Tr and 4 Tr, Tr = 67.1 ms; eight of them, then the request fails.
TEST_P(SeldomPolled, a_silent_peer_is_given_up_in_time) {
    connect_with(14);
    net.filter = [](const Observed& packet) { return packet.from == 0 ? Verdict::kDrop : Verdict::kPass; };
    post(write(1, 0, 100, 0));
    const uint64_t took = pass(10 * kSecond, [this] { return qa->state == IBV_QPS_ERR; });
    EXPECT_GE(took, 8 * 67 * kMillisecond);
    EXPECT_LE(took, 8 * 4 * 68 * kMillisecond);
    expect_sent(IBV_WC_RETRY_EXC_ERR, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(a.counter(Counter::kTimeouts), 8u);
}

// Time that was missed before a request, or before an answer, is no part of the silence after it.
TEST_P(SeldomPolled, a_peer_that_answers_within_its_time_is_not_given_up) {
    connect_with(14);
    net.keep_trace = false;
    net.egress[1].delay_ns = 5 * kMillisecond;  // 50 ms of real time
    for (uint64_t i = 0; i < 100; ++i) {
        a.engine.miss(kSecond);
        post(write(i, 0, 100, 0));
        std::vector<ibv_wc> done;
        pass(kSecond, [&] { return !(done = sent()).empty(); });
        ASSERT_EQ(done.size(), 1u);
        EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    }
    EXPECT_EQ(a.counter(Counter::kTimeouts), 0u);
}

// A long absence of the host costs a peer one of its timeouts.
TEST_P(SeldomPolled, a_long_absence_is_one_timeout) {
    connect_with(14);
    net.filter = [](const Observed& packet) { return packet.from == 0 ? Verdict::kDrop : Verdict::kPass; };
    post(write(1, 0, 100, 0));
    net.run_for(kMillisecond);
    a.engine.miss(100 * kSecond);
    net.run_for(kMillisecond);
    EXPECT_EQ(a.counter(Counter::kTimeouts), 1u);
    EXPECT_EQ(qa->state, IBV_QPS_RTS);
    net.filter = nullptr;
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
}

struct Repeats : Pair {};

// This is how a Linux guest behaves: it acknowledges the previous packet hundreds of times, and the rest when it gets
// to it.
TEST_F(Repeats, a_peer_that_only_repeats_its_last_acknowledgement_is_alive) {
    connect({.timeout = 14, .retry_cnt = 7});
    post(write(1, 0, 100, 0));
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    net.filter = [](const Observed& p) { return p.from == 0 ? Verdict::kDrop : Verdict::kPass; };
    post(write(2, 0, 100'000, 0));
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kRc, Op::kAck);
    h.bth.dest_qpn = qa->qpn;
    h.bth.psn = 100;
    h.aeth = {wire::kSyndromeAck, 1};
    net.run_for(kMillisecond);
    const uint64_t before = a.counter(Counter::kRetransmittedPackets);
    for (int i = 0; i < 300; ++i) {
        net.inject(0, b.path_to(a), h, {});
        net.run_for(10 * kMillisecond);
    }
    EXPECT_EQ(qa->state, IBV_QPS_RTS) << "after three seconds";
    EXPECT_EQ(a.counter(Counter::kTimeouts), 0u) << "it was never silent for a timeout";
    EXPECT_LT(a.counter(Counter::kRetransmittedPackets) - before, 98u) << "less than the window once more";
    net.filter = nullptr;
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
}

// This has a limit: the requested packet may never arrive.
TEST_F(Repeats, it_is_given_up_in_the_end) {
    connect({.timeout = 8, .retry_cnt = 1});
    net.filter = [](const Observed& p) { return p.from == 0 ? Verdict::kDrop : Verdict::kPass; };
    post(write(2, 0, 100, 0));
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kRc, Op::kAck);
    h.bth.dest_qpn = qa->qpn;
    h.bth.psn = 99;
    h.aeth = {wire::kSyndromeAck, 0};
    for (int i = 0; i < 500 && qa->state == IBV_QPS_RTS; ++i) {
        net.inject(0, b.path_to(a), h, {});
        net.run_for(10 * kMillisecond);
    }
    expect_sent(IBV_WC_RETRY_EXC_ERR);
}

// A silent peer is found within the time that IBTA allows: a timeout may take four times its nominal value.
TEST_F(Repeats, silence_is_counted) {
    connect({.timeout = 14, .retry_cnt = 7});
    net.filter = [](const Observed&) { return Verdict::kDrop; };
    const uint64_t begun = net.now();
    post(write(1, 0, 100'000, 0));
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_RETRY_EXC_ERR);
    const uint64_t timeout_ns = 4096ull << 14;
    EXPECT_GE(net.now() - begun, 8 * timeout_ns);
    EXPECT_LE(net.now() - begun, 4 * 8 * timeout_ns);
    EXPECT_LT(a.counter(Counter::kRetransmittedPackets), 40u) << "not the window eight times";
}

}  // namespace
}  // namespace rove::test
