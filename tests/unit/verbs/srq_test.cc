// SPDX-License-Identifier: Apache-2.0
// Tests shared receive queues: their limit, and changes of their size.
#include <cerrno>

#include "event_fixture.h"

namespace rove::verbs {
namespace {

// D17: arming the limit of a queue that is already low raises the event immediately.
TEST_F(EventTest, ASharedReceiveQueueThatIsLowWhenItIsArmedSaysSoAtOnce) {
    ibv_srq_init_attr attr{.srq_context = nullptr, .attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0}};
    ibv_srq* srq = ibv_create_srq(pd_, &attr);
    ibv_recv_wr recv{}, *bad;
    for (int i = 0; i < 3; ++i) ASSERT_EQ(ibv_post_srq_recv(srq, &recv, &bad), 0);
    ibv_srq_attr arm{.max_wr = 0, .max_sge = 0, .srq_limit = 3};
    ASSERT_EQ(ibv_modify_srq(srq, &arm, IBV_SRQ_LIMIT), 0);
    EXPECT_FALSE(is_readable(context_->async_fd, 0)) << "not below it";
    arm.srq_limit = 4;
    ASSERT_EQ(ibv_modify_srq(srq, &arm, IBV_SRQ_LIMIT), 0);
    ASSERT_TRUE(is_readable(context_->async_fd, 0));
    ibv_async_event event;
    ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(event.element.srq, srq);
    ibv_ack_async_event(&event);
    ASSERT_EQ(ibv_query_srq(srq, &arm), 0);
    EXPECT_EQ(arm.srq_limit, 0u) << "armed once, told once";
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(EventTest, AResizedSharedReceiveQueueKeepsWhatIsPosted) {
    ibv_device_attr device;
    ASSERT_EQ(ibv_query_device(context_, &device), 0);
    EXPECT_NE(device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE, 0u);
    ibv_srq_init_attr attr{.srq_context = nullptr, .attr = {.max_wr = 8, .max_sge = 2, .srq_limit = 0}};
    ibv_srq* srq = ibv_create_srq(pd_, &attr);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC, srq);
    ibv_qp* c = ibv_create_qp(pd_, &init);
    connect(c, c->qp_num);  // connects the QP to itself
    uint64_t posted = 0, taken = 0;
    const auto post = [&](int count) {
        for (int i = 0; i < count; ++i) {
            ibv_sge targets[] = {sge(4096 + posted * 16, 4), sge(8192 + posted * 16, 4)};
            ibv_recv_wr recv{}, *bad;
            recv.wr_id = posted++;
            recv.sg_list = targets;
            recv.num_sge = 2;
            ASSERT_EQ(ibv_post_srq_recv(srq, &recv, &bad), 0);
        }
    };
    const auto take = [&](int count) {
        ibv_send_wr wr{}, *bad;
        ibv_sge source = sge(0, 8);
        wr.opcode = IBV_WR_SEND;
        wr.sg_list = &source;
        wr.num_sge = 1;
        for (int i = 0; i < count; ++i, ++taken) {
            for (size_t byte = 0; byte < 8; ++byte) buffer_[byte] = static_cast<uint8_t>(taken + byte);
            ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
            const ibv_wc wc = wait(cq_);
            EXPECT_EQ(wc.wr_id, taken);
            for (size_t byte = 0; byte < 8; ++byte) {
                EXPECT_EQ(buffer_[(byte < 4 ? 4096 : 8188) + taken * 16 + byte], static_cast<uint8_t>(taken + byte));
            }
        }
    };
    const auto resize = [&](uint32_t max_wr, int mask = IBV_SRQ_MAX_WR, uint32_t limit = 0) {
        ibv_srq_attr set{.max_wr = max_wr, .max_sge = 0, .srq_limit = limit};
        return ibv_modify_srq(srq, &set, mask);
    };
    post(8);
    take(5);
    post(4);  // wraps around the end of the ring
    EXPECT_EQ(resize(6), EINVAL) << "7 wait";
    EXPECT_EQ(resize(0), EINVAL);
    EXPECT_EQ(resize(static_cast<uint32_t>(device.max_srq_wr) + 1), EINVAL);
    ASSERT_EQ(resize(7), 0);
    ibv_recv_wr recv{}, *bad;
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad), ENOMEM);
    take(2);
    ASSERT_EQ(resize(100), 0);
    post(60);
    take(3);
    EXPECT_EQ(resize(63, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 64), EINVAL) << "the limit is more";
    ibv_srq_attr now{};
    ASSERT_EQ(ibv_query_srq(srq, &now), 0);
    EXPECT_EQ(now.max_wr, 100u) << "all of it or nothing";
    EXPECT_EQ(resize(64, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 10), 0);
    EXPECT_EQ(resize(9), EINVAL) << "less than the limit that is armed";
    ASSERT_EQ(ibv_query_srq(srq, &now), 0);
    EXPECT_EQ(now.max_wr, 64u);
    EXPECT_EQ(now.srq_limit, 10u);
    take(50);
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(EventTest, ASharedReceiveQueueSaysOncePerArmingThatItRunsLow) {
    ibv_srq_init_attr attr{.srq_context = nullptr, .attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0}};
    ibv_srq* srq = ibv_create_srq(pd_, &attr);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC, srq);
    ibv_qp* c = ibv_create_qp(pd_, &init);
    connect(c, c->qp_num);  // connects the QP to itself
    const auto post = [&](int count) {
        ibv_recv_wr recv{}, *bad;
        for (int i = 0; i < count; ++i) ASSERT_EQ(ibv_post_srq_recv(srq, &recv, &bad), 0);
    };
    const auto take = [&](int count) {
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_SEND;
        for (int i = 0; i < count; ++i) {
            ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
            ASSERT_EQ(wait(cq_).opcode, IBV_WC_RECV);
        }
    };
    const auto limit = [&] {
        ibv_srq_attr now{};
        EXPECT_EQ(ibv_query_srq(srq, &now), 0);
        EXPECT_EQ(now.max_wr, 8u);
        EXPECT_EQ(now.max_sge, 1u);
        return now.srq_limit;
    };
    post(8);
    for (const uint32_t armed : {3u, 2u}) {  // the second time with 5 posted again
        ibv_srq_attr arm{.max_wr = 0, .max_sge = 0, .srq_limit = armed};
        ASSERT_EQ(ibv_modify_srq(srq, &arm, IBV_SRQ_LIMIT), 0);
        take(armed == 3 ? 5 : 3);
        EXPECT_FALSE(is_readable(context_->async_fd, 0)) << "as many as the limit are left";
        EXPECT_EQ(limit(), armed);
        take(1);
        ASSERT_TRUE(is_readable(context_->async_fd, 1000));
        ibv_async_event event;
        ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
        EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
        EXPECT_EQ(event.element.srq, srq);
        ibv_ack_async_event(&event);
        EXPECT_EQ(limit(), 0u);
        take(1);
        post(3);
        take(3);
        EXPECT_FALSE(is_readable(context_->async_fd, 0)) << "it was not armed again";
        post(4);
    }
    EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

}  // namespace
}  // namespace rove::verbs
