// SPDX-License-Identifier: Apache-2.0
// Two connected RC QPs. The second receives into a CQ with a completion channel.
#pragma once

#include <poll.h>

#include "fixture.h"

namespace rove::verbs {

inline bool is_readable(int fd, int timeout_ms) {
    pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&readable, 1, timeout_ms) == 1;
}

class EventTest : public VerbsTest {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        channel_ = ibv_create_comp_channel(context_);
        events_cq_ = ibv_create_cq(context_, 16, this, channel_, 0);
        ibv_qp_init_attr attr = init_attr(IBV_QPT_RC);
        a_ = ibv_create_qp(pd_, &attr);
        attr.recv_cq = events_cq_;
        b_ = ibv_create_qp(pd_, &attr);
        connect(a_, b_->qp_num);
        connect(b_, a_->qp_num);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_destroy_qp(a_), 0);
        EXPECT_EQ(ibv_destroy_qp(b_), 0);
        EXPECT_EQ(ibv_destroy_cq(events_cq_), 0);
        EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
        VerbsTest::TearDown();
    }
    // Sends a message from a to b, and waits for its completion at a.
    void send(unsigned flags) {
        ibv_recv_wr recv{}, *bad_recv;
        ASSERT_EQ(ibv_post_recv(b_, &recv, &bad_recv), 0);
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED | flags;
        ASSERT_EQ(ibv_post_send(a_, &wr, &bad), 0);
        EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
    }
    ibv_comp_channel* channel_ = nullptr;
    ibv_cq* events_cq_ = nullptr;
    ibv_qp *a_ = nullptr, *b_ = nullptr;
};

}  // namespace rove::verbs
