// SPDX-License-Identifier: Apache-2.0
// Tests completion channels and asynchronous events: waiting calls, wake-ups and signals.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "event_fixture.h"
#include "verbs/event_queue.h"
#include "verbs/provider.h"

namespace rove::verbs {
namespace {

TEST(EventQueue, IsReadableExactlyWhileEventsWait) {
    EventQueue<int> queue;
    EXPECT_FALSE(is_readable(queue.fd(), 0));
    for (int event : {1, 2, 1, 3}) queue.push(event);
    queue.drop([](int event) { return event == 1; });
    int event = 0;
    EXPECT_EQ(queue.pop(&event, [](int) { return 0; }), 0);
    EXPECT_EQ(event, 2);
    EXPECT_TRUE(is_readable(queue.fd(), 0));
    EXPECT_EQ(queue.pop(&event, [](int) { return 0; }), 0);
    EXPECT_EQ(event, 3);
    EXPECT_FALSE(is_readable(queue.fd(), 0));
}

TEST(EventQueue, ACollectorsOwnEventsNeedNoTokenUntilItLeaves) {
    EventQueue<int> queue, other;
    int event = 0;
    const auto deliver = [](int) { return 0; };
    {
        const EventQueue<int>::Collector collector(queue);
        queue.push(1);
        other.push(1);
        EXPECT_FALSE(is_readable(queue.fd(), 0));
        EXPECT_TRUE(is_readable(other.fd(), 0));
        EXPECT_EQ(queue.try_pop(&event, deliver), 0);
        queue.push(2);
        std::thread([&] { queue.push(3); }).join();
        EXPECT_TRUE(is_readable(queue.fd(), 0)) << "another thread's";
        queue.push(4);
        queue.push(5);
        queue.drop([](int one) { return one == 4; });
        EXPECT_EQ(queue.try_pop(&event, deliver), 0);
        EXPECT_EQ(event, 2);
    }
    for (const int left : {3, 5}) {
        EXPECT_TRUE(is_readable(queue.fd(), 0));
        EXPECT_EQ(queue.try_pop(&event, deliver), 0);
        EXPECT_EQ(event, left);
    }
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
                ASSERT_EQ(queue.pop(&event, [](int) { return 0; }), 0);
                sum += event;
            }
        });
    }
    int pushed = 0;
    for (int event = 1; event <= 2000; ++event) {
        queue.push(event);
        pushed += event;
        if (event % 100 == 0) usleep(1000);  // so that the threads wait
    }
    for (std::thread& thread : waiting) thread.join();
    EXPECT_EQ(sum, pushed);
    EXPECT_FALSE(is_readable(queue.fd(), 0));
}

// Sends signals to the constructing thread for a tenth of a second, then calls `last`.
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

// signal(7): the wait restarts like read().
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

// D21: unread port events do not accumulate. Only the last event of each type stays.
TEST_F(VerbsTest, PortEventsThatNobodyReadsDoNotPileUp) {
    Provider& provider = *from(context_->device).provider;
    const datapath::RdmaInterface& port = *from(context_).interface;
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
    EXPECT_TRUE(is_readable(channel_->fd, 1000));  // destroying the CQ drops the event unread
}

// IBTA 11.4.2.2
TEST_F(EventTest, ArmingForSolicitedDoesNotUndoArmingForAny) {
    ASSERT_EQ(ibv_req_notify_cq(events_cq_, 0), 0);
    ASSERT_EQ(ibv_req_notify_cq(events_cq_, 1), 0);
    send(0);
    EXPECT_TRUE(is_readable(channel_->fd, 1000));
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

}  // namespace
}  // namespace rove::verbs
