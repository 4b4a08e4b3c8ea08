// SPDX-License-Identifier: Apache-2.0
// Tests posting: the requests that are refused, and the place where a list stops.
#include <cerrno>
#include <chrono>

#include "fixture.h"
#include "rove/verbs.h"
#include "verbs/objects.h"

namespace rove::verbs {
namespace {

class PostTest : public ConnectedTest {
  protected:
    ibv_send_wr request(ibv_wr_opcode opcode, uint32_t length) {
        sge_ = sge(0, length);
        ibv_send_wr wr{};
        wr.wr_id = 7;
        wr.sg_list = &sge_;
        wr.num_sge = 1;
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma = {.remote_addr = sge_.addr + 8192, .rkey = mr_->rkey};
        return wr;
    }
    void refused(ibv_qp* qp, ibv_send_wr wr) {
        ibv_send_wr* bad = nullptr;
        EXPECT_EQ(ibv_post_send(qp, &wr, &bad), EINVAL);
        EXPECT_EQ(bad, &wr);
    }
    ibv_sge sge_;
    ibv_send_wr* bad_ = nullptr;
};

TEST_F(PostTest, RequestsThatNoQueuePairTakes) {
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 8);
    wr.opcode = IBV_WR_TSO;
    refused(a_, wr);
    wr = request(IBV_WR_RDMA_WRITE, 8);
    wr.num_sge = 3;  // created for two
    refused(a_, wr);
    wr.num_sge = -1;
    refused(a_, wr);
    wr = request(IBV_WR_SEND, 65);  // created for 64 bytes inline
    wr.send_flags |= IBV_SEND_INLINE;
    refused(a_, wr);
    wr = request(IBV_WR_RDMA_READ, 8);
    wr.send_flags |= IBV_SEND_INLINE;
    refused(a_, wr);
    refused(a_, request(IBV_WR_ATOMIC_FETCH_AND_ADD, 4));
    refused(a_, request(IBV_WR_RDMA_WRITE, (1u << 30) + 1));
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE), 0);
    ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_MAX_QP_RD_ATOMIC), 0);  // to 0
    refused(a_, request(IBV_WR_RDMA_READ, 8));
    refused(a_, request(IBV_WR_ATOMIC_CMP_AND_SWP, 8));
}

TEST_F(PostTest, LengthsWhoseSumWraps) {
    ibv_sge halves[2] = {sge(0, 1u << 31), sge(0, 1u << 31)};
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 8);
    wr.sg_list = halves;
    wr.num_sge = 2;
    refused(a_, wr);
    wr.send_flags |= IBV_SEND_INLINE;
    refused(a_, wr);
    ibv_recv_wr first{}, second{}, *bad = nullptr;
    first.next = &second;
    second.sg_list = halves;
    second.num_sge = 2;
    EXPECT_EQ(ibv_post_recv(b_, &first, &bad), EINVAL);
    EXPECT_EQ(bad, &second);
    EXPECT_EQ(from(b_).transport.rq.produced(), 1u) << "what came before it is taken";
    second.sg_list = nullptr;
    second.num_sge = -1;
    EXPECT_EQ(ibv_post_recv(b_, &second, &bad), EINVAL);
    EXPECT_EQ(bad, &second);
}

// MP-12
TEST_F(PostTest, TheSynchroniseFlagReachesTheTransport) {
    static_assert((ROVE_SEND_SYNC & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE |
                                     IBV_SEND_IP_CSUM)) == 0);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 8);
    wr.send_flags |= ROVE_SEND_SYNC;
    ASSERT_EQ(ibv_post_send(a_, &wr, &bad_), 0);
    EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
    EXPECT_EQ(from(a_).transport.sq.at(0).send_flags, IBV_SEND_SIGNALED | ROVE_SEND_SYNC);
}

TEST_F(PostTest, OpcodesByType) {
    ibv_qp_init_attr init = init_attr(IBV_QPT_UD);
    ibv_qp* ud = ibv_create_qp(pd_, &init);
    start_ud(ud);
    refused(ud, request(IBV_WR_RDMA_WRITE, 8));
    ibv_send_wr unaddressed = request(IBV_WR_SEND, 8);
    unaddressed.wr.ud.ah = nullptr;
    refused(ud, unaddressed);
    init = init_attr(IBV_QPT_UC);
    ibv_qp* uc = ibv_create_qp(pd_, &init);
    refused(uc, request(IBV_WR_SEND, 8));  // the QP is still in RESET
    EXPECT_EQ(ibv_destroy_qp(ud), 0);
    EXPECT_EQ(ibv_destroy_qp(uc), 0);
}

// IBTA 11.2.2.1. A PD belongs to one context, so this also refuses the handles of another device.
TEST_F(PostTest, AnAddressHandleOfAnotherProtectionDomain) {
    ibv_qp_init_attr init = init_attr(IBV_QPT_UD);
    ibv_qp* ud = ibv_create_qp(pd_, &init);
    start_ud(ud);
    ibv_pd* other = ibv_alloc_pd(context_);
    ibv_ah_attr address = own_address();
    ibv_ah* ah = ibv_create_ah(other, &address);
    ibv_send_wr wr = request(IBV_WR_SEND, 8);
    wr.wr.ud = {.ah = ah, .remote_qpn = ud->qp_num, .remote_qkey = 0x1234};
    refused(ud, wr);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
    ibv_parent_domain_init_attr parent_attr{.pd = pd_};
    ibv_pd* parent = ibv_alloc_parent_domain(context_, &parent_attr);
    ASSERT_NE(parent, nullptr);
    wr.wr.ud.ah = ibv_create_ah(parent, &address);
    EXPECT_EQ(ibv_post_send(ud, &wr, &bad_), 0) << "the same by another name";
    EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_destroy_ah(wr.wr.ud.ah), 0);
    EXPECT_EQ(ibv_dealloc_pd(parent), 0);
    EXPECT_EQ(ibv_destroy_qp(ud), 0);
}

// D1: a datagram has to fit into one packet.
TEST_F(PostTest, ADatagramIsOnePacket) {
    ibv_qp_init_attr init = init_attr(IBV_QPT_UD);
    ibv_qp* ud = ibv_create_qp(pd_, &init);
    start_ud(ud);
    ibv_ah_attr address = own_address();
    ibv_ah* ah = ibv_create_ah(pd_, &address);
    ibv_port_attr port;
    ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
    const uint32_t mtu = 128u << port.active_mtu;
    const auto send = [&](uint32_t length) {
        ibv_send_wr wr = request(IBV_WR_SEND, length);
        wr.wr.ud = {.ah = ah, .remote_qpn = ud->qp_num, .remote_qkey = 0x1234};
        return ibv_post_send(ud, &wr, &bad_);
    };
    ibv_sge target = sge(8192, 40 + mtu);
    ibv_recv_wr recv{}, *bad_recv;
    recv.sg_list = &target;
    recv.num_sge = 1;
    for (const uint32_t length : {mtu + 1, 6000u, 70'000u, 1u << 31}) {
        EXPECT_EQ(send(length), EINVAL) << length;
        ASSERT_EQ(ibv_post_recv(ud, &recv, &bad_recv), 0);
        ASSERT_EQ(send(mtu), 0);
        for (int i = 0; i < 2; ++i) {
            const ibv_wc wc = wait(cq_);
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
            if (wc.opcode == IBV_WC_RECV) {
                EXPECT_EQ(wc.byte_len, 40 + mtu);
            }
        }
    }
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
    EXPECT_EQ(ibv_destroy_qp(ud), 0);
}

TEST_F(PostTest, ReceivesOfAQueuePairThatHasASharedQueueOrIsReset) {
    ibv_srq_init_attr shared{.srq_context = nullptr, .attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0}};
    ibv_srq* srq = ibv_create_srq(pd_, &shared);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC, srq);
    ibv_qp* with_srq = ibv_create_qp(pd_, &init);
    connect(with_srq, with_srq->qp_num);
    init = init_attr(IBV_QPT_RC);
    ibv_qp* reset = ibv_create_qp(pd_, &init);
    ibv_recv_wr wr{}, *bad;
    for (ibv_qp* qp : {with_srq, reset}) {
        bad = nullptr;
        EXPECT_EQ(ibv_post_recv(qp, &wr, &bad), EINVAL);
        EXPECT_EQ(bad, &wr);
    }
    ibv_sge sges[2] = {sge(0, 8), sge(8, 8)};
    wr.sg_list = sges;
    wr.num_sge = 2;  // created for one
    bad = nullptr;
    EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), EINVAL);
    EXPECT_EQ(bad, &wr);
    EXPECT_EQ(ibv_destroy_qp(with_srq), 0);
    EXPECT_EQ(ibv_destroy_qp(reset), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(PostTest, AListIsTakenUpToTheBadRequest) {
    ibv_send_wr good = request(IBV_WR_RDMA_WRITE, 8), wrong = good;
    wrong.opcode = IBV_WR_TSO;
    good.next = &wrong;
    EXPECT_EQ(ibv_post_send(a_, &good, &bad_), EINVAL);
    EXPECT_EQ(bad_, &wrong);
    const ibv_wc wc = wait(cq_);
    EXPECT_EQ(wc.wr_id, 7u);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
}

// After rounds of several posts and a poll, posts wait for the next poll. If the program then spins on memory, the
// progress thread still sends the data.
TEST_F(PostTest, PostsThatNoPollFollows) {
    for (int round = 0; round < 50; ++round) {
        for (int post = 0; post < 3; ++post) {
            ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 8);
            ASSERT_EQ(ibv_post_send(a_, &wr, &bad_), 0);
        }
        for (int post = 0; post < 3; ++post) ASSERT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
    }
    for (int post = 0; post < 3; ++post) {
        ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 1);
        buffer_[post] = 1;
        sge_.addr += post;
        wr.wr.rdma.remote_addr += post;
        ASSERT_EQ(ibv_post_send(a_, &wr, &bad_), 0);
    }
    const volatile uint8_t& last = buffer_[8192 + 2];
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (last == 0 && std::chrono::steady_clock::now() < until) {
    }
    EXPECT_EQ(last, 1);
}

TEST_F(PostTest, AFullReceiveQueueIsOutOfMemory) {
    ibv_sge target = sge(0, 8);
    ibv_recv_wr wr{}, *bad;
    wr.sg_list = &target;
    wr.num_sge = 1;
    for (int i = 0; i < 8; ++i) EXPECT_EQ(ibv_post_recv(b_, &wr, &bad), 0);
    EXPECT_EQ(ibv_post_recv(b_, &wr, &bad), ENOMEM);
    EXPECT_EQ(bad, &wr);
    wr.num_sge = 3;
    EXPECT_EQ(ibv_post_recv(a_, &wr, &bad), EINVAL);
}

TEST_F(PostTest, WhatIsPostedAfterAnErrorIsFlushed) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE), 0);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 8);
    ASSERT_EQ(ibv_post_send(a_, &wr, &bad_), 0);
    EXPECT_EQ(wait(cq_).status, IBV_WC_WR_FLUSH_ERR);
    ibv_recv_wr recv{}, *bad;
    recv.wr_id = 9;
    ASSERT_EQ(ibv_post_recv(a_, &recv, &bad), 0);
    const ibv_wc wc = wait(cq_);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, 9u);
}

TEST_F(PostTest, InlineDataIsTakenAtOnce) {
    buffer_[0] = 1;
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 64);
    wr.send_flags |= IBV_SEND_INLINE;
    sge_.lkey = 0;  // inline data needs no lkey
    ASSERT_EQ(ibv_post_send(a_, &wr, &bad_), 0);
    buffer_[0] = 2;
    EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
    EXPECT_EQ(buffer_[8192], 1);
}

TEST_F(PostTest, DrainedQueuesWait) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE), 0);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 8);
    ASSERT_EQ(ibv_post_send(a_, &wr, &bad_), 0);
    ibv_wc wc;
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(ibv_poll_cq(cq_, 1, &wc), 0);
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE), 0);
    EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace rove::verbs
