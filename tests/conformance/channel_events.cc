// SPDX-License-Identifier: Apache-2.0
// Completion channels: `man ibv_create_comp_channel`, ibv_req_notify_cq, ibv_get_cq_event; IBTA 11.4.2.2 (Request
// Completion Notification).
#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <thread>

#include "verbs.h"

using namespace conformance;

namespace {

// A connection with both CQs on one channel.
struct Armed {
    Ends ends;
    Owned<ibv_comp_channel> channel = make_channel();
    int send_tag = 1, recv_tag = 2;
    Owned<ibv_cq> send_cq = make_cq(64, channel, &send_tag), recv_cq = make_cq(64, channel, &recv_tag);
    Owned<ibv_qp> a = make_qp(ends.pd, send_cq, ends.recv_cq), b = make_qp(ends.pd, ends.peer_send_cq, recv_cq);

    Armed() { connect(a, b, {}); }
    void write(unsigned flags = IBV_SEND_SIGNALED) {
        post(a, {.opcode = IBV_WR_RDMA_WRITE,
                 .sges = {ends.local.sge(0, 8)},
                 .to = ends.remote.address(),
                 .rkey = ends.remote.rkey(),
                 .flags = flags});
    }
    void send(unsigned flags) {
        post_recv(b, {ends.remote.sge(0, 100)});
        post(a, {.sges = {ends.local.sge(0, 10)}, .flags = flags});
    }
    bool readable(double seconds) {
        pollfd file{channel->fd, POLLIN, 0};
        return ::poll(&file, 1, static_cast<int>(seconds * 1000)) == 1;
    }
    // Consumes an event, which must belong to `cq`.
    void event_of(ibv_cq* cq) {
        EXPECT(readable(3), "no event");
        ibv_cq* got;
        void* context;
        EXPECT(ibv_get_cq_event(channel, &got, &context) == 0);
        ibv_ack_cq_events(got, 1);
        EXPECT(got == cq && context == cq->cq_context);
    }
    void no_event(double seconds = 0.08) { EXPECT(!readable(seconds), "an event that nobody asked for"); }
    // Lets posted requests complete without polling the CQs under test.
    void quiesce() { sleep_for(0.05); }
};

}  // namespace

CASE(channel_events, a_completion_after_arming_gives_an_event) {
    Armed t;
    EXPECT_OK(ibv_req_notify_cq(t.send_cq, 0));
    t.write();
    t.event_of(t.send_cq);
    succeeded(t.send_cq);
}

CASE(channel_events, without_arming_there_is_none) {
    Armed t;
    t.write();
    t.no_event();
    succeeded(t.send_cq);
}

CASE(channel_events, arming_is_for_one_event) {
    Armed t;
    EXPECT_OK(ibv_req_notify_cq(t.send_cq, 0));
    t.write();
    t.event_of(t.send_cq);
    t.write();
    t.no_event();
    succeeded(t.send_cq);
    succeeded(t.send_cq);
    EXPECT_OK(ibv_req_notify_cq(t.send_cq, 0));
    t.write();
    t.event_of(t.send_cq);
}

CASE(channel_events, the_event_names_its_cq) {
    Armed t;
    EXPECT_OK(ibv_req_notify_cq(t.recv_cq, 0));
    t.send(0);
    t.event_of(t.recv_cq);
    succeeded(t.recv_cq);
}

CASE(channel_events, armed_for_solicited_ignores_other_sends) {
    Armed t;
    EXPECT_OK(ibv_req_notify_cq(t.recv_cq, 1));
    t.send(IBV_SEND_SIGNALED);
    succeeded(t.send_cq);
    t.no_event();
    t.send(IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
    t.event_of(t.recv_cq);
}

CASE(channel_events, solicited_write_with_immediate_gives_an_event) {
    Armed t;
    EXPECT_OK(ibv_req_notify_cq(t.recv_cq, 1));
    post_recv(t.b, {});
    post(t.a, {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
               .sges = {t.ends.local.sge(0, 8)},
               .to = t.ends.remote.address(),
               .rkey = t.ends.remote.rkey(),
               .flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED,
               .imm = 1});
    t.event_of(t.recv_cq);
}

// IBTA 11.4.2.2: an unsuccessful completion is an event for a CQ that is armed for solicited completions.
CASE(channel_events, armed_for_solicited_takes_an_error) {
    Armed t;
    EXPECT_OK(ibv_req_notify_cq(t.send_cq, 1));
    post(t.a, {.opcode = IBV_WR_RDMA_WRITE,
               .sges = {t.ends.local.sge(0, 8)},
               .to = t.ends.remote.address(),
               .rkey = t.ends.remote.rkey() ^ 0x5a5a5a});
    t.event_of(t.send_cq);
    next_is(t.send_cq, IBV_WC_REM_ACCESS_ERR);
}

// IBTA 11.4.2.2: a request for any completion is not weakened by a later request for solicited completions.
CASE(channel_events, arming_for_solicited_does_not_weaken) {
    Armed t;
    EXPECT_OK(ibv_req_notify_cq(t.recv_cq, 0));
    EXPECT_OK(ibv_req_notify_cq(t.recv_cq, 1));
    t.send(IBV_SEND_SIGNALED);
    t.event_of(t.recv_cq);
}

CASE(channel_events, arming_for_any_strengthens) {
    Armed t;
    EXPECT_OK(ibv_req_notify_cq(t.recv_cq, 1));
    EXPECT_OK(ibv_req_notify_cq(t.recv_cq, 0));
    t.send(IBV_SEND_SIGNALED);
    t.event_of(t.recv_cq);
}

CASE(channel_events, a_non_blocking_channel_gives_EAGAIN) {
    Armed t;
    const int flags = fcntl(t.channel->fd, F_GETFL);
    EXPECT(fcntl(t.channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
    ibv_cq* cq;
    void* context;
    errno = 0;
    EXPECT(ibv_get_cq_event(t.channel, &cq, &context) == -1);
    EXPECT(errno == EAGAIN, "%s", strerror(errno));
}

CASE(channel_events, a_blocking_wait_ends_with_the_completion) {
    Armed t;
    EXPECT_OK(ibv_req_notify_cq(t.send_cq, 0));
    std::thread later([&] {
        sleep_for(0.1);
        ibv_sge sge = t.ends.local.sge(0, 8);
        ibv_send_wr wr{}, *bad;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma = {t.ends.remote.address(), t.ends.remote.rkey()};
        ibv_post_send(t.a, &wr, &bad);
    });
    ibv_cq* cq = nullptr;
    void* context;
    const int got = ibv_get_cq_event(t.channel, &cq, &context);
    later.join();
    EXPECT(got == 0 && cq == t.send_cq);
    ibv_ack_cq_events(cq, 1);
    succeeded(t.send_cq);
}

// `man ibv_get_cq_event`: ibv_destroy_cq waits until every event is acknowledged.
CASE(channel_events, destroy_waits_for_the_acknowledgement) {
    Ends ends;
    Owned<ibv_comp_channel> channel = make_channel();
    ibv_cq* cq = make_cq(64, channel).release();
    {
        Owned<ibv_qp> a = make_qp(ends.pd, cq, ends.recv_cq),
                      b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
        connect(a, b, {});
        EXPECT_OK(ibv_req_notify_cq(cq, 0));
        post(a, {.opcode = IBV_WR_RDMA_WRITE,
                 .sges = {ends.local.sge(0, 8)},
                 .to = ends.remote.address(),
                 .rkey = ends.remote.rkey()});
        ibv_cq* got;
        void* context;
        EXPECT(ibv_get_cq_event(channel, &got, &context) == 0);
    }
    std::atomic<bool> destroyed = false;
    int error = -1;
    std::thread destroyer([&] {
        error = ibv_destroy_cq(cq);
        destroyed = true;
    });
    sleep_for(0.1);
    const bool early = destroyed;
    if (!early) ibv_ack_cq_events(cq, 1);
    destroyer.join();
    EXPECT(!early, "destroyed before the acknowledgement");
    EXPECT(error == 0);
}

CASE(channel_events, events_may_be_acknowledged_together) {
    Armed t;
    for (int i = 0; i < 5; ++i) {
        EXPECT_OK(ibv_req_notify_cq(t.send_cq, 0));
        t.write();
        ibv_cq* got;
        void* context;
        EXPECT(t.readable(3));
        EXPECT(ibv_get_cq_event(t.channel, &got, &context) == 0);
        succeeded(t.send_cq);
    }
    ibv_ack_cq_events(t.send_cq, 5);  // so that destroying the CQ does not wait
}

CASE(channel_events, busy_with_a_cq) {
    Owned<ibv_comp_channel> channel = make_channel();
    Owned<ibv_cq> cq = make_cq(16, channel);
    EXPECT_ERROR(ibv_destroy_comp_channel(channel), EBUSY);
    EXPECT_OK(cq.destroy());
    EXPECT_OK(channel.destroy());
}

// Destroying a CQ also removes its events, so that no thread receives a CQ that no longer exists.
CASE(channel_events, a_destroyed_cq_leaves_no_event) {
    Armed t;
    {
        Owned<ibv_cq> cq = make_cq(64, t.channel);
        Owned<ibv_qp> a = make_qp(t.ends.pd, cq, t.ends.recv_cq),
                      b = make_qp(t.ends.pd, t.ends.peer_send_cq, t.ends.peer_recv_cq);
        connect(a, b, {});
        EXPECT_OK(ibv_req_notify_cq(cq, 0));
        post(a, {.opcode = IBV_WR_RDMA_WRITE,
                 .sges = {t.ends.local.sge(0, 8)},
                 .to = t.ends.remote.address(),
                 .rkey = t.ends.remote.rkey()});
        succeeded(cq);
        EXPECT(t.readable(3));
    }
    t.no_event(0.02);
}
