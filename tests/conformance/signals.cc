// SPDX-License-Identifier: Apache-2.0
// Blocking calls and signals. ibv_get_cq_event and ibv_get_async_event wait by read() on a file, and restart or end
// like read() (`man 7 signal`): with SA_RESTART they restart, otherwise they fail with EINTR.
#include <pthread.h>
#include <sys/time.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "verbs.h"

using namespace conformance;

namespace {

std::atomic<int> ticks;

// A timer that interrupts the calling thread every 20 ms, until the end of the scope.
struct Timer {
    explicit Timer(int flags) {
        ticks = 0;
        struct sigaction action {};
        action.sa_handler = [](int) { ++ticks; };
        action.sa_flags = flags;
        sigaction(SIGALRM, &action, &old);
        const itimerval every{{0, 20000}, {0, 20000}};
        setitimer(ITIMER_REAL, &every, nullptr);
    }
    ~Timer() {
        const itimerval off{};
        setitimer(ITIMER_REAL, &off, nullptr);
        sigaction(SIGALRM, &old, nullptr);
    }
    struct sigaction old;
};

// Starts a thread that never receives the timer's signal.
template <typename Body>
std::thread quiet_thread(Body body) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    std::thread thread(body);
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    return thread;
}

}  // namespace

CASE(signals, get_cq_event_goes_on_with_SA_RESTART) {
    Ends ends;
    Owned<ibv_comp_channel> channel = make_channel();
    Owned<ibv_cq> cq = make_cq(16, channel);
    Owned<ibv_qp> a = make_qp(ends.pd, cq, ends.recv_cq), b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
    connect(a, b, {});
    EXPECT_OK(ibv_req_notify_cq(cq, 0));
    const Work work{.opcode = IBV_WR_RDMA_WRITE,
                    .sges = {ends.local.sge(0, 8)},
                    .to = ends.remote.address(),
                    .rkey = ends.remote.rkey()};
    std::thread later = quiet_thread([&] {
        sleep_for(0.3);
        ibv_send_wr wr = request(work), *bad;
        ibv_post_send(a, &wr, &bad);
    });
    int got;
    ibv_cq* of = nullptr;
    void* context;
    {
        Timer timer(SA_RESTART);
        errno = 0;
        got = ibv_get_cq_event(channel, &of, &context);
    }
    const int reason = errno;
    later.join();
    EXPECT(got == 0, "%s", strerror(reason));
    EXPECT(of == cq && ticks >= 3, "%d signals", ticks.load());
    ibv_ack_cq_events(cq, 1);
    succeeded(cq);
}

CASE(signals, get_cq_event_ends_without_SA_RESTART) {
    Owned<ibv_comp_channel> channel = make_channel();
    Owned<ibv_cq> cq = make_cq(16, channel);
    EXPECT_OK(ibv_req_notify_cq(cq, 0));
    Timer timer(0);
    ibv_cq* of;
    void* context;
    errno = 0;
    EXPECT(ibv_get_cq_event(channel, &of, &context) == -1);
    EXPECT(errno == EINTR, "%s", strerror(errno));
}

CASE(signals, get_async_event_goes_on_with_SA_RESTART) {
    Owned<ibv_context> context(open_device().context);
    Owned<ibv_pd> pd = OWN(ibv_alloc_pd(context));
    Owned<ibv_srq> srq = make_srq(pd);
    Owned<ibv_cq> cq = OWN(ibv_create_cq(context, 16, nullptr, nullptr, 0));
    Owned<ibv_qp> qp = make_qp(pd, cq, cq, {.srq = srq});
    to_init(qp);
    std::thread later = quiet_thread([&] {
        sleep_for(0.3);
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_ERR;
        ibv_modify_qp(qp, &attr, IBV_QP_STATE);  // causes IBV_EVENT_QP_LAST_WQE_REACHED
    });
    int got;
    ibv_async_event event;
    {
        Timer timer(SA_RESTART);
        errno = 0;
        got = ibv_get_async_event(context, &event);
    }
    const int reason = errno;
    later.join();
    EXPECT(got == 0, "%s", strerror(reason));
    ibv_ack_async_event(&event);
    EXPECT(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && ticks >= 3, "event %d, %d signals", event.event_type,
           ticks.load());
}

CASE(signals, get_async_event_ends_without_SA_RESTART) {
    Owned<ibv_context> context(open_device().context);
    Timer timer(0);
    ibv_async_event event;
    errno = 0;
    EXPECT(ibv_get_async_event(context, &event) == -1);
    EXPECT(errno == EINTR, "%s", strerror(errno));
}

// Signals do not disturb posting and polling.
CASE(signals, data_moves_under_a_timer) {
    Ends ends;
    Timer timer(0);
    for (uint32_t i = 0; i < 200; ++i) {
        fill(ends.local.at(), 20000, i);
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                      .sges = {ends.local.sge(0, 20000)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey()});
        succeeded(ends.send_cq);
        EXPECT(matches(ends.remote.at(), 20000, i));
    }
}
