// SPDX-License-Identifier: Apache-2.0
// Tests SQD: requests in progress complete, and the event comes only if it was requested.
#include <chrono>

#include "event_fixture.h"
#include "verbs/objects.h"

namespace rove::verbs {
namespace {

class DrainTest : public EventTest {
  protected:
    ibv_send_wr request(ibv_wr_opcode opcode, uint64_t id) const {
        ibv_send_wr wr{};
        wr.wr_id = id;
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        return wr;
    }
    // Posts a SEND that waits for a receive of b.
    void send_and_wait() {
        ibv_qp_attr patient{};
        patient.qp_state = IBV_QPS_SQD;
        patient.rnr_retry = 7;
        ASSERT_EQ(ibv_modify_qp(a_, &patient, IBV_QP_STATE), 0);
        ASSERT_EQ(ibv_modify_qp(a_, &patient, IBV_QP_STATE | IBV_QP_RNR_RETRY), 0);
        patient.qp_state = IBV_QPS_RTS;
        ASSERT_EQ(ibv_modify_qp(a_, &patient, IBV_QP_STATE), 0);
        ibv_send_wr wr = request(IBV_WR_SEND, 1), *bad;
        ASSERT_EQ(ibv_post_send(a_, &wr, &bad), 0);
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
        ibv_wc wc;
        while (!has_begun() && std::chrono::steady_clock::now() < end) ASSERT_EQ(ibv_poll_cq(cq_, 1, &wc), 0);
        ASSERT_TRUE(has_begun());
    }
    // Returns true if the request has started. A request that has not started does not delay draining.
    bool has_begun() const {
        const datapath::Runtime::Pause pause(*from(a_).runtime);
        return from(a_).transport.position.begun_wqe != from(a_).transport.sq.consumed();
    }
    void drain(int mask, uint8_t notify) {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_SQD;
        attr.en_sqd_async_notify = notify;
        ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE | mask), 0);
    }
    bool is_draining() const {
        ibv_qp_attr attr;
        ibv_qp_init_attr init;
        EXPECT_EQ(ibv_query_qp(a_, &attr, IBV_QP_STATE, &init), 0);
        EXPECT_EQ(attr.qp_state, IBV_QPS_SQD);
        return attr.sq_draining != 0;
    }
    // Returns true if an event is queued. The code that clears sq_draining also pushes the event.
    bool has_event() const { return is_readable(context_->async_fd, 0); }
};

TEST_F(DrainTest, WhoAsksIsToldWhenWhatWasBegunIsDone) {
    send_and_wait();
    drain(IBV_QP_EN_SQD_ASYNC_NOTIFY, 1);
    ibv_send_wr late = request(IBV_WR_RDMA_WRITE, 2), *bad;
    ASSERT_EQ(ibv_post_send(a_, &late, &bad), 0);
    ibv_wc wc;
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(ibv_poll_cq(cq_, 1, &wc), 0);
    EXPECT_TRUE(is_draining());
    EXPECT_FALSE(has_event());
    ibv_recv_wr recv{}, *bad_recv;
    ASSERT_EQ(ibv_post_recv(b_, &recv, &bad_recv), 0);
    wc = wait(cq_);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, 1u);
    EXPECT_FALSE(is_draining());
    ASSERT_TRUE(has_event());
    ibv_async_event event;
    ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
    EXPECT_EQ(event.element.qp, a_);
    ibv_ack_async_event(&event);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE), 0);
    EXPECT_EQ(wait(cq_).wr_id, 2u);
    EXPECT_FALSE(has_event()) << "once";
}

TEST_F(DrainTest, WhoDoesNotAskIsNotTold) {
    for (const int mask : {0, int{IBV_QP_EN_SQD_ASYNC_NOTIFY}}) {
        send_and_wait();
        drain(mask, mask == 0 ? 1 : 0);
        ibv_recv_wr recv{}, *bad_recv;
        ASSERT_EQ(ibv_post_recv(b_, &recv, &bad_recv), 0);
        EXPECT_EQ(wait(cq_).wr_id, 1u);
        EXPECT_FALSE(is_draining());
        EXPECT_FALSE(has_event());
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RTS;
        ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE), 0);
    }
    drain(IBV_QP_EN_SQD_ASYNC_NOTIFY, 1);
    EXPECT_FALSE(is_draining());
    EXPECT_TRUE(has_event()) << "an idle queue is drained at once";
}

}  // namespace
}  // namespace rove::verbs
