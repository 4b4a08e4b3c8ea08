// SPDX-License-Identifier: Apache-2.0
#include "runtime/watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "port/event_loop.h"

namespace rove::datapath {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

bool is_readable(int file) {
    pollfd polled{.fd = file, .events = POLLIN, .revents = 0};
    return ::poll(&polled, 1, 0) == 1;
}

TEST(SpinWindow, IsClosedUntilASleepWasShort) {
    SpinWindow window;
    EXPECT_EQ(window.window_ns(0), 0u);
    window.slept(kSecond, kSecond);
    EXPECT_EQ(window.window_ns(kSecond), 0u);
    window.slept(5000, kSecond);
    EXPECT_EQ(window.window_ns(kSecond), SpinWindow::kFirstNs);
}

TEST(SpinWindow, GrowsToItsMostAndClosesAfterALongSleep) {
    SpinWindow window;
    for (int i = 0; i < 20; ++i) window.slept(5000, 0);
    EXPECT_EQ(window.window_ns(0), SpinWindow::kMaxNs);
    window.slept(SpinWindow::kMaxNs, 0);
    EXPECT_EQ(window.window_ns(0), 0u);
}

TEST(SpinWindow, IsBarredForATimeThatDoublesWhenTheCoreWasLost) {
    SpinWindow window;
    uint64_t now_ns = 0;
    for (uint64_t bar_ns = SpinWindow::kFirstBarNs; bar_ns < SpinWindow::kMaxBarNs; bar_ns *= 2) {
        window.slept(5000, now_ns);
        ASSERT_NE(window.window_ns(now_ns), 0u);
        window.preempted(now_ns);
        window.slept(5000, now_ns);
        EXPECT_EQ(window.window_ns(now_ns + bar_ns - 1), 0u);
        EXPECT_NE(window.window_ns(now_ns + bar_ns), 0u);
        now_ns += bar_ns;
    }
}

TEST(SpinWindow, IsBarredWhenThePeerAnsweredOnlyToASleep) {
    SpinWindow window;
    for (int i = 0; i < 20; ++i) window.slept(5000, 0);
    window.spun(false, 0);
    window.slept(5000, 0);
    EXPECT_EQ(window.window_ns(SpinWindow::kFirstBarNs - 1), 0u);
}

TEST(EventLoop, MessagesRingThoughTheyAreSeldomRead) {
    EventLoop poller;
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    poller.add_doorbell(ends[0], EventLoop::Doorbell::kMessage);
    for (int i = 0; i < 5000; ++i) {
        for (int messages = 0; messages <= i % 2; ++messages) ASSERT_EQ(send(ends[1], "", 1, MSG_DONTWAIT), 1) << i;
        ASSERT_TRUE(is_readable(poller.doorbells())) << i;
        poller.take_doorbells();
        ASSERT_FALSE(is_readable(poller.doorbells())) << i;
    }
    poller.remove_doorbell(ends[0]);
    close(ends[0]);
    close(ends[1]);
}

TEST(EventLoop, DoorbellsRingOnceForEachRing) {
    EventLoop poller;
    const int doorbell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    poller.add_doorbell(doorbell, EventLoop::Doorbell::kEventfd);
    EXPECT_FALSE(is_readable(poller.doorbells()));
    for (int i = 0; i < 3; ++i) {
        eventfd_write(doorbell, 1);
        EXPECT_TRUE(is_readable(poller.doorbells()));
        poller.take_doorbells();
        EXPECT_FALSE(is_readable(poller.doorbells()));
    }
    eventfd_t rings;
    EXPECT_EQ(eventfd_read(doorbell, &rings), -1) << "it was not read";
    poller.remove_doorbell(doorbell);
    eventfd_write(doorbell, 1);
    EXPECT_FALSE(is_readable(poller.doorbells()));
    close(doorbell);
}

// A socket stays readable while its queue is polled.
TEST(EventLoop, ASocketThatIsNotReadRingsAgainForWhatComesNext) {
    EventLoop poller;
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    poller.add_doorbell(ends[0], EventLoop::Doorbell::kSocket);
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(write(ends[1], "x", 1), 1);
        EXPECT_TRUE(is_readable(poller.doorbells()));
        poller.take_doorbells();
        EXPECT_FALSE(is_readable(poller.doorbells()));
    }
    poller.remove_doorbell(ends[0]);
    close(ends[0]);
    close(ends[1]);
}

TEST(EventLoop, ADoorbellThatWasRemovedIsNotReadUnderItsOldNumber) {
    EventLoop poller;
    const int doorbell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    poller.add_doorbell(doorbell, EventLoop::Doorbell::kEventfd);
    eventfd_write(doorbell, 1);
    poller.remove_doorbell(doorbell);
    poller.take_doorbells();
    eventfd_t rings = 0;
    EXPECT_EQ(eventfd_read(doorbell, &rings), 0);
    EXPECT_EQ(rings, 1u);
    close(doorbell);
}

TEST(EventLoop, RingsItself) {
    EventLoop poller;
    poller.ring();
    EXPECT_TRUE(is_readable(poller.doorbells()));
    poller.take_doorbells();
    EXPECT_FALSE(is_readable(poller.doorbells()));
}

}  // namespace
}  // namespace rove::datapath
