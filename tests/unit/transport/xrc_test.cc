// SPDX-License-Identifier: Apache-2.0
// XRC (IBTA annex A14): the responder acts as the SRQ that each request names.
#include <tuple>

#include "support/alone.h"
#include "transport/pair.h"

namespace rove::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// An INI QP of host a and a TGT QP of host b; two SRQs on b, of two protection domains, and one of another XRC domain.
struct Xrc : Pair {
    struct Target {
        SharedRecvQueue* srq;
        Buffer* memory;
        const void* pd;
    };
    const int domain_ = 0, other_domain_ = 0, pd1_ = 0, pd2_ = 0;
    Target one = make(&pd1_, &domain_), two = make(&pd2_, &domain_), foreign = make(&pd1_, &other_domain_);

    Target make(const void* pd, const void* domain) {
        Target made{&b.shared_recv_queue(64, 4, pd), &b.buffer(kBufferBytes, kAllAccess, pd), pd};
        made.srq->xrcd = domain;
        made.srq->cq = &b.completion_queue(256);
        EXPECT_TRUE(b.qps.insert_xrc_srq(*made.srq));
        return made;
    }
    void connect(QpOptions options = {}) {
        options.type = IBV_QPT_XRC_SEND;
        qa = &a.create(options);
        options.type = IBV_QPT_XRC_RECV;
        qb = &b.create(options);
        qa->recv_cq = nullptr;
        qb->pd = qb->recv_pd = nullptr;
        qb->send_cq = qb->recv_cq = nullptr;
        qb->xrcd = &domain_;
        qb->slot.sges = std::make_unique<ibv_sge[]>(transport::kMaxSge);
        a.bring_up(*qa, options, a.path_to(b), qb->qpn, options.psn, net.now());
        b.bring_up(*qb, options, b.path_to(a), qa->qpn, options.psn, net.now());
    }
    void receive(const Target& target, uint64_t wr_id, size_t offset, size_t bytes) {
        ASSERT_TRUE(b.post_recv(target.srq->ring, wr_id, {target.memory->sge(offset, bytes)}));
    }
    Send send(const Target& target, uint64_t wr_id, size_t offset, size_t bytes) const {
        Send s = Pair::send(wr_id, offset, bytes);
        s.xrc_srqn = target.srq->number;
        return s;
    }
    Send access(const Target& target, uint64_t wr_id, ibv_wr_opcode opcode, size_t local, size_t bytes,
                size_t remote) const {
        Send s = send(target, wr_id, local, bytes);
        s.opcode = opcode;
        s.remote_addr = target.memory->address(remote);
        s.rkey = target.memory->key();
        return s;
    }
    std::vector<ibv_wc> received(const Target& target) { return b.poll(*target.srq->cq); }
    // Expects the request to fail like one with a wrong key, and the TGT QP with it.
    void is_refused() {
        ASSERT_TRUE(run());
        EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_REM_ACCESS_ERR));
        EXPECT_EQ(qb->state, IBV_QPS_ERR);
        EXPECT_EQ(b.sink.count(IBV_EVENT_QP_ACCESS_ERR, qb), 1);
        EXPECT_EQ(b.sink.count(IBV_EVENT_QP_LAST_WQE_REACHED, qb), 0);
    }
};

TEST_F(Xrc, receives_come_from_the_srq_that_the_packet_names) {
    connect();
    for (uint64_t i = 0; i < 3; ++i) {
        receive(one, 10 + i, 4000 * i, 4000);
        receive(two, 20 + i, 4000 * i, 4000);
    }
    for (uint64_t i = 0; i < 3; ++i) {
        post(send(two, i, 100 * i, 3500));
        post(send(one, i, 100 * i + 50, 10));
    }
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(0, 0, 0, 0, 0, 0));
    for (const auto& [target, first, from, bytes] :
         {std::tuple{&one, 10u, 50u, 10u}, std::tuple{&two, 20u, 0u, 3500u}}) {
        const auto wcs = received(*target);
        ASSERT_THAT(wcs, SizeIs(3));
        for (uint32_t i = 0; i < 3; ++i) {
            EXPECT_EQ(wcs[i].status, IBV_WC_SUCCESS);
            EXPECT_EQ(wcs[i].wr_id, first + i);
            EXPECT_EQ(wcs[i].byte_len, bytes);
            EXPECT_EQ(wcs[i].qp_num, qb->qpn);
            EXPECT_EQ(wcs[i].src_qp, qa->qpn);
            EXPECT_EQ(target->memory->bytes(4000 * i, bytes), ma.bytes(from + 100 * i, bytes));
        }
    }
    for (const Observed& p : net.trace) {
        EXPECT_EQ(wire::service_of(p.headers.bth.opcode), wire::Service::kXrc);
        if (p.from != 0) continue;
        EXPECT_TRUE(p.headers.xrc_srqn == one.srq->number || p.headers.xrc_srqn == two.srq->number);
    }
}

// Every kind of request, with loss both ways, to two SRQs in turn: each finds its own protection domain.
TEST_F(Xrc, all_requests_with_loss) {
    QpOptions options;
    options.depth = 512;
    connect(options);
    net.egress[0].loss = net.egress[1].loss = 0.05;
    net.egress[0].reorder = net.egress[1].reorder = 0.02;
    one.memory->fill(3);
    two.memory->fill(4);
    constexpr size_t kRounds = 20, kAtomics = 100'000, kWrites = 50'000;
    uint64_t words[2] = {word(*one.memory, kAtomics), word(*two.memory, kAtomics)};
    for (uint64_t i = 0; i < kRounds; ++i) {
        const Target& target = i % 2 == 0 ? one : two;
        receive(target, i, 4000 * (i / 2), 4000);
        post(send(target, i, 100 * i, 3000 + i));
        post(access(target, i, IBV_WR_RDMA_WRITE, 100 * i, 2500, kWrites + 2500 * (i / 2)));
        post(access(target, i, IBV_WR_RDMA_READ, 60'000 + 3000 * i, 3000, kWrites));
        Send add = access(target, i, IBV_WR_ATOMIC_FETCH_AND_ADD, 125'000 + 8 * i, 8, kAtomics);
        add.compare_add = 5;
        post(add);
    }
    ASSERT_TRUE(run());
    const auto wcs = sent();
    ASSERT_THAT(wcs, SizeIs(4 * kRounds));
    EXPECT_THAT(statuses(wcs), Each(IBV_WC_SUCCESS));
    EXPECT_THAT(received(one), SizeIs(kRounds / 2));
    EXPECT_THAT(received(two), SizeIs(kRounds / 2));
    for (uint64_t i = 0; i < kRounds; ++i) {
        const Target& target = i % 2 == 0 ? one : two;
        EXPECT_EQ(target.memory->bytes(4000 * (i / 2), 3000 + i), ma.bytes(100 * i, 3000 + i)) << i;
        EXPECT_EQ(target.memory->bytes(kWrites + 2500 * (i / 2), 2500), ma.bytes(100 * i, 2500)) << i;
        EXPECT_EQ(word(ma, 125'000 + 8 * i), words[i % 2]) << i;
        words[i % 2] += 5;
    }
    EXPECT_EQ(word(*one.memory, kAtomics), words[0]);
    EXPECT_EQ(word(*two.memory, kAtomics), words[1]);
    EXPECT_GT(a.counter(Counter::kRetransmittedPackets), 0u);
}

TEST_F(Xrc, an_empty_srq_is_not_ready) {
    connect();
    post(send(one, 1, 0, 2000));
    net.at(net.now() + 5 * kMillisecond, [&] { receive(one, 7, 0, 4000); });
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS);
    EXPECT_GT(b.counter(Counter::kTxNakRnr), 0u);
    EXPECT_THAT(ids(received(one)), ElementsAre(7));
    EXPECT_EQ(one.memory->bytes(0, 2000), ma.bytes(0, 2000));
}

TEST_F(Xrc, a_number_that_no_srq_has) {
    connect();
    receive(one, 1, 0, 4000);
    Send s = send(one, 1, 0, 100);
    s.xrc_srqn = one.srq->number ^ 0x010000;
    post(s);
    is_refused();
    EXPECT_TRUE(received(one).empty());
}

TEST_F(Xrc, an_srq_of_another_domain) {
    connect();
    receive(foreign, 1, 0, 4000);
    post(send(foreign, 1, 0, 100));
    is_refused();
    EXPECT_TRUE(received(foreign).empty());
}

TEST_F(Xrc, a_key_is_of_the_protection_domain_of_the_srq) {
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
        b.sink.events.clear();
        connect();
        Send s = access(two, 1, opcode, 0, 8, 0);
        s.xrc_srqn = one.srq->number;
        post(s);
        is_refused();
    }
}

TEST_F(Xrc, a_receive_is_in_the_protection_domain_of_the_srq) {
    connect();
    ASSERT_TRUE(b.post_recv(one.srq->ring, 9, {two.memory->sge(0, 4000)}));
    post(send(one, 1, 0, 100));
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_REM_OP_ERR));
    EXPECT_THAT(statuses(received(one)), ElementsAre(IBV_WC_LOC_PROT_ERR));
}

// The answers to READs wait while requests to the other SRQ continue.
TEST_F(Xrc, answers_keep_their_protection_domain) {
    connect();
    net.egress[1].bytes_per_s = 20'000'000;
    net.egress[1].room_packets = 4;
    one.memory->fill(5);
    two.memory->fill(6);
    for (uint64_t i = 0; i < 4; ++i) {
        const Target& target = i % 2 == 0 ? one : two;
        post(access(target, i, IBV_WR_RDMA_READ, 20'000 * i, 20'000, 1000));
    }
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(0, 0, 0, 0));
    for (uint64_t i = 0; i < 4; ++i)
        EXPECT_EQ(ma.bytes(20'000 * i, 20'000), (i % 2 == 0 ? one : two).memory->bytes(1000, 20'000)) << i;
}

TEST_F(Xrc, an_srq_that_goes_ends_the_message) {
    connect();
    receive(one, 1, 0, 4000);
    net.filter = [](const Observed& p) { return p.op() == Op::kSendMiddle ? Verdict::kHold : Verdict::kPass; };
    post(send(one, 1, 0, 4000));
    net.run_for(10 * kMicrosecond);
    ASSERT_TRUE(qb->slot.taken);
    b.qps.remove_xrc_srq(*one.srq);
    EXPECT_EQ(transport::worker_of_members(*two.srq), std::nullopt);
    ASSERT_EQ(transport::worker_of_members(*one.srq), qb->worker);
    transport::dismiss_members(Alone(), *one.srq, static_cast<uint16_t>(qb->worker + 1));
    ASSERT_EQ(transport::worker_of_members(*one.srq), qb->worker) << "of another worker";
    transport::dismiss_members(Alone(), *one.srq, qb->worker);
    EXPECT_EQ(transport::worker_of_members(*one.srq), std::nullopt);
    EXPECT_TRUE(qb->srq == nullptr && qb->recv_cq == nullptr && !qb->slot.taken);
    net.filter = nullptr;
    net.release();
    is_refused();
    EXPECT_TRUE(received(one).empty());
}

TEST_F(Xrc, a_message_stays_with_its_srq) {
    connect();
    receive(one, 1, 0, 4000);
    receive(two, 2, 0, 4000);
    net.filter = [](const Observed& p) { return p.op() == Op::kSendMiddle ? Verdict::kDrop : Verdict::kPass; };
    post(send(one, 1, 0, 4000));
    net.run_for(10 * kMicrosecond);
    ASSERT_TRUE(qb->slot.taken);
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kXrc, Op::kSendMiddle);
    h.bth.dest_qpn = qb->qpn;
    h.bth.psn = qb->expected_psn();
    h.xrc_srqn = two.srq->number;
    net.inject(1, a.path_to(b), h, std::vector<uint8_t>(1024));
    EXPECT_EQ(qb->state, IBV_QPS_ERR);
    EXPECT_THAT(statuses(received(one)), ElementsAre(IBV_WC_LOC_ACCESS_ERR));
    EXPECT_TRUE(received(two).empty());
}

TEST_F(Xrc, an_ini_takes_no_requests_and_a_tgt_no_answers) {
    connect();
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kXrc, Op::kSendOnly);
    h.bth.dest_qpn = qa->qpn;
    h.bth.psn = qa->expected_psn();
    h.xrc_srqn = one.srq->number;
    net.inject(0, b.path_to(a), h, std::vector<uint8_t>(16));
    EXPECT_EQ(a.counter(Counter::kDropService), 1u);
    h.bth.opcode = wire::opcode(wire::Service::kXrc, Op::kAck);
    h.bth.dest_qpn = qb->qpn;
    h.aeth = {wire::kSyndromeNakRemoteAccess, 0};
    net.inject(1, a.path_to(b), h, {});
    EXPECT_EQ(b.counter(Counter::kDropService), 1u);
    h.bth.opcode = wire::opcode(wire::Service::kRc, Op::kSendOnly);  // same QPN, another transport
    net.inject(1, a.path_to(b), h, std::vector<uint8_t>(16));
    EXPECT_EQ(b.counter(Counter::kDropService), 2u);
    EXPECT_EQ(qa->state, IBV_QPS_RTS);
    EXPECT_EQ(qb->state, IBV_QPS_RTS);
}

TEST_F(Xrc, a_repetition_is_acknowledged_when_the_target_has_gone) {
    connect();
    receive(one, 1, 0, 4000);
    lose(0, [](const Observed& p) { return p.op() == Op::kAck; });
    post(send(one, 1, 0, 100));
    net.run_for(100 * kMicrosecond);
    ASSERT_THAT(received(one), SizeIs(1));
    b.destroy(*qb);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS);
}

TEST_F(Xrc, reset_and_again) {
    for (int round = 0; round < 2; ++round) {
        connect();
        receive(one, 1, 0, 4000);
        post(send(one, 1, 0, 100));
        ASSERT_TRUE(run());
        expect_sent(IBV_WC_SUCCESS);
        a.engine.set_state(*qa, IBV_QPS_RESET, net.now());
        b.engine.set_state(*qb, IBV_QPS_RESET, net.now());
        EXPECT_EQ(qb->srq, nullptr);
        EXPECT_THAT(received(one), SizeIs(1)) << "the SRQ's completions are not the QP's";
    }
}

}  // namespace
}  // namespace rove::test
