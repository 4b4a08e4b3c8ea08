// SPDX-License-Identifier: Apache-2.0
// `man ibv_query_qp`: returns the attributes that were set.
#include "verbs.h"

using namespace conformance;

CASE(qp_query, what_was_set_is_returned) {
    const QpOptions options{.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
                            .mtu = IBV_MTU_512,
                            .psn = 0xabcdef,
                            .timeout = 13,
                            .retry = 5,
                            .rnr_retry = 6,
                            .min_rnr_timer = 11,
                            .rd_atomic = 4};
    Ends ends(options);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_OK(ibv_query_qp(ends.a, &attr,
                           IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                               IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_RQ_PSN | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
                               IBV_QP_MIN_RNR_TIMER | IBV_QP_DEST_QPN | IBV_QP_CAP,
                           &init));
    EXPECT(attr.qp_state == IBV_QPS_RTS);
    EXPECT((attr.qp_access_flags & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)) ==
               (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ),
           "%#x", attr.qp_access_flags);
    EXPECT(attr.pkey_index == 0 && attr.port_num == device().port);
    EXPECT(attr.path_mtu == IBV_MTU_512 && attr.dest_qp_num == ends.b->qp_num);
    EXPECT(attr.timeout == 13 && attr.retry_cnt == 5 && attr.rnr_retry == 6 && attr.min_rnr_timer == 11, "%d %d %d %d",
           attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer);
    EXPECT(attr.rq_psn == 0xabcdef && attr.sq_psn == 0xabcdef, "%#x %#x", attr.rq_psn, attr.sq_psn);
    EXPECT(attr.max_rd_atomic == 4 && attr.max_dest_rd_atomic == 4, "%d %d", attr.max_rd_atomic,
           attr.max_dest_rd_atomic);
    EXPECT(std::memcmp(&attr.ah_attr.grh.dgid, &device().gid, sizeof(ibv_gid)) == 0);
    EXPECT(attr.ah_attr.grh.sgid_index == device().gid_index && attr.ah_attr.is_global == 1 &&
           attr.ah_attr.port_num == device().port);
}

CASE(qp_query, init_attributes_are_returned) {
    Ends ends({.send_wr = 50, .recv_wr = 60, .send_sge = 3, .recv_sge = 2, .inline_bytes = 30, .sq_sig_all = 1});
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_OK(ibv_query_qp(ends.a, &attr, IBV_QP_CAP, &init));
    EXPECT(init.cap.max_send_wr >= 50 && init.cap.max_recv_wr >= 60 && init.cap.max_send_sge >= 3 &&
           init.cap.max_recv_sge >= 2 && init.cap.max_inline_data >= 30);
    EXPECT(attr.cap.max_send_wr == init.cap.max_send_wr && attr.cap.max_recv_wr == init.cap.max_recv_wr);
    EXPECT(init.qp_type == IBV_QPT_RC && init.send_cq == ends.send_cq && init.recv_cq == ends.recv_cq &&
           init.srq == nullptr && init.sq_sig_all == 1);
}

CASE(qp_query, datagram_qp_has_its_qkey) {
    Ends ends({.type = IBV_QPT_UD});
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_OK(ibv_query_qp(ends.a, &attr, IBV_QP_QKEY | IBV_QP_STATE, &init));
    EXPECT(attr.qkey == kQkey && attr.qp_state == IBV_QPS_RTS);
}

// A failed request moves the QP to the error state, and the program can query it.
CASE(qp_query, an_error_shows) {
    Ends ends;
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 8)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey() ^ 0x5a5a5a});
    next_is(ends.send_cq, IBV_WC_REM_ACCESS_ERR);
    EXPECT(state_of(ends.a) == IBV_QPS_ERR && state_of(ends.b) == IBV_QPS_ERR);
}

// `man ibv_query_qp`: attr_mask selects the attributes. The member `state` of struct ibv_qp is the state that the
// program last set or queried, so a QP that has failed in the meantime shows this only when its state is queried.
CASE(qp_query, the_state_in_the_handle_changes_when_it_is_asked_for) {
    Ends ends;
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 8)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey() ^ 0x5a5a5a});
    next_is(ends.send_cq, IBV_WC_REM_ACCESS_ERR);
    EXPECT(ends.a->state == IBV_QPS_RTS, "%d", ends.a->state);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_OK(ibv_query_qp(ends.a, &attr, IBV_QP_AV | IBV_QP_DEST_QPN, &init));
    EXPECT(ends.a->state == IBV_QPS_RTS, "%d", ends.a->state);
    EXPECT_OK(ibv_query_qp(ends.a, &attr, IBV_QP_STATE, &init));
    EXPECT(ends.a->state == IBV_QPS_ERR, "%d", ends.a->state);
}

// `man ibv_query_qp_data_in_order`: 0 or 1, depending on the device. A QP type without the opcode has no order.
CASE(qp_query, data_in_order_is_answered) {
    Ends ends;
    const int answer = ibv_query_qp_data_in_order(ends.a, IBV_WR_RDMA_WRITE, 0);
    EXPECT(answer == 0 || answer == 1, "%d", answer);
}
