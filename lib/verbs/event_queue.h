// SPDX-License-Identifier: Apache-2.0
// Events behind a file descriptor, as completion channels and contexts have them: readable in poll and epoll exactly
// while events wait. Pushed by workers, taken by the application.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <mutex>

namespace rove::verbs {

template <class Event>
class EventQueue {
  public:
    EventQueue() : fd_(eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)) {}
    ~EventQueue() {
        if (fd_ >= 0) ::close(fd_);
    }
    EventQueue(const EventQueue&) = delete;
    EventQueue& operator=(const EventQueue&) = delete;

    int fd() const { return fd_; }  // -1 if the process has no descriptor left

    void push(const Event& event) {
        std::lock_guard guard(mutex_);
        events_.push_back(event);
        eventfd_write(fd_, 1);
    }

    // Takes the oldest event; waits for one unless the descriptor is O_NONBLOCK. `delivered(event)` runs before anybody
    // can see that the event is gone from the queue. Returns 0 or errno (EAGAIN, EINTR).
    template <class Delivered>
    int pop(Event* event, Delivered delivered) {
        for (;;) {
            {
                std::lock_guard guard(mutex_);
                if (!events_.empty()) {
                    *event = events_.front();
                    events_.pop_front();
                    take_token();
                    delivered(*event);
                    return 0;
                }
            }
            if ((fcntl(fd_, F_GETFL) & O_NONBLOCK) != 0) return EAGAIN;
            pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
            if (poll(&readable, 1, -1) < 0) return errno;
        }
    }

    // Removes the waiting events of an object that goes away.
    template <class Predicate>
    void drop(Predicate belongs) {
        std::lock_guard guard(mutex_);
        const size_t count = std::erase_if(events_, belongs);
        for (size_t i = 0; i < count; ++i) take_token();
    }

  private:
    // The descriptor counts as many tokens as events wait: both change under the lock, so this never blocks.
    void take_token() {
        eventfd_t one;
        eventfd_read(fd_, &one);
    }

    const int fd_;
    std::mutex mutex_;
    std::deque<Event> events_;
};

}  // namespace rove::verbs
