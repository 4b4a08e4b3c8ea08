// SPDX-License-Identifier: Apache-2.0
// Receives that ibv_post_recv refuses: its manual page.
#include "verbs.h"

using namespace conformance;

CASE(post_recv_args, too_many_sges_are_refused) {
    Ends ends;
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    EXPECT_OK(ibv_query_qp(ends.a, &attr, IBV_QP_CAP, &init));
    const int error = try_post_recv(ends.a, std::vector<ibv_sge>(init.cap.max_recv_sge + 1, ends.local.sge(0, 8)));
    EXPECT(error == EINVAL || error == ENOMEM, "%s", strerror(error));
}

CASE(post_recv_args, a_full_queue_is_ENOMEM) {
    Ends ends({.recv_wr = 8});
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    EXPECT_OK(ibv_query_qp(ends.b, &attr, IBV_QP_CAP, &init));
    uint32_t posted = 0;
    int error = 0;
    while (posted < 4 * init.cap.max_recv_wr &&
           (error = try_post_recv(ends.b, {ends.remote.sge(posted * 8, 8)}, posted)) == 0)
        ++posted;
    EXPECT(posted >= init.cap.max_recv_wr);
    EXPECT(error == ENOMEM, "%s", strerror(error));
    // They are consumed in order, and their entries are free again.
    for (uint32_t i = 0; i < posted; ++i) {
        post(ends.a, {.sges = {ends.local.sge(0, 8)}});
        EXPECT(succeeded(ends.peer_recv_cq).wr_id == i);
        succeeded(ends.send_cq);
    }
    EXPECT_OK(try_post_recv(ends.b, {ends.remote.sge(0, 8)}));
}

CASE(post_recv_args, bad_wr_is_the_first_that_was_not_posted) {
    Ends ends;
    ibv_sge good = ends.remote.sge(0, 64);
    std::vector<ibv_sge> many(200, good);
    ibv_recv_wr wrs[3] = {{0, &wrs[1], &good, 1}, {1, &wrs[2], many.data(), 200}, {2, nullptr, &good, 1}},
                *bad = nullptr;
    EXPECT(ibv_post_recv(ends.b, wrs, &bad) != 0);
    EXPECT(bad == &wrs[1]);
    post(ends.a, {.sges = {ends.local.sge(0, 8)}});
    EXPECT(succeeded(ends.peer_recv_cq).wr_id == 0);
}

// A QP with an SRQ has no receive queue of its own.
CASE(post_recv_args, a_qp_with_an_srq_takes_none) {
    Ends ends;
    Owned<ibv_srq> srq = make_srq(ends.pd);
    Owned<ibv_qp> qp = make_qp(ends.pd, ends.send_cq, ends.recv_cq, {.srq = srq});
    to_init(qp);
    EXPECT(try_post_recv(qp, {ends.local.sge(0, 8)}) != 0);
}

// A bad key is detected at posting, or when the receive is used. No memory is ever written.
CASE(post_recv_args, a_bad_lkey_fails_the_receive) {
    Ends ends;
    const int error = try_post_recv(ends.b, {{ends.remote.address(), 100, ends.remote.lkey() ^ 0x5a5a5a}});
    if (error != 0) return;
    fill(ends.local.at(), 50, 1);
    post(ends.a, {.sges = {ends.local.sge(0, 50)}});
    next_is(ends.peer_recv_cq, IBV_WC_LOC_PROT_ERR);
    next_is(ends.send_cq, IBV_WC_REM_OP_ERR);
    EXPECT(all_bytes(ends.remote.at(), 100, 0));
}
