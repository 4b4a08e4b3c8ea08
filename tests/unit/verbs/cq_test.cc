// SPDX-License-Identifier: Apache-2.0
// Tests completion queues: their size, the extended API, timestamps, moderation and overrun.
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "event_fixture.h"
#include "verbs/objects.h"

namespace rove::verbs {
namespace {

TEST_F(EventTest, ResizingKeepsWhatIsQueued) {
    ibv_cq* cq = ibv_create_cq(context_, 16, nullptr, nullptr, 0);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    init.send_cq = cq;
    ibv_qp* c = ibv_create_qp(pd_, &init);
    connect(c, c->qp_num);  // connects the QP to itself
    uint64_t posted = 0, polled = 0;
    const auto complete = [&](int count) {
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        for (int i = 0; i < count; ++i) {
            wr.wr_id = posted++;
            ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
        }
        // Waits without polling the CQ under test.
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
        ibv_wc wc;
        while (from(c).transport.sq.room() != 8 && std::chrono::steady_clock::now() < end) ibv_poll_cq(cq_, 1, &wc);
    };
    const auto poll = [&](int count) {
        for (int i = 0; i < count; ++i) EXPECT_EQ(wait(cq).wr_id, polled++);
    };
    for (int round = 0; round < 4; ++round) {  // so that later completions wrap around the end of the ring
        complete(7);
        poll(7);
    }
    complete(8);
    const int before = cq->cqe;
    EXPECT_EQ(ibv_resize_cq(cq, 7), EINVAL);
    EXPECT_EQ(cq->cqe, before);
    ASSERT_EQ(ibv_resize_cq(cq, 8), 0);
    EXPECT_GE(cq->cqe, 8);
    EXPECT_LT(cq->cqe, before);
    poll(3);
    ASSERT_EQ(ibv_resize_cq(cq, 100), 0);
    EXPECT_GE(cq->cqe, 100);
    complete(8);
    poll(13);
    ibv_wc wc;
    EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

// Reads both clocks before and after a completion. Its timestamp is the time at which the worker creates it, not the
// time of the poll.
TEST_F(EventTest, CompletionTimestamps) {
    ibv_device_attr_ex device;
    ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &device), 0);
    EXPECT_EQ(device.hca_core_clock, 1'000'000u);
    EXPECT_EQ(device.completion_timestamp_mask, UINT64_MAX);
    ibv_cq_init_attr_ex attr{.cqe = 16,
                             .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                         IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
    ibv_cq_ex* cq = ibv_create_cq_ex(context_, &attr);
    ASSERT_NE(cq, nullptr);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    init.send_cq = ibv_cq_ex_to_cq(cq);
    ibv_qp* c = ibv_create_qp(pd_, &init);
    connect(c, c->qp_num);  // connects the QP to itself
    const auto raw_ns = [&] {
        ibv_values_ex values{.comp_mask = IBV_VALUES_MASK_RAW_CLOCK, .raw_clock = {}};
        EXPECT_EQ(ibv_query_rt_values_ex(context_, &values), 0);
        EXPECT_EQ(values.comp_mask, static_cast<uint32_t>(IBV_VALUES_MASK_RAW_CLOCK));
        return static_cast<uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000 +
               static_cast<uint64_t>(values.raw_clock.tv_nsec);
    };
    const auto wall_ns = [] {
        return static_cast<uint64_t>(
            std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
    };
    const uint64_t raw_before = raw_ns(), wall_before = wall_ns();
    usleep(1000);
    ibv_send_wr wr{}, *bad;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    ibv_wc wc;
    while (from(c).transport.sq.room() != 8 && std::chrono::steady_clock::now() < end) ibv_poll_cq(cq_, 1, &wc);
    const uint64_t raw_after = raw_ns(), wall_after = wall_ns();
    usleep(20'000);
    ibv_poll_cq_attr poll_attr{};
    ASSERT_EQ(ibv_start_poll(cq, &poll_attr), 0);
    const uint64_t stamp = ibv_wc_read_completion_ts(cq), wall = ibv_wc_read_completion_wallclock_ns(cq);
    ibv_end_poll(cq);
    EXPECT_GT(stamp, raw_before);
    EXPECT_LE(stamp, raw_after);
    constexpr uint64_t kSkewNs = 5'000'000;  // the two clocks are read one after the other
    EXPECT_GT(wall + kSkewNs, wall_before);
    EXPECT_LT(wall, wall_after + kSkewNs);
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(VerbsTest, ModerationOfACompletionQueueIsTaken) {
    ibv_modify_cq_attr attr{.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {.cq_count = 16, .cq_period = 100}};
    EXPECT_EQ(ibv_modify_cq(cq_, &attr), 0);
    attr.attr_mask = 1u << 7;
    EXPECT_EQ(ibv_modify_cq(cq_, &attr), EINVAL);
}

TEST_F(VerbsTest, ACompletionQueueMayIgnoreItsOverrun) {
    ibv_cq_init_attr_ex attr{.cqe = 1,
                             .wc_flags = IBV_WC_STANDARD_FLAGS,
                             .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
                             .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
    ibv_cq_ex* cq = ibv_create_cq_ex(context_, &attr);
    ASSERT_NE(cq, nullptr);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    init.send_cq = ibv_cq_ex_to_cq(cq);
    ibv_qp* c = ibv_create_qp(pd_, &init);
    connect(c, c->qp_num);  // connects the QP to itself
    ibv_send_wr wr{}, *bad;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    for (int i = 0; i < 8; ++i) ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    ibv_wc wc;
    while (from(c).transport.sq.room() != 8 && std::chrono::steady_clock::now() < end) ibv_poll_cq(cq_, 1, &wc);
    EXPECT_EQ(from(c).transport.sq.room(), 8u);
    EXPECT_FALSE(is_readable(context_->async_fd, 0)) << "no IBV_EVENT_CQ_ERR";
    EXPECT_EQ(from(c).transport.state, IBV_QPS_RTS);
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(EventTest, ExtendedPolling) {
    ibv_cq_init_attr_ex attr{.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
    ibv_cq_ex* cq = ibv_create_cq_ex(context_, &attr);
    ASSERT_NE(cq, nullptr);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    init.send_cq = ibv_cq_ex_to_cq(cq);
    ibv_qp* c = ibv_create_qp(pd_, &init);
    connect(c, c->qp_num);  // connects the QP to itself
    ibv_send_wr wr{}, *bad;
    wr.wr_id = 11;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_poll_cq_attr poll_attr{};
    EXPECT_EQ(ibv_start_poll(cq, &poll_attr), ENOENT);
    ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
    while (ibv_start_poll(cq, &poll_attr) == ENOENT) {
    }
    EXPECT_EQ(cq->wr_id, 11u);
    EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RDMA_WRITE);
    EXPECT_EQ(ibv_wc_read_qp_num(cq), c->qp_num);
    EXPECT_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

}  // namespace
}  // namespace rove::verbs
