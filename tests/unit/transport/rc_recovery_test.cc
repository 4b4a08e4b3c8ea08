// SPDX-License-Identifier: Apache-2.0
// RC when packets are lost, repeated or late: retransmission, execution exactly once, and the end of retries.
#include "transport/pair.h"

namespace rove::test {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

struct RcRecovery : Pair {
    void succeeds(size_t count) {
        ASSERT_TRUE(run());
        const auto wcs = sent();
        ASSERT_EQ(wcs.size(), count);
        for (const ibv_wc& wc : wcs) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    }
};

TEST_F(RcRecovery, a_gap_is_naked_once_and_the_requester_goes_back) {
    connect();
    lose(0, [](const Observed& p) { return p.op() == Op::kWriteMiddle; });
    post(write(1, 0, 8000, 0));
    succeeds(1);
    EXPECT_EQ(mb.bytes(0, 8000), ma.bytes(0, 8000));
    EXPECT_EQ(b.counter(Counter::kTxNakSequence), 1u);
    EXPECT_EQ(a.counter(Counter::kTimeouts), 0u);
    EXPECT_EQ(a.counter(Counter::kTailProbes), 0u) << "a NAK brought it back";
    for (const Observed& p : net.trace) {
        if (p.op() == Op::kAck && p.headers.aeth.syndrome == wire::kSyndromeNakSequence) {
            EXPECT_EQ(p.headers.bth.psn, 101u);
        }
    }
}

TEST_F(RcRecovery, every_single_loss_of_a_packet_is_survived) {
    for (size_t lost = 0; lost < 24; ++lost) {
        connect();
        set_word(mb, 60000, lost);
        receive(7, 50000, 3000);
        lose(lost, [](const Observed&) { return true; });
        post(send(1, 0, 3000));
        post(write(2, 5000, 3000, 5000));
        post(read(3, 90000, 3000, 20000));
        post(fetch_add(4, 100000, 60000, 1));
        post(write(5, 9000, 10, 9000));
        SCOPED_TRACE(lost);
        succeeds(5);
        EXPECT_EQ(received().size(), 1u);
        EXPECT_EQ(mb.bytes(50000, 3000), ma.bytes(0, 3000));
        EXPECT_EQ(mb.bytes(5000, 3000), ma.bytes(5000, 3000));
        EXPECT_EQ(ma.bytes(90000, 3000), mb.bytes(20000, 3000));
        EXPECT_EQ(word(ma, 100000), lost);
        EXPECT_EQ(word(mb, 60000), lost + 1) << "executed once";
    }
}

TEST_F(RcRecovery, a_lost_tail_does_not_wait_for_the_timeout) {
    connect();
    lose(0, [](const Observed& p) { return p.op() == Op::kAck; });
    post(write(1, 0, 100, 0));
    succeeds(1);
    EXPECT_EQ(a.counter(Counter::kTimeouts), 0u);
    EXPECT_EQ(a.counter(Counter::kTailProbes), 1u);
}

// A probe of a WRITE is one packet: where it is answered, the next loss is found as early as the one before.
TEST_F(RcRecovery, each_lost_write_is_found_as_soon_as_the_first) {
    connect();
    net.filter = [last = uint32_t{0}](const Observed& p) mutable {
        const bool first = p.op() == Op::kWriteOnly && p.headers.bth.psn > last;
        if (first) last = p.headers.bth.psn;
        return first ? Verdict::kDrop : Verdict::kPass;
    };
    std::vector<uint64_t> took;
    for (uint64_t i = 0; i < 8; ++i) {
        const uint64_t start = net.now();
        post(write(i, 0, 100, 0));
        succeeds(1);
        took.push_back(net.now() - start);
    }
    // The answer to the first is taken for one of the lost packet, so the second waits for such a long round trip.
    EXPECT_LT(took[1], 4 * kMillisecond);
    took[1] = took[0];
    EXPECT_THAT(took, Each(took[0]));
    EXPECT_EQ(a.counter(Counter::kTailProbes), 8u);
    EXPECT_EQ(a.counter(Counter::kTimeouts), 0u);
}

// A probe brings all the data of a READ again. If the answers are slow and not lost, that must end soon.
TEST_F(RcRecovery, reads_over_a_long_way_are_asked_for_once) {
    connect({.timeout = 18});
    net.egress[0].delay_ns = net.egress[1].delay_ns = 20 * kMillisecond;
    for (uint64_t i = 0; i < 5; ++i) {
        post(read(i, 0, 50000, 0));
        succeeds(1);
    }
    const uint64_t probes = a.counter(Counter::kTailProbes);
    EXPECT_LE(probes, 8u);
    for (uint64_t i = 0; i < 5; ++i) {
        post(read(i, 0, 50000, 0));
        succeeds(1);
    }
    EXPECT_EQ(a.counter(Counter::kTailProbes), probes);
    EXPECT_EQ(a.counter(Counter::kTimeouts), 0u);
}

TEST_F(RcRecovery, reads_that_wait_in_a_slow_link_do_not_fill_it_with_repetitions) {
    connect({.timeout = 18});
    net.egress[1].bytes_per_s = 1'000'000;  // 100 ms for each
    for (uint64_t i = 0; i < 10; ++i) post(read(i, 0, 100'000, 0));
    succeeds(10);
    EXPECT_LE(net.now(), 1500 * kMillisecond);
    EXPECT_LE(a.counter(Counter::kTailProbes), 12u);
}

TEST_F(RcRecovery, a_repeated_send_is_delivered_once) {
    connect();
    for (uint64_t i = 0; i < 4; ++i) receive(i, 1000 * i, 1000);
    net.filter = [](const Observed&) { return Verdict::kTwice; };
    for (uint64_t i = 0; i < 3; ++i) post(send(i, 100 * i, 100));
    succeeds(3);
    EXPECT_THAT(ids(received()), ElementsAre(0, 1, 2));
    EXPECT_GT(b.counter(Counter::kRxDuplicate), 0u);
}

TEST_F(RcRecovery, a_late_write_is_not_applied_again) {
    connect();
    net.filter = [n = 0](const Observed& p) mutable {
        return p.op() == Op::kWriteOnly && n++ == 0 ? Verdict::kTwice : Verdict::kPass;
    };
    post(write(1, 0, 100, 0));
    succeeds(1);
    // One packet is sent once more after the memory has changed.
    mb.fill(9);
    const auto now = mb.bytes(0, 200);
    const Observed first = net.trace[0];
    net.inject(1, a.path_to(b), first.headers, ma.bytes(0, 100));
    ASSERT_TRUE(run());
    EXPECT_EQ(mb.bytes(0, 200), now);
}

TEST_F(RcRecovery, a_repeated_read_is_executed_again) {
    connect();
    lose(0, [](const Observed& p) { return p.op() == Op::kReadResponseMiddle; });
    post(read(1, 0, 5000, 0));
    succeeds(1);
    EXPECT_EQ(ma.bytes(0, 5000), mb.bytes(0, 5000));
    EXPECT_EQ(packets(a, Op::kReadRequest), 2u);
    std::vector<uint32_t> lengths;
    for (const Observed& p : net.trace) {
        if (p.op() == Op::kReadRequest) lengths.push_back(p.headers.reth.length);
    }
    EXPECT_THAT(lengths, ElementsAre(5000, 5000 - 1024)) << "asked for from what is missing";
}

TEST_F(RcRecovery, a_repeated_atomic_is_answered_and_not_executed_again) {
    connect();
    set_word(mb, 0, 10);
    lose(0, [](const Observed& p) { return p.op() == Op::kAtomicAck; });
    post(fetch_add(1, 0, 0, 5));
    succeeds(1);
    EXPECT_EQ(packets(a, Op::kFetchAdd), 2u);
    EXPECT_EQ(word(mb, 0), 15u);
    EXPECT_EQ(word(ma, 0), 10u);
}

TEST_F(RcRecovery, answers_of_several_lost_atomics_are_all_kept) {
    connect();
    set_word(mb, 0, 0);
    size_t lost = 0;
    net.filter = [&](const Observed& p) {
        return p.op() == Op::kAtomicAck && lost++ < 4 ? Verdict::kDrop : Verdict::kPass;
    };
    for (uint64_t i = 0; i < 4; ++i) post(fetch_add(i, 8 * i, 0, 1));
    succeeds(4);
    EXPECT_EQ(word(mb, 0), 4u);
    for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(word(ma, 8 * i), i);
}

TEST_F(RcRecovery, reordered_packets) {
    connect();
    net.filter = [](const Observed& p) { return p.from == 0 ? Verdict::kHold : Verdict::kPass; };
    post(write(1, 0, 5000, 0));
    net.pump();
    net.filter = nullptr;
    net.release(true);
    succeeds(1);
    EXPECT_EQ(mb.bytes(0, 5000), ma.bytes(0, 5000));
}

TEST_F(RcRecovery, corrupted_packets_are_lost_packets) {
    net.egress[0].corrupt = net.egress[1].corrupt = 0.2;
    connect();
    for (uint64_t i = 0; i < 20; ++i) post(write(i, 1000 * i, 5000, 6000 * i));
    succeeds(20);
    for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(mb.bytes(6000 * i, 5000), ma.bytes(1000 * i, 5000));
    uint64_t refused = 0;
    for (size_t i = 1; i < b.parse_errors.size(); ++i) refused += b.parse_errors[i];
    EXPECT_GT(refused, 0u);
}

// A program that ends with its own last completion destroys its QP; the peer may still miss the last ACK.
TEST_F(RcRecovery, what_a_destroyed_qp_had_received_is_acknowledged_again) {
    connect();
    lose(0, [](const Observed& p) { return p.op() == Op::kAck; });
    post(write(1, 0, 1000, 0));
    net.run_for(100'000);
    EXPECT_EQ(mb.bytes(0, 1000), ma.bytes(0, 1000));
    EXPECT_TRUE(sent().empty());
    b.destroy(*qb);
    succeeds(1);
    EXPECT_EQ(a.counter(Counter::kTimeouts), 0u);
    EXPECT_EQ(b.counter(Counter::kRxPackets), 2u) << "the repetition, too";

    QpOptions impatient;
    impatient.timeout = 8;
    impatient.retry_cnt = 1;
    connect(impatient);
    lose(0, [](const Observed& p) { return p.op() == Op::kAck; });
    post(write(1, 0, 3000, 0));
    net.run_for(100'000);
    b.destroy(*qb);
    post(write(2, 0, 3000, 0));
    ASSERT_TRUE(run());
    EXPECT_EQ(statuses(sent()), (std::vector{IBV_WC_SUCCESS, IBV_WC_RETRY_EXC_ERR})) << "the second was never received";
    EXPECT_GT(b.counter(Counter::kDropUnknownQp), 0u);
}

// time_wait.h explains why: its memory is no longer exposed to the peer.
TEST_F(RcRecovery, a_read_of_a_destroyed_qp_is_not_repeated) {
    for (const bool atomic : {false, true}) {
        QpOptions impatient;
        impatient.timeout = 8;
        impatient.retry_cnt = 1;
        connect(impatient);
        lose(0, [](const Observed& p) { return p.op() == Op::kReadResponseOnly || p.op() == Op::kAtomicAck; });
        post(atomic ? fetch_add(1, 0, 0, 1) : read(1, 0, 100, 0));
        net.run_for(100'000);
        b.destroy(*qb);
        const uint64_t answered = b.counter(Counter::kTxPackets);
        ASSERT_TRUE(run());
        EXPECT_EQ(statuses(sent()), std::vector{IBV_WC_RETRY_EXC_ERR});
        EXPECT_EQ(b.counter(Counter::kTxPackets), answered);
    }
}

// RSS may bring the repetition to another worker than the owner of the QP.
TEST_F(RcRecovery, any_worker_acknowledges_for_a_destroyed_qp) {
    connect();
    transport::Engine<TestSink> other(transport::Config{}, b.qps, b.memory, b.time_wait, b.sink, 1);
    std::vector<uint8_t> last;
    a.sink.transmit = [&, transmit = a.sink.transmit](const Path& path, const wire::Headers& headers,
                                                      std::vector<uint8_t>&& bytes) {
        last = bytes;
        transmit(path, headers, std::move(bytes));
    };
    post(write(1, 0, 3000, 0));
    succeeds(1);
    b.destroy(*qb);
    wire::ParsedFrame frame;
    ASSERT_EQ(wire::parse_frame(last, frame), wire::ParseError::kNone);
    EXPECT_TRUE(other.receive(frame, b.qps.find(frame.headers.bth.dest_qpn), 0, net.now()));
    EXPECT_EQ(other.counters()[Counter::kTxAcks], 1u);
}

// Its payload is verified while it is copied to its place: only these bytes may show it.
TEST_F(RcRecovery, a_damaged_packet_in_the_middle_of_a_message_is_a_lost_packet) {
    for (const Op damaged : {Op::kWriteMiddle, Op::kSendMiddle, Op::kReadResponseMiddle}) {
        SCOPED_TRACE(static_cast<int>(damaged));
        connect();
        const uint64_t refused = a.parse_errors[static_cast<size_t>(wire::ParseError::kIcrc)] +
                                 b.parse_errors[static_cast<size_t>(wire::ParseError::kIcrc)];
        net.filter = [damaged, seen = 0](const Observed& p) mutable {
            return p.op() == damaged && seen++ == 1 ? Verdict::kDamage : Verdict::kPass;
        };
        receive(7, 50000, 8000);
        post(send(1, 0, 8000));
        post(write(2, 10000, 8000, 10000));
        post(read(3, 90000, 8000, 20000));
        succeeds(3);
        ASSERT_EQ(received().size(), 1u);
        EXPECT_EQ(mb.bytes(50000, 8000), ma.bytes(0, 8000));
        EXPECT_EQ(mb.bytes(10000, 8000), ma.bytes(10000, 8000));
        EXPECT_EQ(ma.bytes(90000, 8000), mb.bytes(20000, 8000));
        EXPECT_EQ(a.parse_errors[static_cast<size_t>(wire::ParseError::kIcrc)] +
                      b.parse_errors[static_cast<size_t>(wire::ParseError::kIcrc)],
                  refused + 1);
    }
}

TEST_F(RcRecovery, each_packet_that_goes_out_again_is_counted) {
    connect();
    net.filter = [seen = 0](const Observed& p) mutable {
        return p.op() == Op::kWriteMiddle && seen++ == 3 ? Verdict::kDrop : Verdict::kPass;
    };
    post(write(1, 0, 30 * 1024, 0));
    succeeds(1);
    const uint64_t again = a.counter(Counter::kRetransmittedPackets);
    EXPECT_GT(again, 1u);
    EXPECT_EQ(again, a.counter(Counter::kPsnsLost));
    EXPECT_EQ(again, a.counter(Counter::kResentNack));
    EXPECT_EQ(a.counter(Counter::kTxPackets), 30 + again);
}

TEST_F(RcRecovery, sequence_numbers_wrap) {
    QpOptions from, to;
    from.psn = 0xFFFFF0;
    to.psn = 0xFFFFFE;
    connect(from, to);
    net.egress[0].loss = net.egress[1].loss = 0.1;
    for (uint64_t i = 0; i < 20; ++i) {
        post(i % 3 == 0 ? read(i, 60000 + 3000 * i, 3000, 0) : write(i, 1000 * i, 3000, 3000 * i));
    }
    succeeds(20);
    for (uint64_t i = 0; i < 20; ++i) {
        if (i % 3 != 0) {
            EXPECT_EQ(mb.bytes(3000 * i, 3000), ma.bytes(1000 * i, 3000));
        }
    }
}

// Timeouts: 4.096 us * 2^timeout each, or a floor, retry_cnt repetitions, then RETRY_EXC (IBTA 9.9.2.4.1).
TEST_F(RcRecovery, an_unreachable_peer_is_given_up_in_time) {
    for (const auto& [code, retries] : {std::pair{12, 0}, {12, 3}, {14, 7}, {10, 5}}) {
        QpOptions options;
        options.timeout = static_cast<uint8_t>(code);
        options.retry_cnt = static_cast<uint8_t>(retries);
        connect(options);
        net.filter = [](const Observed& p) { return p.from == 0 ? Verdict::kDrop : Verdict::kPass; };
        const uint64_t start = net.now(), unit = std::max<uint64_t>(4096ull << code, Config{}.min_timeout_ns);
        ASSERT_TRUE(a.post_recv(*qa, 90, {ma.sge(0, 100)}));
        ASSERT_TRUE(a.post_recv(*qa, 91, {ma.sge(0, 100)}));
        post(write(1, 0, 100, 0));
        Send silent = write(2, 0, 100, 0);
        silent.flags = 0;
        post(silent);
        post(read(3, 0, 100, 0));
        ASSERT_TRUE(run());
        const auto wcs = sent();
        EXPECT_THAT(ids(wcs), ElementsAre(1, 2, 3)) << "the unsignaled one too";
        EXPECT_THAT(statuses(wcs), ElementsAre(IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR));
        const auto receives = a.poll(*qa->recv_cq);
        EXPECT_THAT(ids(receives), ElementsAre(90, 91));
        EXPECT_THAT(statuses(receives), ElementsAre(IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR));
        EXPECT_EQ(qa->state, IBV_QPS_ERR);
        const uint64_t took = net.now() - start;
        EXPECT_GE(took, (retries + 1) * unit);
        EXPECT_LE(took, 4 * (retries + 1) * unit + kMillisecond) << "IBTA 9.9.2.1.1";
    }
}

TEST_F(RcRecovery, timeout_zero_waits_for_ever) {
    QpOptions options;
    options.timeout = 0;
    connect(options);
    net.filter = [](const Observed& p) { return p.from == 0 ? Verdict::kDrop : Verdict::kPass; };
    post(write(1, 0, 100, 0));
    net.run_for(100 * kSecond);
    EXPECT_EQ(qa->state, IBV_QPS_RTS);
    EXPECT_TRUE(sent().empty());
    net.filter = nullptr;
    net.run_for(100 * kSecond);
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
}

TEST_F(RcRecovery, rnr_nak_waits_for_the_timer_it_names) {
    for (const auto& [code, microseconds] : {std::pair{1, 10}, {12, 640}, {18, 5120}, {20, 10240}, {0, 655360}}) {
        QpOptions options;
        options.min_rnr_timer = static_cast<uint8_t>(code);
        connect(options);
        net.trace.clear();
        post(send(1, 0, 100));
        std::vector<uint64_t> attempts;
        net.run_for((3 * microseconds + 50) * kMicrosecond);
        for (const Observed& p : net.trace) {
            if (p.op() == Op::kSendOnly && p.headers.bth.dest_qpn == qb->qpn) attempts.push_back(p.time);
        }
        ASSERT_GE(attempts.size(), 3u);
        EXPECT_THAT(syndromes(b), Contains(0x20 | code));
        // Counted from the RNR NAK's arrival; one round trip is 4 us.
        EXPECT_NEAR(static_cast<double>(attempts[1] - attempts[0]), microseconds * 1000.0 + 4000, 100) << code;
        receive(1, 0, 100);
        ASSERT_TRUE(run());
        expect_sent(IBV_WC_SUCCESS);
        EXPECT_EQ(received().size(), 1u);
    }
}

TEST_F(RcRecovery, rnr_retries_are_counted) {
    for (uint8_t retries = 0; retries < 7; ++retries) {
        QpOptions options;
        options.rnr_retry = retries;
        options.min_rnr_timer = 1;
        connect(options);
        net.trace.clear();
        post(send(1, 0, 100));
        post(write(2, 0, 100, 0));
        ASSERT_TRUE(run());
        EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR)) << int{retries};
        EXPECT_EQ(packets(a, Op::kSendOnly), retries + 1u);
    }
}

TEST_F(RcRecovery, rnr_retry_7_is_for_ever) {
    QpOptions options;
    options.min_rnr_timer = 1;
    connect(options);
    post(send(1, 0, 3000));
    net.run_for(50 * kMillisecond);
    EXPECT_GT(packets(a, Op::kSendFirst), 1000u);
    receive(1, 0, 3000);
    succeeds(1);
    EXPECT_EQ(mb.bytes(0, 3000), ma.bytes(0, 3000));
}

TEST_F(RcRecovery, a_lost_rnr_nak_costs_no_transport_retry) {
    QpOptions options;
    options.min_rnr_timer = 1;
    options.retry_cnt = 0;
    connect(options);
    net.filter = [n = 0](const Observed& p) mutable {
        return p.op() == Op::kAck && p.headers.aeth.syndrome >> 5 == 1 && n++ % 3 == 2 ? Verdict::kDrop
                                                                                       : Verdict::kPass;
    };
    post(send(1, 0, 3000));
    net.run_for(20 * kMillisecond);
    receive(1, 0, 3000);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS);
}

TEST_F(RcRecovery, acks_are_coalesced) {
    Config config;
    connect();
    for (uint64_t i = 0; i < 100; ++i) {
        Send s = write(i, 0, 64, 0);
        s.flags = i == 99 ? IBV_SEND_SIGNALED : 0;
        ASSERT_TRUE(a.post(*qa, s));
    }
    succeeds(1);
    EXPECT_LE(packets(b, Op::kAck), 5u) << "one per 32 packets, and the last";
    size_t asked = 0;
    for (const Observed& p : net.trace) asked += p.headers.bth.ack_req;
    EXPECT_LE(asked, 5u);
}

// READs and atomics in flight never exceed the negotiated number, whatever is lost.
TEST_F(RcRecovery, max_rd_atomic_is_kept) {
    for (uint8_t most : {1, 2, 5}) {
        QpOptions options;
        options.max_rd_atomic = most;
        connect(options);
        uint32_t outstanding = 0, highest = 0;
        std::vector<uint32_t> ends;  // last PSN of each request that waits
        net.filter = [&](const Observed& p) {
            if (p.from == 0 && (p.op() == Op::kReadRequest || p.op() == Op::kFetchAdd)) {
                const uint32_t psns = p.op() == Op::kFetchAdd ? 1 : std::max(1u, (p.headers.reth.length + 1023) / 1024);
                ends.push_back(p.headers.bth.psn + psns - 1);
                outstanding = static_cast<uint32_t>(ends.size());
                highest = std::max(highest, outstanding);
            } else if (p.from == 1) {
                std::erase_if(ends, [&](uint32_t end) { return end == p.headers.bth.psn; });
            }
            return Verdict::kPass;
        };
        for (uint64_t i = 0; i < 30; ++i) {
            post(i % 3 == 0 ? fetch_add(i, 0, 0, 1) : read(i, 1000, i % 2 == 0 ? 5000 : 100, 1000));
        }
        succeeds(30);
        EXPECT_EQ(highest, most);
    }
}

TEST_F(RcRecovery, a_large_read_keeps_max_rd_atomic_too) {
    QpOptions options;
    options.mtu = 256;
    options.max_rd_atomic = 1;
    connect(options);
    net.egress[1].bytes_per_s = 1'000'000'000;
    net.egress[1].room_packets = 4;
    post(read(1, 0, 120000, 0));
    succeeds(1);
    EXPECT_EQ(ma.bytes(0, 120000), mb.bytes(0, 120000));
}

// Only the requested amount limits the responder.
TEST_F(RcRecovery, reads_ask_for_no_more_than_the_window) {
    QpOptions options;
    options.mtu = 256;
    options.max_rd_atomic = 16;
    connect(options);
    uint32_t asked = 0, answered = 0, most = 0;
    net.filter = [&](const Observed& p) {
        if (p.op() == Op::kReadRequest) asked += (p.headers.reth.length + 255) / 256;
        answered += p.is_response();
        most = std::max(most, asked - answered);
        return Verdict::kPass;
    };
    for (uint64_t i = 0; i < 4; ++i) post(read(i, 0, 119999, 0));
    succeeds(4);
    EXPECT_EQ(ma.bytes(0, 119999), mb.bytes(0, 119999));
    const uint32_t window = Config{}.window_packets;
    EXPECT_LE(most, window);
    EXPECT_GT(most, window / 2);
}

TEST_F(RcRecovery, a_fence_waits_for_reads_and_atomics) {
    connect();
    set_word(mb, 0, 7);
    const auto before = mb.bytes(1000, 5000);
    post(read(1, 20000, 5000, 1000));
    post(fetch_add(2, 40000, 0, 1));
    Send fenced = write(3, 60000, 5000, 1000);
    fenced.flags |= IBV_SEND_FENCE;
    post(fenced);
    net.pump();
    EXPECT_EQ(packets(a, Op::kWriteFirst), 0u);
    succeeds(3);
    EXPECT_EQ(ma.bytes(20000, 5000), before);
    EXPECT_EQ(mb.bytes(1000, 5000), ma.bytes(60000, 5000));
}

// A READ's answer is late; the READ is requested again and answered twice, and the next READ must not count as one too
// many.
TEST_F(RcRecovery, a_repetition_that_was_overtaken_is_not_an_excess_request) {
    QpOptions options;
    options.max_rd_atomic = 1;
    connect(options);
    net.egress[1].delay_ns = 3 * kMillisecond;  // longer than the tail probe waits
    net.egress[1].bytes_per_s = 3'000'000;
    net.egress[1].room_packets = 1;
    for (uint64_t i = 0; i < 10; ++i) post(read(i, 0, 3000, 0));
    succeeds(10);
}

// Either end notices a neighbour that has moved silently: the requester gets no answers, the responder gets the same
// requests again. This takes far less than the timeout, 67 ms here.
TEST_F(RcRecovery, ASilentPeersNeighbourIsSuspectedBeforeTheTimeout) {
    connect();
    post(write(1, 0, 100, 0));
    net.filter = [](const Observed& p) { return p.from == 1 ? Verdict::kDrop : Verdict::kPass; };
    net.run_for(20 * kMillisecond);
    EXPECT_EQ(a.counter(Counter::kTimeouts), 0u);
    EXPECT_THAT(a.sink.suspected, Contains(b.gid()));
    EXPECT_THAT(b.sink.suspected, Contains(a.gid()));
    net.filter = nullptr;
    succeeds(1);
}

TEST_F(RcRecovery, APeerThatAnswersIsNotSuspected) {
    connect();
    for (uint64_t i = 0; i < 20; ++i) post(write(i, 0, 4000, 0));
    succeeds(20);
    EXPECT_TRUE(a.sink.suspected.empty());
    EXPECT_TRUE(b.sink.suspected.empty());
}

}  // namespace
}  // namespace rove::test
