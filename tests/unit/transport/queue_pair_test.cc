// SPDX-License-Identifier: Apache-2.0
// States, drains and flushes; shared receive queues; completion queue events.
#include <map>
#include <numeric>

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
    net.run_for(50 * kMicrosecond);
    EXPECT_EQ(a.sink.count(IBV_EVENT_SQ_DRAINED, qa), 0) << "the first request is still on its way";
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

// The last posted, unsignaled request asked for no ACK, since others were posted behind it.
TEST_F(States, sqd_asks_for_the_acknowledgement_that_it_waits_for) {
    Config config;
    config.ack_interval_packets = 64;
    Network quiet(1, 2, config);
    Host &x = quiet.host(0), &y = quiet.host(1);
    Buffer &from = x.buffer(65536), &to = y.buffer(65536);
    Connection made = test::connect(quiet, x, y, {}, {});
    quiet.egress[0].bytes_per_s = 100'000'000;
    quiet.egress[0].room_packets = 1;
    for (uint64_t i = 0; i < 8; ++i) {
        Send s{.wr_id = i, .opcode = IBV_WR_RDMA_WRITE, .sges = {from.sge(0, 1000)}, .flags = 0};
        s.remote_addr = to.address(0);
        s.rkey = to.key();
        ASSERT_TRUE(x.post(made.a, s));
    }
    quiet.pump();
    quiet.run_for(25 * kMicrosecond);
    ASSERT_LT(made.a.position.begun_wqe, 8u);
    ASSERT_GT(made.a.position.begun_wqe, 0u);
    const uint64_t begun = quiet.now();
    x.engine.set_state(made.a, IBV_QPS_SQD, quiet.now());
    ASSERT_TRUE(quiet.run(quiet.now() + kSecond, [&] { return x.sink.count(IBV_EVENT_SQ_DRAINED, &made.a) == 1; }));
    EXPECT_EQ(x.sink.count(IBV_EVENT_SQ_DRAINED, &made.a), 1);
    EXPECT_LT(quiet.now() - begun, 200 * kMicrosecond) << "not by a tail probe";
}

// A doorbell may be rung before a reset and consumed after it, and the priority may change while the QP waits for its
// turn.
TEST_F(States, what_is_left_of_a_queue_pair_that_is_reset_is_in_no_list) {
    connect();
    a.engine.set_state(*qa, IBV_QPS_RESET, net.now());
    a.engine.doorbell(*qa);
    EXPECT_FALSE(a.engine.has_active());
    a.sink.room = [] { return false; };
    connect();
    post(write(1, 0, 100, 0));
    ASSERT_TRUE(a.engine.has_active());
    a.engine.set_priority(*qa, 2);
    EXPECT_TRUE(a.engine.has_active());
    a.engine.set_priority(*qa, 0);
    a.destroy(*qa);
    EXPECT_FALSE(a.engine.has_active());
    a.sink.room = [] { return true; };
}

TEST_F(States, rtr_receives_and_says_once_that_the_connection_is_there) {
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
    b.engine.start_receiving(right, 100);
    b.engine.set_state(right, IBV_QPS_RTR, net.now());
    EXPECT_EQ(b.sink.count(IBV_EVENT_COMM_EST, qb), 0);
    post(write(1, 0, 3000, 0));
    post(read(2, 10000, 3000, 0));
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(sent()), ElementsAre(1, 2));
    EXPECT_EQ(b.sink.count(IBV_EVENT_COMM_EST, qb), 1);
    EXPECT_EQ(a.sink.count(IBV_EVENT_COMM_EST, qa), 0);
}

TEST_F(States, a_destroyed_queue_pairs_late_packets_find_nobody) {
    connect();
    net.filter = [](const Observed& p) { return p.from == 0 ? Verdict::kHold : Verdict::kPass; };
    receive(1, 0, 100);
    post(send(1, 0, 100));
    net.pump();
    const uint32_t old = qb->qpn;
    b.destroy(*qb);
    for (int i = 0; i < 70000; ++i) {  // until the index returns
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
    for (uint64_t i = 0; i < 8; ++i)
        ASSERT_TRUE(b.post_recv(srq.ring, i, {mb.sge(1000 * i, 500), mb.sge(1000 * i + 500, 500)}));
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
    EXPECT_EQ(a.sink.count(IBV_EVENT_CQ_ERR, options.send_cq), 1);
    EXPECT_GT(a.counter(Counter::kCqOverruns), 1u);
    std::vector<uint64_t> first(options.send_cq->capacity());
    std::iota(first.begin(), first.end(), 0);
    EXPECT_EQ(ids(sent()), first);
    // The outcome of its requests can no longer be reported (IBTA 11.6.3.2, local work queue catastrophic error).
    EXPECT_EQ(qa->state, IBV_QPS_ERR);
    EXPECT_EQ(a.sink.count(IBV_EVENT_QP_FATAL, qa), 1);
}

// QPs whose completions are reported elsewhere continue; those that share the queue do not.
TEST_F(Completions, an_overrun_ends_the_queue_pairs_that_share_the_queue) {
    QpOptions options;
    options.send_cq = &a.completion_queue(4);
    QpOptions receives;
    receives.recv_cq = options.send_cq;
    connect(options, {});
    Connection sharing = test::connect(net, a, b, receives, {}), other = test::connect(net, a, b, {}, {});
    for (uint64_t i = 0; i < 10; ++i) post(write(i, 0, 10, 0));
    ASSERT_TRUE(run());
    EXPECT_EQ(qa->state, IBV_QPS_ERR);
    EXPECT_EQ(sharing.a.state, IBV_QPS_ERR);
    EXPECT_EQ(other.a.state, IBV_QPS_RTS);
}

TEST_F(Completions, armed_queues_get_one_event) {
    connect();
    qa->send_cq->arm(false);
    for (uint64_t i = 0; i < 10; ++i) post(write(i, 0, 10, 0));
    ASSERT_TRUE(run());
    EXPECT_THAT(a.sink.notified, ElementsAre(qa->send_cq));
}

struct Priorities : Pair {};

// A class that fills the port leaves lower ones their share, an eighth of the packets, so that they answer long before
// their peers time out.
TEST_F(Priorities, lower_classes_keep_a_share_of_a_port_that_a_higher_one_fills) {
    connect();
    Connection medium = test::connect(net, a, b, {}, {}), low = test::connect(net, a, b, {}, {});
    a.engine.set_priority(*qa, 0);
    a.engine.set_priority(medium.a, 1);
    a.engine.set_priority(low.a, 2);
    net.egress[0].bytes_per_s = 100'000'000;
    net.egress[0].room_packets = 32;
    net.egress[0].refuse = 0;
    for (uint64_t i = 0; i < 100; ++i) {
        for (QueuePair* qp : {qa, &medium.a, &low.a}) ASSERT_TRUE(a.post(*qp, write(i, 0, 100'000, 0)));
    }
    net.trace.clear();
    net.run_for(20 * kMillisecond);
    std::map<uint32_t, size_t> packets;
    for (const Observed& p : net.trace)
        if (p.from == 0) ++packets[p.headers.bth.dest_qpn];
    const double all = static_cast<double>(packets[qb->qpn] + packets[medium.b.qpn] + packets[low.b.qpn]);
    EXPECT_NEAR(packets[medium.b.qpn] / all, 0.125, 0.04);
    EXPECT_NEAR(packets[low.b.qpn] / all, 0.125, 0.04);
    EXPECT_GT(packets[qb->qpn] / all, 0.7);
}

TEST_F(Priorities, answers_of_a_low_class_leave_beside_a_high_one_that_fills_the_port) {
    constexpr int kHigh = 8;
    std::vector<Connection> high;
    for (int i = 0; i < kHigh; ++i) high.push_back(test::connect(net, a, b, {.timeout = 18}, {.timeout = 18}));
    connect({.timeout = 10, .retry_cnt = 1}, {.timeout = 10, .retry_cnt = 1});
    for (Connection& c : high) a.engine.set_priority(c.a, 0);
    a.engine.set_priority(*qa, 2);
    net.egress[0].bytes_per_s = 100'000'000;
    net.egress[0].room_packets = 64;
    const uint64_t until = net.now() + 300 * kMillisecond;
    Send back{.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sges = {mb.sge(0, 64)}};
    back.remote_addr = ma.address(100'000);
    back.rkey = ma.key();
    uint64_t done = 0;
    ASSERT_TRUE(b.post(*qb, back));
    while (net.now() < until && qb->state == IBV_QPS_RTS) {
        for (Connection& c : high)
            while (a.post(c.a, write(7, 0, 60'000, 0))) {
            }
        net.run_for(50 * kMicrosecond);
        for (Connection& c : high) a.poll(*c.a.send_cq);
        for (const ibv_wc& wc : b.poll(*qb->send_cq)) {
            ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << "after " << done;
            ++done;
            ASSERT_TRUE(b.post(*qb, back));
        }
    }
    EXPECT_EQ(qb->state, IBV_QPS_RTS);
    EXPECT_GT(done, 50u);
}

}  // namespace
}  // namespace rove::test
