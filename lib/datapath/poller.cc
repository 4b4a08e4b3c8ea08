// SPDX-License-Identifier: Apache-2.0
#include "datapath/poller.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <array>

namespace rove::datapath {

Poller::Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)), woken_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = woken_}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, woken_, &event);
}

Poller::~Poller() {
    close(woken_);
    close(epoll_);
}

void Poller::add(int file, std::function<void()> ready) {
    {
        const std::lock_guard lock(mutex_);
        ready_[file] = std::make_shared<std::function<void()>>(std::move(ready));
    }
    epoll_event event{.events = EPOLLIN, .data = {.fd = file}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, file, &event);
}

void Poller::remove(int file) {
    epoll_ctl(epoll_, EPOLL_CTL_DEL, file, nullptr);
    const std::lock_guard lock(mutex_);
    ready_.erase(file);
}

void Poller::wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(woken_, &one, sizeof one);
}

void Poller::wait(uint64_t ns) {
    // epoll_wait() counts milliseconds, and epoll_pwait2() is not everywhere.
    pollfd any{.fd = epoll_, .events = POLLIN, .revents = 0};
    const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    if (ppoll(&any, 1, &time, nullptr) <= 0) return;
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
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

}  // namespace rove::datapath
