// SPDX-License-Identifier: Apache-2.0
// States, drains and flushes; shared receive queues; UC and UD; completion queue events; congestion control.
#include "transport/pair.h"

namespace rove::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct States : Pair {};

TEST_F(States, error_flushes_both_queues_in_order) {
    connect();
    net.filter = [](const Observed&) { return Verdict::kDrop; };
    for (uint64_t i = 0; i < 5; ++i) {
        Send s = write(i, 0, 100, 0);
        if (i % 2 == 0) s.flags = 0;
        post(s);
        ASSERT_TRUE(a.post_recv(*qa, 100 + i, {ma.sge(0, 10)}));
    }
    net.pump();
    a.engine.set_state(*qa, IBV_QPS_ERR, net.now());
    const auto sends = sent(), receives = a.poll(*qa->recv_cq);
    EXPECT_THAT(ids(sends), ElementsAre(0, 1, 2, 3, 4));
    EXPECT_THAT(ids(receives), ElementsAre(100, 101, 102, 103, 104));
    EXPECT_THAT(statuses(sends), ::testing::Each(IBV_WC_WR_FLUSH_ERR));
    EXPECT_THAT(statuses(receives), ::testing::Each(IBV_WC_WR_FLUSH_ERR));
    post(write(5, 0, 100, 0));
    ASSERT_TRUE(a.post_recv(*qa, 105, {ma.sge(0, 10)}));
    EXPECT_THAT(ids(sent()), ElementsAre(5)) << "posted in error: flushed at once";
    EXPECT_THAT(ids(a.poll(*qa->recv_cq)), ElementsAre(105));
    EXPECT_TRUE(run());
}

TEST_F(States, nothing_is_taken_in_reset_init_and_error) {
    connect();
    receive(1, 0, 100);
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kRc, Op::kSendOnly);
    h.bth.dest_qpn = qb->qpn;
    h.bth.psn = 100;
    for (ibv_qp_state state : {IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_INIT}) {
        b.engine.set_state(*qb, state, net.now());
        received();
        const uint64_t before = b.counter(Counter::kDropQpState);
        net.inject(1, a.path_to(b), h, {1, 2, 3, 4});
        EXPECT_EQ(b.counter(Counter::kDropQpState), before + 1);
        EXPECT_THAT(received(), IsEmpty());
    }
}

TEST_F(States, reset_and_use_again) {
    QpOptions options;
    connect(options);
    net.filter = [](const Observed& p) { return p.op() == Op::kAck ? Verdict::kDrop : Verdict::kPass; };
    for (uint64_t i = 0; i < 50; ++i) {
        receive(i, 0, 1000);
        post(i % 3 == 0 ? read(i, 0, 3000, 0) : send(i, 0, 1000));
    }
    net.run_for(3 * kMillisecond);
    net.filter = nullptr;
    a.engine.set_state(*qa, IBV_QPS_RESET, net.now());
    b.engine.set_state(*qb, IBV_QPS_RESET, net.now());
    EXPECT_TRUE(run());
    EXPECT_THAT(sent(), IsEmpty()) << "its completions are gone";
    EXPECT_THAT(received(), IsEmpty());
    EXPECT_EQ(qa->sq.room(), 128u);
    options.psn = 0x777;
    a.bring_up(*qa, options, a.path_to(b), qb->qpn, options.psn, net.now());
    b.bring_up(*qb, options, b.path_to(a), qa->qpn, options.psn, net.now());
    receive(7, 0, 5000);
    post(send(8, 0, 5000));
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(sent()), ElementsAre(8));
    EXPECT_THAT(ids(received()), ElementsAre(7));
}

TEST_F(States, sqd_finishes_what_was_begun_and_says_so) {
    QpOptions options;
    options.max_rd_atomic = 1;
    connect(options);
    net.egress[0].bytes_per_s = 100'000'000;
    net.egress[0].room_packets = 2;
    post(write(1, 0, 20000, 0));
    post(write(2, 0, 20000, 0));
    post(write(3, 0, 20000, 0));
    net.run_for(50 * kMicrosecond);
    a.engine.set_state(*qa, IBV_QPS_SQD, net.now());
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(sent()), ElementsAre(1));
    EXPECT_EQ(a.sink.count(IBV_EVENT_SQ_DRAINED, qa), 1);
    post(write(4, 0, 100, 0));
    ASSERT_TRUE(run());
    EXPECT_THAT(sent(), IsEmpty());
    a.engine.set_state(*qa, IBV_QPS_RTS, net.now());
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(sent()), ElementsAre(2, 3, 4));
}

TEST_F(States, sqd_of_an_idle_queue_drains_at_once_and_still_receives) {
    connect();
    b.engine.set_state(*qb, IBV_QPS_SQD, net.now());
    EXPECT_EQ(b.sink.count(IBV_EVENT_SQ_DRAINED, qb), 1);
    receive(1, 0, 100);
    post(send(2, 0, 100));
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(sent()), ElementsAre(2));
}

TEST_F(States, rtr_receives_and_does_not_send) {
    QpOptions options;
    QueuePair& left = a.create(options);
    QueuePair& right = b.create(options);
    qa = &left;
    qb = &right;
    a.bring_up(left, options, a.path_to(b), right.qpn, 100, net.now());
    right.path = b.path_to(a);
    right.remote_qpn = left.qpn;
    right.access = kAllAccess;
    right.max_dest_rd_atomic = 4;
    b.engine.set_state(right, IBV_QPS_INIT, net.now());
    transport::Engine<TestSink>::start_receiving(right, 100);
    b.engine.set_state(right, IBV_QPS_RTR, net.now());
    post(write(1, 0, 3000, 0));
    post(read(2, 10000, 3000, 0));
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(sent()), ElementsAre(1, 2));
}

TEST_F(States, a_destroyed_queue_pairs_late_packets_find_nobody) {
    connect();
    net.filter = [](const Observed& p) { return p.from == 0 ? Verdict::kHold : Verdict::kPass; };
    receive(1, 0, 100);
    post(send(1, 0, 100));
    net.pump();
    const uint32_t old = qb->qpn;
    b.destroy(*qb);
    for (int i = 0; i < 70000; ++i) {       // until the index comes round
        QueuePair spare;
        ASSERT_TRUE(b.qps.insert(spare));
        const bool again = (spare.qpn & 0xFFFF) == (old & 0xFFFF);
        if (again) {
            net.release();
            net.run_for(10 * kMicrosecond);
            EXPECT_EQ(b.counter(Counter::kDropUnknownQp), 1u);
        }
        b.qps.remove(spare);
        if (again) return;
    }
    FAIL();
}

struct SharedReceives : Pair {};

TEST_F(SharedReceives, serve_several_queue_pairs_and_tell_of_the_limit) {
    SharedRecvQueue& srq = b.shared_recv_queue(16, 2);
    QpOptions plain, shared;
    shared.srq = &srq;
    Connection one = test::connect(net, a, b, plain, shared);
    Connection two = test::connect(net, a, b, plain, shared);
    for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(b.post_recv(srq.ring, i, {mb.sge(1000 * i, 500), mb.sge(1000 * i + 500, 500)}));
    srq.limit = 5;
    for (uint64_t i = 0; i < 6; ++i) {
        ASSERT_TRUE(a.post(i % 2 == 0 ? one.a : two.a, send(i, 1000 * i, 700)));
        ASSERT_TRUE(run());
        EXPECT_EQ(b.sink.count(IBV_EVENT_SRQ_LIMIT_REACHED, &srq), i >= 3 ? 1 : 0) << i;
        EXPECT_EQ(mb.bytes(1000 * i, 700), ma.bytes(1000 * i, 700));
    }
    EXPECT_THAT(ids(b.poll(*one.b.recv_cq)), ElementsAre(0, 2, 4));
    EXPECT_THAT(ids(b.poll(*two.b.recv_cq)), ElementsAre(1, 3, 5));
    b.engine.set_state(one.b, IBV_QPS_ERR, net.now());
    EXPECT_EQ(b.sink.count(IBV_EVENT_QP_LAST_WQE_REACHED, &one.b), 1);
    EXPECT_THAT(b.poll(*one.b.recv_cq), IsEmpty()) << "the SRQ's receives stay";
    ASSERT_TRUE(a.post(two.a, send(9, 0, 700)));
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(b.poll(*two.b.recv_cq)), ElementsAre(6));
}

TEST_F(SharedReceives, interleaved_messages_do_not_mix) {
    SharedRecvQueue& srq = b.shared_recv_queue(16, 2);
    QpOptions plain, shared;
    shared.srq = &srq;
    Connection one = test::connect(net, a, b, plain, shared);
    Connection two = test::connect(net, a, b, plain, shared);
    for (uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(b.post_recv(srq.ring, i, {mb.sge(40000 * i, 40000)}));
    ASSERT_TRUE(a.post(one.a, send(1, 0, 40000)));
    ASSERT_TRUE(a.post(two.a, send(2, 50000, 40000)));
    ASSERT_TRUE(run());
    const auto first = b.poll(*one.b.recv_cq), second = b.poll(*two.b.recv_cq);
    ASSERT_EQ(first.size() + second.size(), 2u);
    EXPECT_EQ(mb.bytes(40000 * first[0].wr_id, 40000), ma.bytes(0, 40000));
    EXPECT_EQ(mb.bytes(40000 * second[0].wr_id, 40000), ma.bytes(50000, 40000));
}

struct Completions : Pair {};

TEST_F(Completions, an_overrun_is_told) {
    QpOptions options;
    options.send_cq = &a.completion_queue(4);
    connect(options, {});
    for (uint64_t i = 0; i < 10; ++i) post(write(i, 0, 10, 0));
    ASSERT_TRUE(run());
    EXPECT_GE(a.sink.count(IBV_EVENT_CQ_ERR, options.send_cq), 1);
    EXPECT_GT(a.counter(Counter::kCqOverruns), 0u);
    EXPECT_THAT(ids(sent()), ElementsAre(0, 1, 2, 3));
}

TEST_F(Completions, armed_queues_get_one_event) {
    connect();
    qa->send_cq->arm(false);
    for (uint64_t i = 0; i < 10; ++i) post(write(i, 0, 10, 0));
    ASSERT_TRUE(run());
    EXPECT_THAT(a.sink.notified, ElementsAre(qa->send_cq));
}

struct Uc : Pair {
    void SetUp() override {
        QpOptions options;
        options.type = IBV_QPT_UC;
        connect(options);
    }
};

TEST_F(Uc, sends_and_writes) {
    receive(1, 0, 5000);
    receive(2, 0, 0);
    post(send(1, 100, 5000));
    post(write(2, 0, 5000, 10000));
    post(write_imm(3, 5000, 2000, 20000, 99));
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_SUCCESS, IBV_WC_SUCCESS, IBV_WC_SUCCESS));
    EXPECT_THAT(ids(received()), ElementsAre(1, 2));
    EXPECT_EQ(mb.bytes(0, 5000), ma.bytes(100, 5000));
    EXPECT_EQ(mb.bytes(10000, 5000), ma.bytes(0, 5000));
    EXPECT_EQ(mb.bytes(20000, 2000), ma.bytes(5000, 2000));
    EXPECT_EQ(packets(b, Op::kAck), 0u);
}

TEST_F(Uc, a_message_with_a_hole_is_dropped_and_the_next_is_fine) {
    for (Op hole : {Op::kSendFirst, Op::kSendMiddle, Op::kSendLast}) {
        lose(0, [hole](const Observed& p) { return p.op() == hole; });
        receive(1, 0, 5000);
        post(send(1, 0, 4000));
        post(send(2, 7000, 3000));
        ASSERT_TRUE(run());
        EXPECT_EQ(sent().size(), 2u) << "the sender does not know";
        const auto got = received();
        ASSERT_EQ(got.size(), 1u);
        EXPECT_EQ(got[0].byte_len, 3000u);
        EXPECT_EQ(mb.bytes(0, 3000), ma.bytes(7000, 3000));
    }
}

TEST_F(Uc, without_a_receive_the_message_is_dropped) {
    post(send(1, 0, 3000));
    ASSERT_TRUE(run());
    receive(1, 0, 3000);
    post(send(2, 5000, 3000));
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(received()), ElementsAre(1));
    EXPECT_EQ(mb.bytes(0, 3000), ma.bytes(5000, 3000));
    EXPECT_GT(b.counter(Counter::kDropNoReceive), 0u);
    EXPECT_EQ(qb->state, IBV_QPS_RTS);
}

TEST_F(Uc, a_local_error_stops_the_send_queue_only) {
    Send bad = send(1, 0, 100);
    bad.sges[0].lkey ^= 0x100;
    post(bad);
    post(send(2, 0, 100));
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR));
    EXPECT_EQ(qa->state, IBV_QPS_SQE);
}

struct Ud : Pair {
    Path path;
    void SetUp() override {
        QpOptions options;
        options.type = IBV_QPT_UD;
        connect(options);
        path = a.path_to(b);
    }
    Send datagram(uint64_t wr_id, size_t offset, size_t bytes) {
        Send s = send(wr_id, offset, bytes);
        s.path = &path;
        s.remote_qpn = qb->qpn;
        s.remote_qkey = 0x1111;
        return s;
    }
};

TEST_F(Ud, forty_bytes_stand_before_the_payload) {
    for (bool ipv6 : {false, true}) {
        path = a.path_to(b, ipv6);
        receive(1, 0, 2000);
        Send s = datagram(1, 0, 1000);
        s.opcode = IBV_WR_SEND_WITH_IMM;
        s.immediate = 0xFEED;
        post(s);
        ASSERT_TRUE(run());
        expect_sent(IBV_WC_SUCCESS);
        const auto got = received();
        ASSERT_EQ(got.size(), 1u);
        EXPECT_EQ(got[0].byte_len, 1040u);
        EXPECT_EQ(got[0].src_qp, qa->qpn);
        EXPECT_EQ(got[0].wc_flags, static_cast<unsigned>(IBV_WC_GRH | IBV_WC_WITH_IMM));
        EXPECT_EQ(ntohl(got[0].imm_data), 0xFEEDu);
        EXPECT_EQ(mb.bytes(40, 1000), ma.bytes(0, 1000));
        const wire::Gid source = a.gid(ipv6), target = b.gid(ipv6);
        if (ipv6) {
            EXPECT_EQ(mb[0] >> 4, 6);
            EXPECT_EQ(mb.bytes(8, 16), std::vector<uint8_t>(source.begin(), source.end()));
            EXPECT_EQ(mb.bytes(24, 16), std::vector<uint8_t>(target.begin(), target.end()));
        } else {
            EXPECT_EQ(mb[20], 0x45);
            EXPECT_EQ(mb.bytes(32, 4), std::vector<uint8_t>(source.begin() + 12, source.end()));
            EXPECT_EQ(mb.bytes(36, 4), std::vector<uint8_t>(target.begin() + 12, target.end()));
        }
    }
}

TEST_F(Ud, what_does_not_fit_is_dropped) {
    receive(1, 0, 139);
    post(datagram(1, 0, 100));
    ASSERT_TRUE(run());
    EXPECT_THAT(received(), IsEmpty());
    EXPECT_EQ(b.counter(Counter::kDropLength), 1u);
    post(datagram(2, 0, 99));
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(received()), ElementsAre(1)) << "the receive was not used up";
    post(datagram(3, 0, 10));
    ASSERT_TRUE(run());
    EXPECT_EQ(b.counter(Counter::kDropNoReceive), 1u);
}

TEST_F(Ud, the_key_must_match) {
    receive(1, 0, 1000);
    Send s = datagram(1, 0, 100);
    s.remote_qkey = 0x2222;
    post(s);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS);
    EXPECT_THAT(received(), IsEmpty());
    EXPECT_EQ(b.counter(Counter::kDropQkey), 1u);
}

TEST_F(Ud, multicast_reaches_those_that_joined) {
    QpOptions options;
    options.type = IBV_QPT_UD;
    Connection other = test::connect(net, a, b, options, options);
    const wire::Gid group{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 1, 1, 1};
    path.flow.dst = group;
    path.flow.dst_mac = {0x01, 0x00, 0x5E, 1, 1, 1};
    path.headers = wire::make_template(path.flow);
    Send s = datagram(1, 0, 100);
    s.remote_qpn = wire::kMulticastQpn;
    receive(1, 0, 1000);
    ASSERT_TRUE(b.post_recv(other.b, 2, {mb.sge(2000, 1000)}));
    post(s);
    ASSERT_TRUE(run());
    EXPECT_EQ(b.counter(Counter::kDropMulticast), 1u);
    b.qps.attach(group, *qb);
    b.qps.attach(group, other.b);
    post(s);
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(received()), ElementsAre(1));
    EXPECT_THAT(ids(b.poll(*other.b.recv_cq)), ElementsAre(2));
    EXPECT_EQ(mb.bytes(40, 100), ma.bytes(0, 100));
    EXPECT_EQ(mb.bytes(2040, 100), ma.bytes(0, 100));
}

struct Congestion : Pair {
    size_t cnps(const Host& from) const {
        size_t n = 0;
        for (const Observed& p : net.trace) n += p.from == from.index() && p.is_cnp();
        return n;
    }
    // Bytes of payload that host a sent in [begin, end).
    uint64_t sent_between(uint64_t begin, uint64_t end) const {
        uint64_t bytes = 0;
        for (const Observed& p : net.trace) {
            if (p.from == 0 && p.time >= begin && p.time < end) bytes += p.payload_bytes;
        }
        return bytes;
    }
};

TEST_F(Congestion, marks_are_answered_at_most_once_per_interval) {
    connect();
    net.egress[0].bytes_per_s = 1'000'000'000;
    net.egress[0].room_packets = 8;
    net.filter = [](const Observed& p) { return p.from == 0 ? Verdict::kMarkCe : Verdict::kPass; };
    for (uint64_t i = 0; i < 10; ++i) post(write(i, 0, 100000, 0));
    ASSERT_TRUE(run());
    EXPECT_EQ(sent().size(), 10u);
    std::vector<uint64_t> times;
    for (const Observed& p : net.trace) {
        if (p.is_cnp()) {
            times.push_back(p.time);
            EXPECT_EQ(p.from, 1u);
            EXPECT_TRUE(p.headers.bth.becn);
            EXPECT_EQ(p.headers.bth.dest_qpn, qa->qpn);
        }
    }
    ASSERT_GT(times.size(), 3u);
    for (size_t i = 1; i < times.size(); ++i) EXPECT_GE(times[i] - times[i - 1], 50 * kMicrosecond);
    EXPECT_EQ(a.counter(Counter::kRxCnp), times.size());
}

TEST_F(Congestion, a_cnp_cuts_the_rate_and_the_wire_shows_it) {
    connect();
    for (uint64_t i = 0; i < 100; ++i) post(write(i, 0, 100000, 0));
    wire::Headers cnp;
    cnp.bth.opcode = wire::kOpcodeCnp;
    cnp.bth.dest_qpn = qa->qpn;
    for (int i = 0; i < 10; ++i) net.inject(0, b.path_to(a), cnp, {});
    EXPECT_TRUE(qa->congestion.limited());
    const uint64_t rate = qa->congestion.rate_bytes_per_s();
    EXPECT_LT(rate, 200'000'000u) << "ten cuts by about half each, from 12.5 GB/s";
    const uint64_t start = net.now();
    net.run_for(50 * kMicrosecond);
    EXPECT_LE(sent_between(start, start + 50 * kMicrosecond), rate * 50 / 1'000'000 * 12 / 10 + 3 * 1100);
}

TEST_F(Congestion, the_rate_recovers) {
    connect();
    wire::Headers cnp;
    cnp.bth.opcode = wire::kOpcodeCnp;
    cnp.bth.dest_qpn = qa->qpn;
    net.inject(0, b.path_to(a), cnp, {});
    net.inject(0, b.path_to(a), cnp, {});
    uint64_t last = qa->congestion.rate_bytes_per_s();
    for (int step = 0; step < 5; ++step) {
        for (uint64_t i = 0; i < 10; ++i) post(write(i, 0, 100000, 0));
        const uint64_t start = net.now();
        ASSERT_TRUE(run());
        EXPECT_EQ(sent().size(), 10u);
        EXPECT_GE(qa->congestion.rate_bytes_per_s(), last);
        last = qa->congestion.rate_bytes_per_s();
        (void)start;
    }
    EXPECT_GT(last, 6'000'000'000u);
}

TEST_F(Congestion, read_data_is_paced_too) {
    connect();
    wire::Headers cnp;
    cnp.bth.opcode = wire::kOpcodeCnp;
    cnp.bth.dest_qpn = qb->qpn;
    for (int i = 0; i < 10; ++i) net.inject(1, a.path_to(b), cnp, {});
    const uint64_t rate = qb->congestion.rate_bytes_per_s();
    post(read(1, 0, 100000, 0));
    const uint64_t start = net.now();
    net.run_for(50 * kMicrosecond);
    uint64_t bytes = 0;
    for (const Observed& p : net.trace) bytes += p.from == 1 && p.time >= start ? p.payload_bytes : 0;
    EXPECT_LE(bytes, rate * 50 / 1'000'000 * 12 / 10 + 3 * 1100);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
}

}  // namespace
}  // namespace rove::test
