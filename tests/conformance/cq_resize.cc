// SPDX-License-Identifier: Apache-2.0
// `man ibv_resize_cq`.
#include "verbs.h"

using namespace conformance;

namespace {

// Returns the result of ibv_resize_cq(). Skips the case on a device without the call.
int resized(ibv_cq* cq, int cqe) {
    const int error = ibv_resize_cq(cq, cqe);
    if (error == EOPNOTSUPP || error == ENOSYS) skip("the driver resizes no CQ");
    return error;
}

}  // namespace

CASE(cq_resize, grown_cq_keeps_its_completions) {
    Ends ends;
    Owned<ibv_cq> cq = make_cq(4);
    Owned<ibv_qp> a = make_qp(ends.pd, cq, ends.recv_cq), b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
    connect(a, b, {});
    auto write = [&](uint64_t id) {
        post(a, {.opcode = IBV_WR_RDMA_WRITE,
                 .sges = {ends.local.sge(0, 8)},
                 .to = ends.remote.address(),
                 .rkey = ends.remote.rkey(),
                 .id = id});
    };
    for (uint64_t id = 0; id < 4; ++id) write(id);
    sleep_for(0.05);
    const int error = resized(cq, 64);
    EXPECT(error == 0, "%s", strerror(error));
    EXPECT(cq->cqe >= 64);
    for (uint64_t id = 4; id < 40; ++id) write(id);
    for (uint64_t id = 0; id < 40; ++id) EXPECT(succeeded(cq).wr_id == id);
    stays_empty(cq);
}

// `man ibv_resize_cq`: EINVAL if the CQ has more completions than the new size.
CASE(cq_resize, below_its_completions_is_refused) {
    Ends ends;
    for (int i = 0; i < 20; ++i)
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                      .sges = {ends.local.sge(0, 8)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey(),
                      .id = static_cast<uint64_t>(i)});
    EXPECT(poll_until([&] {
        ibv_wc wc;
        ibv_poll_cq(ends.peer_send_cq, 1, &wc);
        return state_of(ends.a) == IBV_QPS_RTS;
    }));
    sleep_for(0.1);
    const int error = resized(ends.send_cq, 2);
    // A device may round up to more entries than there are completions, as it may at creation.
    if (error == 0)
        EXPECT(ends.send_cq->cqe >= 20, "%d entries for 20 completions", ends.send_cq->cqe);
    else
        EXPECT(error == EINVAL, "%s", strerror(error));
    for (uint64_t i = 0; i < 20; ++i) EXPECT(succeeded(ends.send_cq).wr_id == i);
}

CASE(cq_resize, out_of_range_is_refused) {
    Owned<ibv_cq> cq = make_cq();
    const int error = resized(cq, 0);
    EXPECT(error == EINVAL, "%s", strerror(error));
    EXPECT_ERROR(ibv_resize_cq(cq, device().attr.max_cqe + 1), EINVAL);
}
