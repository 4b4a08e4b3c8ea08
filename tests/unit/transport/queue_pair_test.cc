// SPDX-License-Identifier: Apache-2.0
// States, drains and flushes; shared receive queues; completion queue events.
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
    for (int i = 0; i < 70000; ++i) {  // until the index comes round
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
}

TEST_F(Completions, armed_queues_get_one_event) {
    connect();
    qa->send_cq->arm(false);
    for (uint64_t i = 0; i < 10; ++i) post(write(i, 0, 10, 0));
    ASSERT_TRUE(run());
    EXPECT_THAT(a.sink.notified, ElementsAre(qa->send_cq));
}

}  // namespace
}  // namespace rove::test
