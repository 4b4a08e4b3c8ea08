// SPDX-License-Identifier: Apache-2.0
// Completion channels, asynchronous events, and the extended CQ.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "fixture.h"
#include "verbs/event_queue.h"
#include "verbs/objects.h"
#include "verbs/provider.h"

namespace rove::verbs {
namespace {

bool is_readable(int fd, int timeout_ms) {
    pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&readable, 1, timeout_ms) == 1;
}

TEST(EventQueue, IsReadableExactlyWhileEventsWait) {
    EventQueue<int> queue;
    EXPECT_FALSE(is_readable(queue.fd(), 0));
    for (int event : {1, 2, 1, 3}) queue.push(event);
    queue.drop([](int event) { return event == 1; });
    int event = 0;
    EXPECT_EQ(queue.pop(&event, [](int) {}), 0);
    EXPECT_EQ(event, 2);
    EXPECT_TRUE(is_readable(queue.fd(), 0));
    EXPECT_EQ(queue.pop(&event, [](int) {}), 0);
    EXPECT_EQ(event, 3);
    EXPECT_FALSE(is_readable(queue.fd(), 0));
}

TEST(EventQueue, EveryThreadThatWaitsGetsAnEvent) {
    EventQueue<int> queue;
    std::atomic<int> sum{0};
    std::vector<std::thread> waiting;
    for (int i = 0; i < 4; ++i) {
        waiting.emplace_back([&] {
            for (int round = 0; round < 500; ++round) {
                int event = 0;
                ASSERT_EQ(queue.pop(&event, [](int) {}), 0);
                sum += event;
            }
        });
    }
    int pushed = 0;
    for (int event = 1; event <= 2000; ++event) {
        queue.push(event);
        pushed += event;
        if (event % 100 == 0) usleep(1000);  // so that they wait
    }
    for (std::thread& thread : waiting) thread.join();
    EXPECT_EQ(sum, pushed);
    EXPECT_FALSE(is_readable(queue.fd(), 0));
}

// Sends signals to the thread that made it for a tenth of a second, then does `last`.
class Signals {
  public:
    Signals(int flags, auto last) {
        struct sigaction action {};
        action.sa_handler = [](int) {};
        action.sa_flags = flags;
        sigaction(SIGUSR1, &action, nullptr);
        thread_ = std::thread([target = pthread_self(), last] {
            for (int i = 0; i < 20; ++i) {
                usleep(5000);
                pthread_kill(target, SIGUSR1);
            }
            last();
        });
    }
    ~Signals() {
        thread_.join();
        signal(SIGUSR1, SIG_DFL);
    }

  private:
    std::thread thread_;
};

// signal(7): as read() does.
TEST_F(VerbsTest, WaitingForAnEventGoesOnAfterASignalThatRestarts) {
    Cq& cq = from(cq_);
    ibv_comp_channel* channel = ibv_create_comp_channel(context_);
    ibv_cq* got = nullptr;
    void* cq_context = nullptr;
    {
        const Signals signals(SA_RESTART, [&] { from(channel).events.push(&cq); });
        EXPECT_EQ(ibv_get_cq_event(channel, &got, &cq_context), 0);
        EXPECT_EQ(got, cq_);
    }
    ibv_ack_cq_events(got, 1);
    ibv_async_event event;
    {
        const Signals signals(SA_RESTART, [&] {
            from(context_->device).provider->port_event(IBV_EVENT_PORT_ACTIVE, *from(context_).interface);
        });
        EXPECT_EQ(ibv_get_async_event(context_, &event), 0);
        EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ACTIVE);
    }
    ibv_ack_async_event(&event);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(VerbsTest, WaitingForAnEventEndsWithASignalThatDoesNotRestart) {
    ibv_comp_channel* channel = ibv_create_comp_channel(context_);
    ibv_cq* got = nullptr;
    void* cq_context = nullptr;
    ibv_async_event event;
    {
        const Signals signals(0, [] {});
        EXPECT_EQ(ibv_get_cq_event(channel, &got, &cq_context), -1);
        EXPECT_EQ(errno, EINTR);
    }
    {
        const Signals signals(0, [] {});
        EXPECT_EQ(ibv_get_async_event(context_, &event), -1);
        EXPECT_EQ(errno, EINTR);
    }
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

// D21
TEST_F(VerbsTest, PortEventsThatNobodyReadsDoNotPileUp) {
    Provider& provider = *from(context_->device).provider;
    const datapath::Device& port = *from(context_).interface;
    for (int i = 0; i < 10'000; ++i) {
        provider.port_event(IBV_EVENT_PORT_ERR, port);
        provider.port_event(IBV_EVENT_PORT_ACTIVE, port);
    }
    provider.port_event(IBV_EVENT_PORT_ERR, port);
    for (const ibv_event_type type : {IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR}) {
        ASSERT_TRUE(is_readable(context_->async_fd, 0));
        ibv_async_event event;
        ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
        EXPECT_EQ(event.event_type, type) << "the last one says how it is now";
        ibv_ack_async_event(&event);
    }
    EXPECT_FALSE(is_readable(context_->async_fd, 0));
}

class EventTest : public VerbsTest {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        channel_ = ibv_create_comp_channel(context_);
        events_cq_ = ibv_create_cq(context_, 16, this, channel_, 0);
        ibv_qp_init_attr attr = init_attr(IBV_QPT_RC);
        a_ = ibv_create_qp(pd_, &attr);
        attr.recv_cq = events_cq_;
        b_ = ibv_create_qp(pd_, &attr);
        connect(a_, b_->qp_num);
        connect(b_, a_->qp_num);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_destroy_qp(a_), 0);
        EXPECT_EQ(ibv_destroy_qp(b_), 0);
        EXPECT_EQ(ibv_destroy_cq(events_cq_), 0);
        EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
        VerbsTest::TearDown();
    }
    // A message from a to b, at whose end a completion is seen on a's side.
    void send(unsigned flags) {
        ibv_recv_wr recv{}, *bad_recv;
        ASSERT_EQ(ibv_post_recv(b_, &recv, &bad_recv), 0);
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED | flags;
        ASSERT_EQ(ibv_post_send(a_, &wr, &bad), 0);
        EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
    }
    ibv_comp_channel* channel_ = nullptr;
    ibv_cq* events_cq_ = nullptr;
    ibv_qp *a_ = nullptr, *b_ = nullptr;
};

TEST_F(EventTest, OneEventPerArming) {
    send(0);
    EXPECT_FALSE(is_readable(channel_->fd, 0)) << "was not armed";
    ASSERT_EQ(ibv_req_notify_cq(events_cq_, 0), 0);
    send(0);
    send(0);
    ASSERT_TRUE(is_readable(channel_->fd, 1000));
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), 0);
    EXPECT_EQ(cq, events_cq_);
    EXPECT_EQ(cq_context, this);
    EXPECT_FALSE(is_readable(channel_->fd, 0));
    ibv_ack_cq_events(cq, 1);
}

TEST_F(EventTest, SolicitedOnly) {
    ASSERT_EQ(ibv_req_notify_cq(events_cq_, 1), 0);
    send(0);
    EXPECT_FALSE(is_readable(channel_->fd, 0));
    send(IBV_SEND_SOLICITED);
    EXPECT_TRUE(is_readable(channel_->fd, 1000));  // and is dropped, not taken, when the CQ goes
}

// IBTA 11.4.2.2
TEST_F(EventTest, ArmingForSolicitedDoesNotUndoArmingForAny) {
    ASSERT_EQ(ibv_req_notify_cq(events_cq_, 0), 0);
    ASSERT_EQ(ibv_req_notify_cq(events_cq_, 1), 0);
    send(0);
    EXPECT_TRUE(is_readable(channel_->fd, 1000));
}

// D17
TEST_F(EventTest, ASharedReceiveQueueThatIsLowWhenItIsArmedSaysSoAtOnce) {
    ibv_srq_init_attr attr{.srq_context = nullptr, .attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0}};
    ibv_srq* srq = ibv_create_srq(pd_, &attr);
    ibv_recv_wr recv{}, *bad;
    for (int i = 0; i < 3; ++i) ASSERT_EQ(ibv_post_srq_recv(srq, &recv, &bad), 0);
    ibv_srq_attr arm{.max_wr = 0, .max_sge = 0, .srq_limit = 3};
    ASSERT_EQ(ibv_modify_srq(srq, &arm, IBV_SRQ_LIMIT), 0);
    EXPECT_FALSE(is_readable(context_->async_fd, 0)) << "not below it";
    arm.srq_limit = 4;
    ASSERT_EQ(ibv_modify_srq(srq, &arm, IBV_SRQ_LIMIT), 0);
    ASSERT_TRUE(is_readable(context_->async_fd, 0));
    ibv_async_event event;
    ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(event.element.srq, srq);
    ibv_ack_async_event(&event);
    ASSERT_EQ(ibv_query_srq(srq, &arm), 0);
    EXPECT_EQ(arm.srq_limit, 0u) << "armed once, told once";
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(EventTest, AResizedSharedReceiveQueueKeepsWhatIsPosted) {
    ibv_device_attr device;
    ASSERT_EQ(ibv_query_device(context_, &device), 0);
    EXPECT_NE(device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE, 0u);
    ibv_srq_init_attr attr{.srq_context = nullptr, .attr = {.max_wr = 8, .max_sge = 2, .srq_limit = 0}};
    ibv_srq* srq = ibv_create_srq(pd_, &attr);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC, srq);
    ibv_qp* c = ibv_create_qp(pd_, &init);
    connect(c, c->qp_num);  // to itself
    uint64_t posted = 0, taken = 0;
    const auto post = [&](int count) {
        for (int i = 0; i < count; ++i) {
            ibv_sge targets[] = {sge(4096 + posted * 16, 4), sge(8192 + posted * 16, 4)};
            ibv_recv_wr recv{}, *bad;
            recv.wr_id = posted++;
            recv.sg_list = targets;
            recv.num_sge = 2;
            ASSERT_EQ(ibv_post_srq_recv(srq, &recv, &bad), 0);
        }
    };
    const auto take = [&](int count) {
        ibv_send_wr wr{}, *bad;
        ibv_sge source = sge(0, 8);
        wr.opcode = IBV_WR_SEND;
        wr.sg_list = &source;
        wr.num_sge = 1;
        for (int i = 0; i < count; ++i, ++taken) {
            for (size_t byte = 0; byte < 8; ++byte) buffer_[byte] = static_cast<uint8_t>(taken + byte);
            ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
            const ibv_wc wc = wait(cq_);
            EXPECT_EQ(wc.wr_id, taken);
            for (size_t byte = 0; byte < 8; ++byte) {
                EXPECT_EQ(buffer_[(byte < 4 ? 4096 : 8188) + taken * 16 + byte], static_cast<uint8_t>(taken + byte));
            }
        }
    };
    const auto resize = [&](uint32_t max_wr, int mask = IBV_SRQ_MAX_WR, uint32_t limit = 0) {
        ibv_srq_attr set{.max_wr = max_wr, .max_sge = 0, .srq_limit = limit};
        return ibv_modify_srq(srq, &set, mask);
    };
    post(8);
    take(5);
    post(4);  // around the end of the ring
    EXPECT_EQ(resize(6), EINVAL) << "7 wait";
    EXPECT_EQ(resize(0), EINVAL);
    EXPECT_EQ(resize(static_cast<uint32_t>(device.max_srq_wr) + 1), EINVAL);
    ASSERT_EQ(resize(7), 0);
    ibv_recv_wr recv{}, *bad;
    EXPECT_EQ(ibv_post_srq_recv(srq, &recv, &bad), ENOMEM);
    take(2);
    ASSERT_EQ(resize(100), 0);
    post(60);
    take(3);
    EXPECT_EQ(resize(63, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 64), EINVAL) << "the limit is more";
    ibv_srq_attr now{};
    ASSERT_EQ(ibv_query_srq(srq, &now), 0);
    EXPECT_EQ(now.max_wr, 100u) << "all of it or nothing";
    EXPECT_EQ(resize(64, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 10), 0);
    EXPECT_EQ(resize(9), EINVAL) << "less than the limit that is armed";
    ASSERT_EQ(ibv_query_srq(srq, &now), 0);
    EXPECT_EQ(now.max_wr, 64u);
    EXPECT_EQ(now.srq_limit, 10u);
    take(50);
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(EventTest, ASharedReceiveQueueSaysOncePerArmingThatItRunsLow) {
    ibv_srq_init_attr attr{.srq_context = nullptr, .attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0}};
    ibv_srq* srq = ibv_create_srq(pd_, &attr);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC, srq);
    ibv_qp* c = ibv_create_qp(pd_, &init);
    connect(c, c->qp_num);  // to itself
    const auto post = [&](int count) {
        ibv_recv_wr recv{}, *bad;
        for (int i = 0; i < count; ++i) ASSERT_EQ(ibv_post_srq_recv(srq, &recv, &bad), 0);
    };
    const auto take = [&](int count) {
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_SEND;
        for (int i = 0; i < count; ++i) {
            ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
            ASSERT_EQ(wait(cq_).opcode, IBV_WC_RECV);
        }
    };
    const auto limit = [&] {
        ibv_srq_attr now{};
        EXPECT_EQ(ibv_query_srq(srq, &now), 0);
        EXPECT_EQ(now.max_wr, 8u);
        EXPECT_EQ(now.max_sge, 1u);
        return now.srq_limit;
    };
    post(8);
    for (const uint32_t armed : {3u, 2u}) {  // the second time with 5 again
        ibv_srq_attr arm{.max_wr = 0, .max_sge = 0, .srq_limit = armed};
        ASSERT_EQ(ibv_modify_srq(srq, &arm, IBV_SRQ_LIMIT), 0);
        take(armed == 3 ? 5 : 3);
        EXPECT_FALSE(is_readable(context_->async_fd, 0)) << "as many as the limit are left";
        EXPECT_EQ(limit(), armed);
        take(1);
        ASSERT_TRUE(is_readable(context_->async_fd, 1000));
        ibv_async_event event;
        ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
        EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
        EXPECT_EQ(event.element.srq, srq);
        ibv_ack_async_event(&event);
        EXPECT_EQ(limit(), 0u);
        take(1);
        post(3);
        take(3);
        EXPECT_FALSE(is_readable(context_->async_fd, 0)) << "it was not armed again";
        post(4);
    }
    EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

class DrainTest : public EventTest {
  protected:
    ibv_send_wr request(ibv_wr_opcode opcode, uint64_t id) const {
        ibv_send_wr wr{};
        wr.wr_id = id;
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        return wr;
    }
    // A SEND that waits for a receive of b's.
    void send_and_wait() {
        ibv_qp_attr patient{};
        patient.qp_state = IBV_QPS_SQD;
        patient.rnr_retry = 7;
        ASSERT_EQ(ibv_modify_qp(a_, &patient, IBV_QP_STATE), 0);
        ASSERT_EQ(ibv_modify_qp(a_, &patient, IBV_QP_STATE | IBV_QP_RNR_RETRY), 0);
        patient.qp_state = IBV_QPS_RTS;
        ASSERT_EQ(ibv_modify_qp(a_, &patient, IBV_QP_STATE), 0);
        ibv_send_wr wr = request(IBV_WR_SEND, 1), *bad;
        ASSERT_EQ(ibv_post_send(a_, &wr, &bad), 0);
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
        ibv_wc wc;
        while (!has_begun() && std::chrono::steady_clock::now() < end) ASSERT_EQ(ibv_poll_cq(cq_, 1, &wc), 0);
        ASSERT_TRUE(has_begun());
    }
    // What has not is not waited for.
    bool has_begun() const {
        const datapath::Runtime::Pause pause(*from(a_).runtime);
        return from(a_).transport.position.begun_wqe != from(a_).transport.sq.consumed();
    }
    void drain(int mask, uint8_t notify) {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_SQD;
        attr.en_sqd_async_notify = notify;
        ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE | mask), 0);
    }
    bool is_draining() const {
        ibv_qp_attr attr;
        ibv_qp_init_attr init;
        EXPECT_EQ(ibv_query_qp(a_, &attr, IBV_QP_STATE, &init), 0);
        EXPECT_EQ(attr.qp_state, IBV_QPS_SQD);
        return attr.sq_draining != 0;
    }
    // The event is pushed by who also clears sq_draining.
    bool has_event() const { return is_readable(context_->async_fd, 0); }
};

TEST_F(DrainTest, WhoAsksIsToldWhenWhatWasBegunIsDone) {
    send_and_wait();
    drain(IBV_QP_EN_SQD_ASYNC_NOTIFY, 1);
    ibv_send_wr late = request(IBV_WR_RDMA_WRITE, 2), *bad;
    ASSERT_EQ(ibv_post_send(a_, &late, &bad), 0);
    ibv_wc wc;
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(ibv_poll_cq(cq_, 1, &wc), 0);
    EXPECT_TRUE(is_draining());
    EXPECT_FALSE(has_event());
    ibv_recv_wr recv{}, *bad_recv;
    ASSERT_EQ(ibv_post_recv(b_, &recv, &bad_recv), 0);
    wc = wait(cq_);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, 1u);
    EXPECT_FALSE(is_draining());
    ASSERT_TRUE(has_event());
    ibv_async_event event;
    ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
    EXPECT_EQ(event.element.qp, a_);
    ibv_ack_async_event(&event);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE), 0);
    EXPECT_EQ(wait(cq_).wr_id, 2u);
    EXPECT_FALSE(has_event()) << "once";
}

TEST_F(DrainTest, WhoDoesNotAskIsNotTold) {
    for (const int mask : {0, int{IBV_QP_EN_SQD_ASYNC_NOTIFY}}) {
        send_and_wait();
        drain(mask, mask == 0 ? 1 : 0);
        ibv_recv_wr recv{}, *bad_recv;
        ASSERT_EQ(ibv_post_recv(b_, &recv, &bad_recv), 0);
        EXPECT_EQ(wait(cq_).wr_id, 1u);
        EXPECT_FALSE(is_draining());
        EXPECT_FALSE(has_event());
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_RTS;
        ASSERT_EQ(ibv_modify_qp(a_, &attr, IBV_QP_STATE), 0);
    }
    drain(IBV_QP_EN_SQD_ASYNC_NOTIFY, 1);
    EXPECT_FALSE(is_draining());
    EXPECT_TRUE(has_event()) << "an idle queue is drained at once";
}

TEST_F(EventTest, ResizingKeepsWhatIsQueued) {
    ibv_cq* cq = ibv_create_cq(context_, 16, nullptr, nullptr, 0);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    init.send_cq = cq;
    ibv_qp* c = ibv_create_qp(pd_, &init);
    connect(c, c->qp_num);  // to itself
    uint64_t posted = 0, polled = 0;
    const auto complete = [&](int count) {
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        for (int i = 0; i < count; ++i) {
            wr.wr_id = posted++;
            ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
        }
        // Seen without a poll of the CQ itself.
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
        ibv_wc wc;
        while (from(c).transport.sq.room() != 8 && std::chrono::steady_clock::now() < end) ibv_poll_cq(cq_, 1, &wc);
    };
    const auto poll = [&](int count) {
        for (int i = 0; i < count; ++i) EXPECT_EQ(wait(cq).wr_id, polled++);
    };
    for (int round = 0; round < 4; ++round) {  // so that the next ones go around the end of the ring
        complete(7);
        poll(7);
    }
    complete(8);
    const int before = cq->cqe;
    EXPECT_EQ(ibv_resize_cq(cq, 7), EINVAL);
    EXPECT_EQ(cq->cqe, before);
    ASSERT_EQ(ibv_resize_cq(cq, 8), 0);
    EXPECT_GE(cq->cqe, 8);
    EXPECT_LT(cq->cqe, before);
    poll(3);
    ASSERT_EQ(ibv_resize_cq(cq, 100), 0);
    EXPECT_GE(cq->cqe, 100);
    complete(8);
    poll(13);
    ibv_wc wc;
    EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(EventTest, FirstPacketBeforeReadyToSend) {
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    ibv_qp* c = ibv_create_qp(pd_, &init);
    ibv_qp* d = ibv_create_qp(pd_, &init);
    connect(c, d->qp_num);
    ibv_qp_attr attr = attr_for(IBV_QPS_INIT, c->qp_num);
    ASSERT_EQ(ibv_modify_qp(d, &attr, kInitMask), 0);
    attr = attr_for(IBV_QPS_RTR, c->qp_num);
    ASSERT_EQ(ibv_modify_qp(d, &attr, kRtrMask), 0);
    for (int i = 0; i < 2; ++i) {
        ibv_send_wr wr{}, *bad;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
        EXPECT_EQ(wait(cq_).status, IBV_WC_SUCCESS);
    }
    ASSERT_TRUE(is_readable(context_->async_fd, 1000));
    ibv_async_event event;
    ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_COMM_EST);
    EXPECT_EQ(event.element.qp, d);
    ibv_ack_async_event(&event);
    EXPECT_FALSE(is_readable(context_->async_fd, 0)) << "once";
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_qp(d), 0);
}

// Both clocks, before and after it: a completion is dated when the worker makes it, not when it is polled.
TEST_F(EventTest, CompletionTimestamps) {
    ibv_device_attr_ex device;
    ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &device), 0);
    EXPECT_EQ(device.hca_core_clock, 1'000'000u);
    EXPECT_EQ(device.completion_timestamp_mask, UINT64_MAX);
    ibv_cq_init_attr_ex attr{.cqe = 16,
                             .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                         IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
    ibv_cq_ex* cq = ibv_create_cq_ex(context_, &attr);
    ASSERT_NE(cq, nullptr);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    init.send_cq = ibv_cq_ex_to_cq(cq);
    ibv_qp* c = ibv_create_qp(pd_, &init);
    connect(c, c->qp_num);  // to itself
    const auto raw_ns = [&] {
        ibv_values_ex values{.comp_mask = IBV_VALUES_MASK_RAW_CLOCK, .raw_clock = {}};
        EXPECT_EQ(ibv_query_rt_values_ex(context_, &values), 0);
        EXPECT_EQ(values.comp_mask, static_cast<uint32_t>(IBV_VALUES_MASK_RAW_CLOCK));
        return static_cast<uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000 +
               static_cast<uint64_t>(values.raw_clock.tv_nsec);
    };
    const auto wall_ns = [] {
        return static_cast<uint64_t>(
            std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
    };
    const uint64_t raw_before = raw_ns(), wall_before = wall_ns();
    usleep(1000);
    ibv_send_wr wr{}, *bad;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    ibv_wc wc;
    while (from(c).transport.sq.room() != 8 && std::chrono::steady_clock::now() < end) ibv_poll_cq(cq_, 1, &wc);
    const uint64_t raw_after = raw_ns(), wall_after = wall_ns();
    usleep(20'000);
    ibv_poll_cq_attr poll_attr{};
    ASSERT_EQ(ibv_start_poll(cq, &poll_attr), 0);
    const uint64_t stamp = ibv_wc_read_completion_ts(cq), wall = ibv_wc_read_completion_wallclock_ns(cq);
    ibv_end_poll(cq);
    EXPECT_GT(stamp, raw_before);
    EXPECT_LE(stamp, raw_after);
    constexpr uint64_t kSkewNs = 5'000'000;  // the two clocks are read one after the other
    EXPECT_GT(wall + kSkewNs, wall_before);
    EXPECT_LT(wall, wall_after + kSkewNs);
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(VerbsTest, ModerationOfACompletionQueueIsTaken) {
    ibv_modify_cq_attr attr{.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {.cq_count = 16, .cq_period = 100}};
    EXPECT_EQ(ibv_modify_cq(cq_, &attr), 0);
    attr.attr_mask = 1u << 7;
    EXPECT_EQ(ibv_modify_cq(cq_, &attr), EINVAL);
}

TEST_F(VerbsTest, ACompletionQueueMayIgnoreItsOverrun) {
    ibv_cq_init_attr_ex attr{.cqe = 1,
                             .wc_flags = IBV_WC_STANDARD_FLAGS,
                             .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
                             .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
    ibv_cq_ex* cq = ibv_create_cq_ex(context_, &attr);
    ASSERT_NE(cq, nullptr);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    init.send_cq = ibv_cq_ex_to_cq(cq);
    ibv_qp* c = ibv_create_qp(pd_, &init);
    connect(c, c->qp_num);  // to itself
    ibv_send_wr wr{}, *bad;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    for (int i = 0; i < 8; ++i) ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    ibv_wc wc;
    while (from(c).transport.sq.room() != 8 && std::chrono::steady_clock::now() < end) ibv_poll_cq(cq_, 1, &wc);
    EXPECT_EQ(from(c).transport.sq.room(), 8u);
    EXPECT_FALSE(is_readable(context_->async_fd, 0)) << "no IBV_EVENT_CQ_ERR";
    EXPECT_EQ(from(c).transport.state, IBV_QPS_RTS);
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(EventTest, ExtendedPolling) {
    ibv_cq_init_attr_ex attr{.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
    ibv_cq_ex* cq = ibv_create_cq_ex(context_, &attr);
    ASSERT_NE(cq, nullptr);
    ibv_qp_init_attr init = init_attr(IBV_QPT_RC);
    init.send_cq = ibv_cq_ex_to_cq(cq);
    ibv_qp* c = ibv_create_qp(pd_, &init);
    connect(c, c->qp_num);  // to itself
    ibv_send_wr wr{}, *bad;
    wr.wr_id = 11;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_poll_cq_attr poll_attr{};
    EXPECT_EQ(ibv_start_poll(cq, &poll_attr), ENOENT);
    ASSERT_EQ(ibv_post_send(c, &wr, &bad), 0);
    while (ibv_start_poll(cq, &poll_attr) == ENOENT) {
    }
    EXPECT_EQ(cq->wr_id, 11u);
    EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RDMA_WRITE);
    EXPECT_EQ(ibv_wc_read_qp_num(cq), c->qp_num);
    EXPECT_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    EXPECT_EQ(ibv_destroy_qp(c), 0);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

}  // namespace
}  // namespace rove::verbs
