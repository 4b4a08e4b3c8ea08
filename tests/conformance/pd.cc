// SPDX-License-Identifier: Apache-2.0
// Protection domains: `man ibv_dealloc_pd`: fails while any other resource is still associated with the PD.
#include "verbs.h"

using namespace conformance;

CASE(pd, busy_with_a_region) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(4096);
    Owned<ibv_mr> mr = make_mr(pd, memory.at(), 4096);
    EXPECT_ERROR(ibv_dealloc_pd(pd), EBUSY);
    EXPECT_OK(mr.destroy());
}

CASE(pd, busy_with_a_queue_pair) {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> cq = make_cq();
    Owned<ibv_qp> qp = make_qp(pd, cq, cq);
    EXPECT_ERROR(ibv_dealloc_pd(pd), EBUSY);
}

CASE(pd, busy_with_a_shared_receive_queue) {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_srq> srq = make_srq(pd);
    EXPECT_ERROR(ibv_dealloc_pd(pd), EBUSY);
}

CASE(pd, busy_with_an_address_handle) {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_ah> ah = make_ah(pd);
    EXPECT_ERROR(ibv_dealloc_pd(pd), EBUSY);
}

CASE(pd, busy_with_a_window) {
    Owned<ibv_pd> pd = make_pd();
    ibv_mw* window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    if (window == nullptr) skip("no windows: %s", strerror(errno));
    Owned<ibv_mw> mw(window);
    EXPECT_ERROR(ibv_dealloc_pd(pd), EBUSY);
}

// IBTA 10.2.2.2: an AH of another PD cannot be used. Posting refuses it, or the request completes in error.
CASE(pd, address_handle_of_another_pd_is_refused) {
    Ends ends({.type = IBV_QPT_UD});
    Owned<ibv_pd> other = make_pd();
    Owned<ibv_ah> ah = make_ah(other);
    post_recv(ends.b, {ends.remote.sge(0, 1000)});
    const int error = try_post(ends.a, {.sges = {ends.local.sge(0, 100)}, .ah = ah, .qpn = ends.b->qp_num});
    if (error == 0) {
        const ibv_wc wc = next(ends.send_cq);
        EXPECT(wc.status == IBV_WC_LOC_QP_OP_ERR || wc.status == IBV_WC_LOC_PROT_ERR, "%s",
               ibv_wc_status_str(wc.status));
    } else
        EXPECT(error == EINVAL, "%s", strerror(error));
    stays_empty(ends.peer_recv_cq);
}

// Thread domains and parent domains (`man ibv_alloc_parent_domain`): an object of a parent domain belongs to its PD.
CASE(pd, parent_domain_stands_for_its_pd) {
    Owned<ibv_pd> pd = make_pd();
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd;
    ibv_pd* made = ibv_alloc_parent_domain(device().context, &attr);
    if (made == nullptr) skip("not offered: %s", strerror(errno));
    Owned<ibv_pd> parent(made);
    Owned<ibv_cq> cq = make_cq();
    Owned<ibv_qp> a = make_qp(parent, cq, cq), b = make_qp(pd, cq, cq);
    connect(a, b, {});
    Buffer source(pd, 4096), target(parent, 4096);
    fill(source.at(), 100, 1);
    post(a, {.opcode = IBV_WR_RDMA_WRITE, .sges = {source.sge(0, 100)}, .to = target.address(), .rkey = target.rkey()});
    succeeded(cq);
    EXPECT(matches(target.at(), 100, 1));
    EXPECT_ERROR(ibv_dealloc_pd(pd), EBUSY);
}

CASE(pd, thread_domain_can_be_made) {
    ibv_td_init_attr attr{};
    ibv_td* td = ibv_alloc_td(device().context, &attr);
    if (td == nullptr) skip("not offered: %s", strerror(errno));
    Owned<ibv_pd> pd = make_pd();
    ibv_parent_domain_init_attr parent_attr{};
    parent_attr.pd = pd;
    parent_attr.td = td;
    ibv_pd* parent = ibv_alloc_parent_domain(device().context, &parent_attr);
    EXPECT(parent != nullptr);
    EXPECT_ERROR(ibv_dealloc_td(td), EBUSY);
    EXPECT_OK(ibv_dealloc_pd(parent));
    EXPECT_OK(ibv_dealloc_td(td));
}
