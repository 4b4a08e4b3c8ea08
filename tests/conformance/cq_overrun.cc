// SPDX-License-Identifier: Apache-2.0
// A full CQ: IBTA 10.8.2 and 11.6.3.1 (CQ overrun is an affiliated error of the CQ; the QPs that lose completions
// cannot continue).
#include "verbs.h"

using namespace conformance;

namespace {

struct Overrun {
    Ends ends{};
    Owned<ibv_context> context;
    Owned<ibv_pd> pd;
    Owned<ibv_cq> cq;
    Owned<ibv_cq> other;
    Buffer memory;
    Owned<ibv_qp> a, b;

    Overrun()
        : context(open_device().context),
          pd(OWN(ibv_alloc_pd(context))),
          cq(OWN(ibv_create_cq(context, 4, nullptr, nullptr, 0))),
          other(OWN(ibv_create_cq(context, 256, nullptr, nullptr, 0))),
          memory(pd, 8192),
          a(make_qp(pd, cq, other, {.send_wr = 4096})),
          b(make_qp(pd, other, other)) {
        connect(a, b, {});
        // No device rounds 4 up to this number.
        EXPECT(cq->cqe < 1024, "%d entries", cq->cqe);
        const int requests = cq->cqe + 40;
        for (int i = 0; i < requests; ++i)
            post(a, {.opcode = IBV_WR_RDMA_WRITE,
                     .sges = {memory.sge(0, 8)},
                     .to = memory.address(4096),
                     .rkey = memory.rkey(),
                     .id = static_cast<uint64_t>(i)});
    }
};

}  // namespace

CASE(cq_overrun, it_is_an_event_of_the_cq) {
    Overrun overrun;
    EXPECT(event_comes(overrun.context, IBV_EVENT_CQ_ERR, overrun.cq));
}

// A program must not wait forever for lost completions. Either the QP is in error, or polling reports that the CQ is.
CASE(cq_overrun, the_program_learns_that_completions_are_lost) {
    Overrun overrun;
    EXPECT(event_comes(overrun.context, IBV_EVENT_CQ_ERR, overrun.cq));
    ibv_wc wc;
    EXPECT(poll_until([&] { return ibv_poll_cq(overrun.cq, 1, &wc) < 0 || state_of(overrun.a) == IBV_QPS_ERR; }, 3));
}

CASE(cq_overrun, other_cqs_go_on) {
    Overrun overrun;
    EXPECT(event_comes(overrun.context, IBV_EVENT_CQ_ERR, overrun.cq));
    Ends& ends = overrun.ends;
    fill(ends.local.at(), 1000, 1);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 1000)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    succeeded(ends.send_cq);
    EXPECT(matches(ends.remote.at(), 1000, 1));
}

// A CQ that is exactly full has not overrun.
CASE(cq_overrun, a_full_cq_has_all_completions) {
    Ends ends;
    Owned<ibv_cq> cq = make_cq(16);
    Owned<ibv_qp> a = make_qp(ends.pd, cq, ends.recv_cq, {.send_wr = 1024}),
                  b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
    connect(a, b, {});
    drop_events(device().context);
    const int entries = cq->cqe;
    for (int i = 0; i < entries; ++i)
        post(a, {.opcode = IBV_WR_RDMA_WRITE,
                 .sges = {ends.local.sge(0, 8)},
                 .to = ends.remote.address(),
                 .rkey = ends.remote.rkey(),
                 .id = static_cast<uint64_t>(i)});
    sleep_for(0.1);
    for (int i = 0; i < entries; ++i) EXPECT(succeeded(cq).wr_id == static_cast<uint64_t>(i));
    EXPECT(state_of(a) == IBV_QPS_RTS);
}
