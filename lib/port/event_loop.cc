// SPDX-License-Identifier: Apache-2.0
#include "port/event_loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace rove::datapath {

namespace {

constexpr int kMaxEvents = 64;  // for one system call; the next one serves the others
// The number of messages that may stay unread in a socket. The set is edge-triggered, so unread messages do not matter
// to it, and this saves one system call per sleep. Each message takes less than 1 KiB of the sender's buffer, and two
// may arrive where one is counted.
constexpr int kMaxUnread = 32, kBytesForEach = 4096;

void add_to(int set, int file, uint32_t events) {
    epoll_event event{.events = events, .data = {.fd = file}};
    epoll_ctl(set, EPOLL_CTL_ADD, file, &event);
}

void write_one(int file) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(file, &one, sizeof one);
}

}  // namespace

EventLoop::EventLoop()
    : control_(epoll_create1(EPOLL_CLOEXEC)),
      woken_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      doorbells_(epoll_create1(EPOLL_CLOEXEC)),
      own_doorbell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    add_to(control_, woken_, EPOLLIN);
    add_doorbell(own_doorbell_, Doorbell::kEventfd);
}

EventLoop::~EventLoop() {
    close_files();
}

void EventLoop::add(int file, std::function<void()> ready) {
    {
        const std::lock_guard lock(mutex_);
        ready_[file] = std::make_shared<std::function<void()>>(std::move(ready));
    }
    add_to(control_, file, EPOLLIN);
}

void EventLoop::await_end_only(int file) {
    epoll_event event{.events = EPOLLRDHUP, .data = {.fd = file}};
    epoll_ctl(control_, EPOLL_CTL_MOD, file, &event);
}

void EventLoop::remove(int file) {
    epoll_ctl(control_, EPOLL_CTL_DEL, file, nullptr);
    const std::lock_guard lock(mutex_);
    ready_.erase(file);
}

// Adds the file edge-triggered: a socket with unread frames does not end a second sleep, so it can stay in the set
// while its queue is polled.
void EventLoop::add_doorbell(int file, Doorbell kind) {
    if (kind != Doorbell::kSocket) {
        const std::lock_guard lock(mutex_);
        int bytes = 0;  // size of the sender's buffer, which has the system's default like ours
        socklen_t size = sizeof bytes;
        if (kind == Doorbell::kMessage) getsockopt(file, SOL_SOCKET, SO_SNDBUF, &bytes, &size);
        to_read_[file] = {kind, static_cast<uint32_t>(std::clamp(bytes / kBytesForEach, 1, kMaxUnread))};
    }
    add_to(doorbells_, file, EPOLLIN | EPOLLET);
}

void EventLoop::remove_doorbell(int file) {
    epoll_ctl(doorbells_, EPOLL_CTL_DEL, file, nullptr);
    const std::lock_guard lock(mutex_);
    to_read_.erase(file);
}

void EventLoop::take_doorbells() {
    std::array<epoll_event, kMaxEvents> events;
    const int count = epoll_wait(doorbells_, events.data(), kMaxEvents, 0);
    if (count <= 0) return;
    // The lock is needed because a doorbell that was removed may be closed already, and its number may belong to
    // another file.
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < count; ++i) {
        const int file = events[static_cast<size_t>(i)].data.fd;
        const auto found = to_read_.find(file);
        if (found == to_read_.end()) continue;
        uint64_t rings;
        if (found->second.kind == Doorbell::kMessage) {
            if (++found->second.unread < found->second.most_unread) continue;
            found->second.unread = 0;
            // A peer may send without end.
            for (int i = 0; i < 4 * kMaxUnread && recv(file, &rings, sizeof rings, MSG_DONTWAIT) > 0;) ++i;
            continue;
        }
        // A peer has the same file with the same flags, and could make read() wait.
        const iovec into{&rings, sizeof rings};
        [[maybe_unused]] const ssize_t taken = preadv2(file, &into, 1, -1, RWF_NOWAIT);
    }
}

void EventLoop::ring() {
    write_one(own_doorbell_);
}

void EventLoop::wake() {
    write_one(woken_);
}

void EventLoop::wait(uint64_t ns, bool doorbells) {
    // epoll_wait() counts in milliseconds, and epoll_pwait2() is not available everywhere.
    std::array<pollfd, 2> files{pollfd{.fd = control_, .events = POLLIN, .revents = 0},
                                pollfd{.fd = doorbells_, .events = POLLIN, .revents = 0}};
    const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    if (ppoll(files.data(), doorbells ? 2 : 1, &time, nullptr) <= 0) return;
    if (doorbells && files[1].revents != 0) take_doorbells();
    if (files[0].revents != 0) serve_control();
}

void EventLoop::serve_control() {
    std::array<epoll_event, kMaxEvents> events;
    const int count = epoll_wait(control_, events.data(), kMaxEvents, 0);
    for (int i = 0; i < count; ++i) {
        const int file = events[static_cast<size_t>(i)].data.fd;
        if (file == woken_) {
            uint64_t times;
            [[maybe_unused]] const ssize_t taken = read(woken_, &times, sizeof times);
            continue;
        }
        std::shared_ptr<std::function<void()>> ready;
        {
            const std::lock_guard lock(mutex_);
            if (const auto found = ready_.find(file); found != ready_.end()) ready = found->second;
        }
        if (ready != nullptr) (*ready)();
    }
}

void EventLoop::after_fork_in_child() {
    close_files();
}

void EventLoop::close_files() {
    for (int* const file : {&own_doorbell_, &doorbells_, &woken_, &control_})
        if (*file >= 0) close(std::exchange(*file, -1));
}

}  // namespace rove::datapath
