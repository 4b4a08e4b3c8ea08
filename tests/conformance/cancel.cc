// SPDX-License-Identifier: Apache-2.0
// Threads that are cancelled (`man 7 pthreads`, cancellation points). No verbs call is a cancellation point, except the
// two that wait by read(): ibv_get_cq_event and ibv_get_async_event. Other threads are not affected.
#include <poll.h>
#include <pthread.h>

#include <functional>

#include "verbs.h"

using namespace conformance;

namespace {

// A thread that runs `body`, and reports how it ended.
class Cancellable {
  public:
    explicit Cancellable(std::function<void()> body) : body_(std::move(body)) {
        EXPECT_OK(pthread_create(&thread_, nullptr, run, this));
    }
    ~Cancellable() {
        if (!joined_) pthread_join(thread_, nullptr);
    }
    void cancel() { pthread_cancel(thread_); }
    bool was_cancelled() {
        void* result = nullptr;
        joined_ = true;
        EXPECT_OK(pthread_join(thread_, &result));
        EXPECT(failed_.empty(), "%s", failed_.c_str());
        return result == PTHREAD_CANCELED;
    }

  private:
    static void* run(void* self) {
        auto& of = *static_cast<Cancellable*>(self);
        try {
            of.body_();
        } catch (const std::exception& error) {
            of.failed_ = error.what();
        }
        return nullptr;
    }

    std::function<void()> body_;
    std::string failed_;
    bool joined_ = false;
    pthread_t thread_{};
};

// Runs `body` in a thread that is cancelled at the first cancellation point. Returns true if `body` ran to its end.
bool survives(const std::function<void()>& body) {
    bool whole = false;
    Cancellable thread([&] {
        pthread_cancel(pthread_self());
        body();
        whole = true;
        pthread_testcancel();
    });
    EXPECT(thread.was_cancelled());
    return whole;
}

ibv_cq* next_event(ibv_comp_channel* channel) {
    ibv_cq* cq = nullptr;
    void* context;
    EXPECT(ibv_get_cq_event(channel, &cq, &context) == 0, "%s", strerror(errno));
    return cq;
}

// The time in seconds that a thread may take to start waiting in the kernel. The cases are right even if it takes
// longer.
constexpr double kSoon = 0.05;

}  // namespace

CASE(cancel, not_in_posting_and_polling) {
    Ends ends;
    Owned<ibv_comp_channel> channel = make_channel();
    Owned<ibv_cq> cq = make_cq(64, channel);
    Owned<ibv_qp> a = make_qp(ends.pd, cq, ends.recv_cq), b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
    connect(a, b, {});
    EXPECT(survives([&] {
        for (int i = 0; i < 100; ++i) {
            EXPECT_OK(ibv_req_notify_cq(cq, 0));
            post_recv(b, {ends.remote.sge(0, 64)});
            post(a, {.opcode = IBV_WR_SEND, .sges = {ends.local.sge(0, 64)}});
            succeeded(cq);
            succeeded(ends.peer_recv_cq);
        }
    }));
}

CASE(cancel, not_in_what_makes_and_destroys_objects) {
    Ends ends;
    EXPECT(survives([&] {
        Owned<ibv_pd> pd = make_pd();
        Buffer local(pd, 4096), remote(pd, 4096);
        Owned<ibv_comp_channel> channel = make_channel();
        Owned<ibv_cq> cq = make_cq(16, channel), peer_cq = make_cq();
        Owned<ibv_srq> srq = make_srq(pd);
        Owned<ibv_ah> ah = make_ah(pd);
        Owned<ibv_qp> a = make_qp(pd, cq, cq), b = make_qp(pd, peer_cq, peer_cq);
        connect(a, b, {});
        post(a,
             {.opcode = IBV_WR_RDMA_WRITE, .sges = {local.sge(0, 8)}, .to = remote.address(), .rkey = remote.rkey()});
        succeeded(cq);
        int count = 0;
        ibv_free_device_list(ibv_get_device_list(&count));
        ibv_device_attr attr;
        EXPECT_OK(ibv_query_device(device().context, &attr));
        Owned<ibv_context> context(open_device().context);
    }));
}

// ibv_destroy_cq() waits until the events of the CQ are acknowledged.
CASE(cancel, not_in_waiting_for_acknowledgements) {
    Ends ends;
    Owned<ibv_comp_channel> channel = make_channel();
    ibv_cq* const cq = make_cq(16, channel).release();
    {
        Owned<ibv_qp> a = make_qp(ends.pd, cq, cq), b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
        connect(a, b, {});
        EXPECT_OK(ibv_req_notify_cq(cq, 0));
        post(a, {.opcode = IBV_WR_RDMA_WRITE,
                 .sges = {ends.local.sge(0, 8)},
                 .to = ends.remote.address(),
                 .rkey = ends.remote.rkey()});
        EXPECT(next_event(channel) == cq);
        succeeded(cq);
    }
    int destroyed = -1;
    Cancellable thread([&] { destroyed = ibv_destroy_cq(cq); });
    thread.cancel();
    sleep_for(kSoon);
    ibv_ack_cq_events(cq, 1);
    thread.was_cancelled();
    EXPECT(destroyed == 0, "%d", destroyed);
}

CASE(cancel, in_get_cq_event_though_an_event_is_there) {
    Ends ends;
    Owned<ibv_comp_channel> channel = make_channel();
    Owned<ibv_cq> cq = make_cq(16, channel);
    Owned<ibv_qp> a = make_qp(ends.pd, cq, ends.recv_cq), b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
    connect(a, b, {});
    EXPECT_OK(ibv_req_notify_cq(cq, 0));
    post(a, {.opcode = IBV_WR_RDMA_WRITE,
             .sges = {ends.local.sge(0, 8)},
             .to = ends.remote.address(),
             .rkey = ends.remote.rkey()});
    succeeded(cq);
    EXPECT(!survives([&] { next_event(channel); }));
    EXPECT(next_event(channel) == cq);  // the event was not consumed
    ibv_ack_cq_events(cq, 1);
}

// One of two waiting threads is cancelled before, while or after the event comes. The event goes to the other thread,
// or stays for the next one.
CASE(cancel, in_get_cq_event_while_others_wait) {
    Ends ends;
    Owned<ibv_comp_channel> channel = make_channel();
    Owned<ibv_cq> cq = make_cq(16, channel);
    Owned<ibv_qp> a = make_qp(ends.pd, cq, ends.recv_cq), b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
    connect(a, b, {});
    for (int round = 0; round < 100; ++round) {
        EXPECT_OK(ibv_req_notify_cq(cq, 0));
        int taken = 0;
        const auto take = [&] {
            ibv_ack_cq_events(next_event(channel), 1);
            __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
        };
        Cancellable one(take), other(take);
        if (round % 4 == 0) sleep_for(kSoon);
        const auto write = [&] {
            post(a, {.opcode = IBV_WR_RDMA_WRITE,
                     .sges = {ends.local.sge(0, 8)},
                     .to = ends.remote.address(),
                     .rkey = ends.remote.rkey()});
            succeeded(cq);
        };
        if (round % 2 == 0) one.cancel();
        write();
        if (round % 2 != 0) one.cancel();
        const bool cancelled = one.was_cancelled();
        if (!cancelled) {  // this thread has consumed the event; the other waits for another one
            EXPECT_OK(ibv_req_notify_cq(cq, 0));
            write();
        }
        EXPECT(!other.was_cancelled());
        EXPECT(taken == (cancelled ? 1 : 2), "%d in round %d", taken, round);
        pollfd file{.fd = channel->fd, .events = POLLIN, .revents = 0};
        EXPECT(poll(&file, 1, 0) == 0, "an event too much in round %d", round);
    }
}

CASE(cancel, in_get_async_event) {
    Owned<ibv_context> context(open_device().context);
    Cancellable thread([&] {
        ibv_async_event event;
        ibv_get_async_event(context, &event);
    });
    sleep_for(kSoon);
    thread.cancel();
    EXPECT(thread.was_cancelled());
    EXPECT_OK(context.destroy());
}
