// SPDX-License-Identifier: Apache-2.0
// The states of a QP: `man ibv_modify_qp` (its tables of attributes), IBTA 10.3.1 and 11.2.5.2.
#include "verbs.h"

using namespace conformance;

namespace {

struct One {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> cq = make_cq();
    QpOptions options;
    Owned<ibv_qp> qp;

    explicit One(ibv_qp_type type = IBV_QPT_RC) : options{.type = type}, qp(make_qp(pd, cq, cq, options)) {}
    // Brings the QP up to `state`, connected to itself.
    void up_to(ibv_qp_state state) {
        to_init(qp, options);
        if (state == IBV_QPS_INIT) return;
        to_rtr(qp, options, device().gid, qp->qp_num);
        if (state == IBV_QPS_RTR) return;
        to_rts(qp, options);
    }
    int to(ibv_qp_state state) {
        ibv_qp_attr attr{};
        attr.qp_state = state;
        return modify(qp, attr, IBV_QP_STATE);
    }
    int init(void (*change)(ibv_qp_attr&)) {
        ibv_qp_attr attr = init_attr(options);
        change(attr);
        return modify(qp, attr, init_mask(options.type));
    }
    int rtr(void (*change)(ibv_qp_attr&)) {
        ibv_qp_attr attr = rtr_attr(options, device().gid, qp->qp_num);
        change(attr);
        return modify(qp, attr, rtr_mask(options.type));
    }
    int rts(void (*change)(ibv_qp_attr&)) {
        ibv_qp_attr attr = rts_attr(options);
        change(attr);
        return modify(qp, attr, rts_mask(options.type));
    }
};

// Checks that the transition is refused without any one of the attributes in `mask`, and that the QP is then unchanged.
void every_attribute_is_needed(One& t, ibv_qp_attr attr, int mask) {
    const ibv_qp_state before = state_of(t.qp);
    for (int bit = 0; bit < 25; ++bit) {
        const int flag = 1 << bit;
        if ((mask & flag) == 0 || flag == IBV_QP_STATE) continue;
        const int error = modify(t.qp, attr, mask & ~flag);
        EXPECT(error == EINVAL, "without bit %d: %s", bit, strerror(error));
        EXPECT(state_of(t.qp) == before);
    }
    EXPECT_OK(modify(t.qp, attr, mask));
}

}  // namespace

CASE(qp_transitions, rc_goes_up_and_can_begin_again) {
    One t;
    for (int round = 0; round < 3; ++round) {
        t.up_to(IBV_QPS_RTS);
        EXPECT(state_of(t.qp) == IBV_QPS_RTS && t.qp->state == IBV_QPS_RTS);
        EXPECT_OK(t.to(round % 2 != 0 ? IBV_QPS_ERR : IBV_QPS_RESET));
        EXPECT_OK(t.to(IBV_QPS_RESET));
        EXPECT(state_of(t.qp) == IBV_QPS_RESET);
    }
}

CASE(qp_transitions, uc_goes_up) {
    One t(IBV_QPT_UC);
    t.up_to(IBV_QPS_RTS);
    EXPECT(state_of(t.qp) == IBV_QPS_RTS);
}

CASE(qp_transitions, ud_goes_up) {
    One t(IBV_QPT_UD);
    t.up_to(IBV_QPS_RTS);
    EXPECT(state_of(t.qp) == IBV_QPS_RTS);
}

CASE(qp_transitions, no_state_is_left_out) {
    One t;
    EXPECT_ERROR(modify(t.qp, rtr_attr(t.options, device().gid, t.qp->qp_num), rtr_mask(IBV_QPT_RC)), EINVAL);
    EXPECT_ERROR(modify(t.qp, rts_attr(t.options), rts_mask(IBV_QPT_RC)), EINVAL);
    t.up_to(IBV_QPS_INIT);
    EXPECT_ERROR(modify(t.qp, rts_attr(t.options), rts_mask(IBV_QPT_RC)), EINVAL);
    EXPECT_ERROR(t.to(IBV_QPS_SQD), EINVAL);
    EXPECT(state_of(t.qp) == IBV_QPS_INIT);
}

CASE(qp_transitions, no_way_back_but_by_reset) {
    One t;
    t.up_to(IBV_QPS_RTS);
    EXPECT_ERROR(modify(t.qp, init_attr(t.options), init_mask(IBV_QPT_RC)), EINVAL);
    EXPECT_ERROR(modify(t.qp, rtr_attr(t.options, device().gid, t.qp->qp_num), rtr_mask(IBV_QPT_RC)), EINVAL);
    EXPECT(state_of(t.qp) == IBV_QPS_RTS);
}

// Neither the table of IBTA 11.2.5.2 nor the kernel's has such a transition.
CASE(qp_transitions, reset_to_error_is_refused) {
    One t;
    EXPECT_ERROR(t.to(IBV_QPS_ERR), EINVAL);
    EXPECT(state_of(t.qp) == IBV_QPS_RESET);
}

CASE(qp_transitions, out_of_error_only_to_reset) {
    One t;
    t.up_to(IBV_QPS_RTS);
    EXPECT_OK(t.to(IBV_QPS_ERR));
    EXPECT_ERROR(modify(t.qp, rts_attr(t.options), rts_mask(IBV_QPT_RC)), EINVAL);
    EXPECT_ERROR(modify(t.qp, init_attr(t.options), init_mask(IBV_QPT_RC)), EINVAL);
    EXPECT(state_of(t.qp) == IBV_QPS_ERR);
}

CASE(qp_transitions, init_needs_its_attributes) {
    One rc;
    every_attribute_is_needed(rc, init_attr(rc.options), init_mask(IBV_QPT_RC));
    One ud(IBV_QPT_UD);
    every_attribute_is_needed(ud, init_attr(ud.options), init_mask(IBV_QPT_UD));
}

CASE(qp_transitions, rtr_needs_its_attributes) {
    One t;
    t.up_to(IBV_QPS_INIT);
    every_attribute_is_needed(t, rtr_attr(t.options, device().gid, t.qp->qp_num), rtr_mask(IBV_QPT_RC));
    One uc(IBV_QPT_UC);
    uc.up_to(IBV_QPS_INIT);
    every_attribute_is_needed(uc, rtr_attr(uc.options, device().gid, uc.qp->qp_num), rtr_mask(IBV_QPT_UC));
}

CASE(qp_transitions, rts_needs_its_attributes) {
    One t;
    t.up_to(IBV_QPS_RTR);
    every_attribute_is_needed(t, rts_attr(t.options), rts_mask(IBV_QPT_RC));
}

// An attribute that is neither required nor optional for a transition is refused, not ignored.
CASE(qp_transitions, attributes_of_other_transitions_are_refused) {
    One t;
    EXPECT_ERROR(modify(t.qp, init_attr(t.options), init_mask(IBV_QPT_RC) | IBV_QP_SQ_PSN), EINVAL);
    EXPECT_ERROR(modify(t.qp, init_attr(t.options), init_mask(IBV_QPT_RC) | IBV_QP_QKEY), EINVAL);
    t.up_to(IBV_QPS_INIT);
    EXPECT_ERROR(modify(t.qp, rtr_attr(t.options, device().gid, t.qp->qp_num), rtr_mask(IBV_QPT_RC) | IBV_QP_RETRY_CNT),
                 EINVAL);
    One uc(IBV_QPT_UC);
    uc.up_to(IBV_QPS_INIT);
    EXPECT_ERROR(modify(uc.qp, rtr_attr(uc.options, device().gid, uc.qp->qp_num), rtr_mask(IBV_QPT_RC)), EINVAL);
}

CASE(qp_transitions, init_refuses_a_bad_port_or_pkey) {
    One t;
    EXPECT_ERROR(t.init([](ibv_qp_attr& a) { a.port_num = 0; }), EINVAL);
    EXPECT_ERROR(t.init([](ibv_qp_attr& a) { a.port_num = static_cast<uint8_t>(device().attr.phys_port_cnt + 1); }),
                 EINVAL);
    EXPECT_ERROR(t.init([](ibv_qp_attr& a) { a.pkey_index = device().port_attr.pkey_tbl_len; }), EINVAL);
    EXPECT(state_of(t.qp) == IBV_QPS_RESET);
}

// Programs give a QP the access flags of their regions. A QP accepts and ignores the flags that only concern memory.
CASE(qp_transitions, init_takes_flags_that_are_of_regions) {
    for (unsigned flag : {unsigned{IBV_ACCESS_RELAXED_ORDERING}, 1u << 21, unsigned{IBV_ACCESS_ZERO_BASED},
                          unsigned{IBV_ACCESS_HUGETLB}, unsigned{IBV_ACCESS_MW_BIND}}) {
        One t;
        ibv_qp_attr attr = init_attr(t.options);
        attr.qp_access_flags = kAllAccess | flag;
        const int error = modify(t.qp, attr, init_mask(IBV_QPT_RC));
        EXPECT(error == 0, "flag %#x: %s", flag, strerror(error));
    }
}

CASE(qp_transitions, init_may_be_repeated_with_other_attributes) {
    Ends ends;
    One t;
    t.up_to(IBV_QPS_INIT);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    EXPECT_OK(modify(t.qp, attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS));
    ibv_qp_init_attr init;
    EXPECT_OK(ibv_query_qp(t.qp, &attr, IBV_QP_ACCESS_FLAGS, &init));
    EXPECT((attr.qp_access_flags & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)) == IBV_ACCESS_REMOTE_READ, "%#x",
           attr.qp_access_flags);
}

CASE(qp_transitions, rtr_refuses_what_is_out_of_range) {
    One t;
    t.up_to(IBV_QPS_INIT);
    EXPECT_ERROR(t.rtr([](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(0); }), EINVAL);
    EXPECT_ERROR(t.rtr([](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(6); }), EINVAL);
    EXPECT_ERROR(t.rtr([](ibv_qp_attr& a) { a.ah_attr.grh.sgid_index = 255; }), EINVAL);
    EXPECT_ERROR(
        t.rtr([](ibv_qp_attr& a) { a.ah_attr.port_num = static_cast<uint8_t>(device().attr.phys_port_cnt + 1); }),
        EINVAL);
    EXPECT(state_of(t.qp) == IBV_QPS_INIT);
}

// RoCE has no route without a GRH (IBTA A17.4.5.1).
CASE(qp_transitions, rtr_needs_a_grh_over_ethernet) {
    if (device().port_attr.link_layer != IBV_LINK_LAYER_ETHERNET) skip("not Ethernet");
    One t;
    t.up_to(IBV_QPS_INIT);
    EXPECT_ERROR(t.rtr([](ibv_qp_attr& a) { a.ah_attr.is_global = 0; }), EINVAL);
}

CASE(qp_transitions, rtr_refuses_an_mtu_above_the_ports) {
    if (device().port_attr.active_mtu == IBV_MTU_4096) skip("the port has the largest");
    One t;
    t.up_to(IBV_QPS_INIT);
    EXPECT_ERROR(t.rtr([](ibv_qp_attr& a) { a.path_mtu = IBV_MTU_4096; }), EINVAL);
}

CASE(qp_transitions, rd_atomic_limits_are_kept) {
    One t;
    t.up_to(IBV_QPS_INIT);
    if (device().attr.max_qp_rd_atom < 255)
        EXPECT_ERROR(t.rtr([](ibv_qp_attr& a) {
            a.max_dest_rd_atomic = static_cast<uint8_t>(device().attr.max_qp_rd_atom + 1);
        }),
                     EINVAL);
    EXPECT_OK(t.rtr([](ibv_qp_attr&) {}));
    if (device().attr.max_qp_init_rd_atom < 255)
        EXPECT_ERROR(t.rts([](ibv_qp_attr& a) {
            a.max_rd_atomic = static_cast<uint8_t>(device().attr.max_qp_init_rd_atom + 1);
        }),
                     EINVAL);
    EXPECT_OK(t.rts([](ibv_qp_attr&) {}));
}

// 5-bit and 3-bit codes (IBTA 9.7.6, 9.7.5.2.8). The kernel leaves the check to drivers, and some use only the low
// bits.
CASE(qp_transitions, codes_out_of_range_are_refused) {
    if (std::strncmp(ibv_get_device_name(device().context->device), "rove", 4) != 0) skip("drivers differ");
    One t;
    t.up_to(IBV_QPS_INIT);
    EXPECT_ERROR(t.rtr([](ibv_qp_attr& a) { a.min_rnr_timer = 32; }), EINVAL);
    EXPECT_OK(t.rtr([](ibv_qp_attr&) {}));
    EXPECT_ERROR(t.rts([](ibv_qp_attr& a) { a.timeout = 32; }), EINVAL);
    EXPECT_ERROR(t.rts([](ibv_qp_attr& a) { a.retry_cnt = 8; }), EINVAL);
    EXPECT_ERROR(t.rts([](ibv_qp_attr& a) { a.rnr_retry = 8; }), EINVAL);
    EXPECT_OK(t.rts([](ibv_qp_attr&) {}));
}

// IBV_QP_CUR_STATE: the state that the program assumes must be right.
CASE(qp_transitions, a_wrong_current_state_is_refused) {
    One t;
    t.up_to(IBV_QPS_RTR);
    ibv_qp_attr attr = rts_attr(t.options);
    attr.cur_qp_state = IBV_QPS_INIT;
    EXPECT_ERROR(modify(t.qp, attr, rts_mask(IBV_QPT_RC) | IBV_QP_CUR_STATE), EINVAL);
    attr.cur_qp_state = IBV_QPS_RTR;
    EXPECT_OK(modify(t.qp, attr, rts_mask(IBV_QPT_RC) | IBV_QP_CUR_STATE));
}

CASE(qp_transitions, unknown_attributes_are_refused) {
    One t;
    EXPECT(modify(t.qp, init_attr(t.options), init_mask(IBV_QPT_RC) | 1 << 30) != 0);
    EXPECT(state_of(t.qp) == IBV_QPS_RESET);
}

CASE(qp_transitions, rights_can_be_changed_in_rts) {
    Ends ends;
    const Work write{.opcode = IBV_WR_RDMA_WRITE,
                     .sges = {ends.local.sge(0, 8)},
                     .to = ends.remote.address(),
                     .rkey = ends.remote.rkey()};
    post(ends.a, write);
    succeeded(ends.send_cq);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    EXPECT_OK(modify(ends.b, attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS));
    post(ends.a, write);
    const ibv_wc_status status = next(ends.send_cq).status;
    EXPECT(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR, "%s", ibv_wc_status_str(status));
}

// A QP after RESET has no old state, and can take part in a new connection.
CASE(qp_transitions, a_qp_that_failed_works_again_after_reset) {
    Ends ends;
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 8)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey() ^ 0x5a5a5a});
    next_is(ends.send_cq, IBV_WC_REM_ACCESS_ERR);
    for (ibv_qp* qp : {static_cast<ibv_qp*>(ends.a), static_cast<ibv_qp*>(ends.b)}) to_state(qp, IBV_QPS_RESET);
    connect(ends.a, ends.b, {.psn = 0x7ff});
    fill(ends.local.at(), 9000, 5);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 9000)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    succeeded(ends.send_cq);
    EXPECT(matches(ends.remote.at(), 9000, 5));
}

// IBTA 10.3.1: RESET drops posted requests without completions.
CASE(qp_transitions, reset_drops_what_was_posted) {
    Ends ends;
    for (int i = 0; i < 10; ++i) post_recv(ends.b, {ends.remote.sge(0, 100)});
    to_state(ends.b, IBV_QPS_RESET);
    stays_empty(ends.peer_recv_cq);
}

// IBTA 10.3.1.6: all posted requests complete in order, with a flush error.
CASE(qp_transitions, error_flushes_what_was_posted) {
    Ends ends;
    for (uint64_t i = 0; i < 10; ++i) post_recv(ends.b, {ends.remote.sge(0, 100)}, i);
    to_state(ends.b, IBV_QPS_ERR);
    for (uint64_t i = 0; i < 10; ++i) EXPECT(next_is(ends.peer_recv_cq, IBV_WC_WR_FLUSH_ERR).wr_id == i);
    stays_empty(ends.peer_recv_cq);
}

CASE(qp_transitions, in_error_what_is_posted_is_flushed) {
    Ends ends;
    to_state(ends.a, IBV_QPS_ERR);
    post(ends.a, {.sges = {ends.local.sge(0, 8)}, .id = 5});
    EXPECT(next_is(ends.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 5);
    post_recv(ends.a, {ends.local.sge(0, 8)}, 6);
    EXPECT(next_is(ends.recv_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 6);
}

// IBTA 10.3.1.2: receives may be posted from INIT on, requests only from RTS on.
CASE(qp_transitions, receives_can_be_posted_in_init) {
    One t;
    Buffer memory(t.pd, 4096);
    EXPECT(try_post_recv(t.qp, {memory.sge(0, 100)}) != 0, "in RESET");
    to_init(t.qp, t.options);
    EXPECT_OK(try_post_recv(t.qp, {memory.sge(2048, 100)}));
    EXPECT(try_post(t.qp, {.sges = {memory.sge(0, 10)}}) != 0, "a request in INIT");
    to_rtr(t.qp, t.options, device().gid, t.qp->qp_num);
    EXPECT(try_post(t.qp, {.sges = {memory.sge(0, 10)}}) != 0, "a request in RTR");
    to_rts(t.qp, t.options);
    post(t.qp, {.sges = {memory.sge(0, 10)}});
    succeeded(t.cq);
    succeeded(t.cq);
}

// A QP may be its own peer: IBTA 9.6.1 has no exception.
CASE(qp_transitions, a_qp_may_be_connected_to_itself) {
    One t;
    Buffer memory(t.pd, 65536);
    t.up_to(IBV_QPS_RTS);
    fill(memory.at(), 10000, 1);
    post(t.qp, {.opcode = IBV_WR_RDMA_WRITE,
                .sges = {memory.sge(0, 10000)},
                .to = memory.address(32768),
                .rkey = memory.rkey()});
    succeeded(t.cq);
    EXPECT(matches(memory.at(32768), 10000, 1));
}

// Calls that return int return the errno value, and need not change errno where the library does not.
CASE(qp_transitions, errors_are_returned) {
    One t;
    errno = 0;
    EXPECT(t.to(IBV_QPS_RTS) == EINVAL);
}
