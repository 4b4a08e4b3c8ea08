// SPDX-License-Identifier: Apache-2.0
// `man ibv_get_async_event`; IBTA 11.6.3: the events and their causes.
#include <fcntl.h>

#include <atomic>
#include <thread>

#include "verbs.h"

using namespace conformance;

namespace {

// A connection in its own context, so that it receives no events of other cases.
struct Private {
    Owned<ibv_context> context{open_device().context};
    Owned<ibv_pd> pd = OWN(ibv_alloc_pd(context));
    Owned<ibv_cq> send_cq = OWN(ibv_create_cq(context, 64, nullptr, nullptr, 0)),
                  recv_cq = OWN(ibv_create_cq(context, 64, nullptr, nullptr, 0));
    Buffer memory{pd, 8192};
    Owned<ibv_srq> srq = make_srq(pd);
    Owned<ibv_qp> a = make_qp(pd, send_cq, recv_cq), b = make_qp(pd, send_cq, recv_cq),
                  with_srq = make_qp(pd, send_cq, recv_cq, {.srq = srq});
};

}  // namespace

CASE(async_events, a_non_blocking_context_gives_EAGAIN) {
    Owned<ibv_context> context(open_device().context);
    EXPECT(fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK) == 0);
    ibv_async_event event;
    errno = 0;
    EXPECT(ibv_get_async_event(context, &event) == -1);
    EXPECT(errno == EAGAIN, "%s", strerror(errno));
}

// IBTA 11.6.3.2: a QP that has an SRQ and is in error takes no more receives.
CASE(async_events, last_wqe_reached_in_error) {
    Private t;
    to_init(t.with_srq);
    to_state(t.with_srq, IBV_QPS_ERR);
    EXPECT(event_comes(t.context, IBV_EVENT_QP_LAST_WQE_REACHED, t.with_srq));
}

// IBTA 11.6.3.2: the first request arrives while the responder is in RTR.
CASE(async_events, communication_established_in_rtr) {
    Private t;
    to_init(t.a);
    to_init(t.b);
    to_rtr(t.a, {}, device().gid, t.b->qp_num);
    to_rtr(t.b, {}, device().gid, t.a->qp_num);
    to_rts(t.a, {});
    post(t.a, {.opcode = IBV_WR_RDMA_WRITE,
               .sges = {t.memory.sge(0, 8)},
               .to = t.memory.address(4096),
               .rkey = t.memory.rkey()});
    succeeded(t.send_cq);
    EXPECT(event_comes(t.context, IBV_EVENT_COMM_EST, t.b));
}

// IBTA 11.6.3.1, 9.9.3: the responder's program receives an event for a request that violated its access rights.
CASE(async_events, an_access_error_is_an_event_of_the_responder) {
    Private t;
    connect(t.a, t.b, {});
    post(t.a, {.opcode = IBV_WR_RDMA_WRITE,
               .sges = {t.memory.sge(0, 8)},
               .to = t.memory.address(),
               .rkey = t.memory.rkey() ^ 0x5a5a5a});
    next_is(t.send_cq, IBV_WC_REM_ACCESS_ERR);
    EXPECT(event_comes(t.context, IBV_EVENT_QP_ACCESS_ERR, t.b));
    EXPECT(state_of(t.b) == IBV_QPS_ERR);
}

CASE(async_events, drained_in_sqd) {
    Private t;
    connect(t.a, t.b, {});
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    const int error = modify(t.a, attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
    if (error != 0) skip("the driver has no SQD, as Soft-RoCE before Linux 6.4 and mlx5: %s", strerror(error));
    EXPECT(event_comes(t.context, IBV_EVENT_SQ_DRAINED, t.a));
}

// `man ibv_modify_srq`: the event comes once the queue has fewer requests than the limit, and disarms it.
CASE(async_events, srq_limit_reached) {
    Private t;
    for (int i = 0; i < 5; ++i) post_recv(t.srq, {t.memory.sge(4096, 100)});
    Owned<ibv_qp> sender = make_qp(t.pd, t.send_cq, t.recv_cq);
    connect(sender, t.with_srq, {});
    ibv_srq_attr attr{};
    attr.srq_limit = 4;
    EXPECT_OK(ibv_modify_srq(t.srq, &attr, IBV_SRQ_LIMIT));
    post(sender, {.sges = {t.memory.sge(0, 10)}});
    succeeded(t.send_cq);
    succeeded(t.recv_cq);
    EXPECT(!event_comes(t.context, IBV_EVENT_SRQ_LIMIT_REACHED, t.srq, 0.1), "4 are left, the limit is 4");
    post(sender, {.sges = {t.memory.sge(0, 10)}});
    succeeded(t.send_cq);
    EXPECT(event_comes(t.context, IBV_EVENT_SRQ_LIMIT_REACHED, t.srq));
    EXPECT_OK(ibv_query_srq(t.srq, &attr));
    EXPECT(attr.srq_limit == 0, "still armed: %u", attr.srq_limit);
    post(sender, {.sges = {t.memory.sge(0, 10)}});
    succeeded(t.send_cq);
    EXPECT(!event_comes(t.context, IBV_EVENT_SRQ_LIMIT_REACHED, t.srq, 0.1), "a second event");
}

// `man ibv_get_async_event`: destroying an object waits until its events are acknowledged.
CASE(async_events, destroy_waits_for_the_acknowledgement) {
    Private t;
    ibv_qp* qp = make_qp(t.pd, t.send_cq, t.recv_cq, {.srq = t.srq}).release();
    to_init(qp);
    to_state(qp, IBV_QPS_ERR);
    ibv_async_event event;
    EXPECT(ibv_get_async_event(t.context, &event) == 0);
    EXPECT(event.element.qp == qp);
    std::atomic<bool> destroyed = false;
    int error = -1;
    std::thread destroyer([&] {
        error = ibv_destroy_qp(qp);
        destroyed = true;
    });
    sleep_for(0.1);
    const bool early = destroyed;
    if (!early) ibv_ack_async_event(&event);
    destroyer.join();
    EXPECT(!early, "destroyed before the acknowledgement");
    EXPECT(error == 0);
}

CASE(async_events, a_destroyed_object_leaves_no_event) {
    Private t;
    {
        Owned<ibv_qp> qp = make_qp(t.pd, t.send_cq, t.recv_cq, {.srq = t.srq});
        to_init(qp);
        to_state(qp, IBV_QPS_ERR);
        sleep_for(0.05);
        EXPECT(pending_events(t.context) == 1);
    }
    EXPECT(pending_events(t.context) == 0);
}

CASE(async_events, contexts_have_their_own_events) {
    Private t, other;
    to_init(t.with_srq);
    to_state(t.with_srq, IBV_QPS_ERR);
    EXPECT(event_comes(t.context, IBV_EVENT_QP_LAST_WQE_REACHED, t.with_srq));
    EXPECT(pending_events(other.context) == 0);
}
