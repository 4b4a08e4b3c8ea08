// SPDX-License-Identifier: Apache-2.0
// Events behind a file descriptor, as completion channels and contexts have them: readable in poll and epoll exactly
// while events wait. Pushed by workers, taken by the application.
//
// DESIGN NOTES
// 1. Whoever waits in pop() must behave as a thread in read() does: a signal whose handler was installed with
//    SA_RESTART does not end the wait, another one does (signal(7)). The kernel restarts a blocking read and never a
//    poll, so the wait is a read.
// 2. That read is not of the program's descriptor. A token that it took there would be missing until its thread got the
//    lock, and drop(), which takes tokens under the lock, would wait for it in vain. So threads that wait read from a
//    second descriptor, into which push() writes one token for each of them. A token that a signal left there only
//    wakes the next thread, which finds nothing and waits again.
// 3. pop() is a cancellation point, as read() is: at its beginning and in that read. A thread that is cancelled there
// may
//    have taken a token, or not. So the others are woken again for all events that wait.
// 4. A thread that waits makes rounds itself (runtime/watch.h), and so pushes most of the events that it waits for.
// These
//    need no token, which would cost two system calls a message: the thread looks at the queue before it sleeps. A
//    Collector marks such a thread, and writes the tokens of what it leaves.
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <mutex>

#include "base/libc.h"

namespace rove::verbs {

template <class Event>
class EventQueue {
  public:
    EventQueue() : fd_(eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)) {}
    ~EventQueue() {
        if (fd_ >= 0) ::close(fd_);
        if (wake_fd_ >= 0) ::close(wake_fd_);
    }
    EventQueue(const EventQueue&) = delete;
    EventQueue& operator=(const EventQueue&) = delete;

    int fd() const { return fd_; }  // -1 if the process has no descriptor left

    void push(const Event& event) {
        std::lock_guard guard(mutex_);
        add(event);
    }

    // Instead of the waiting events that `replaces(event)` names: for what happens however long nobody reads.
    template <class Predicate>
    void push_coalesced(const Event& event, Predicate replaces) {
        std::lock_guard guard(mutex_);
        remove(replaces);
        add(event);
    }

    // Returns false if a pop() would find no event. A hint: any thread may push or pop meanwhile.
    bool has_events() const { return count_.load(std::memory_order_acquire) != 0; }
    // Returns true if pop() does not wait.
    bool is_nonblocking() {
        std::lock_guard guard(mutex_);
        return has_nonblocking_descriptor();
    }

    // Takes the oldest event, and does not wait for one. `deliver(event)` runs before another thread can see that the
    // event is gone from the queue; if it returns an errno, the event stays. Returns 0, that errno, or EAGAIN.
    template <class Deliver>
    int try_pop(Event* event, Deliver deliver) {
        std::lock_guard guard(mutex_);
        return take(event, deliver);
    }

    // Does the same, but waits for an event unless the descriptor is O_NONBLOCK. Returns EINTR and EMFILE as well.
    template <class Deliver>
    int pop(Event* event, Deliver deliver) {
        pthread_testcancel();
        for (;;) {
            {
                std::lock_guard guard(mutex_);
                if (const int error = take(event, deliver); error != EAGAIN) return error;
                if (has_nonblocking_descriptor()) return EAGAIN;
                if (wake_fd_ < 0 && (wake_fd_ = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)) < 0) return errno;
                ++waiting_;
            }
            Wait wait(*this);
            eventfd_t one;
            const int error = libc::blocking_read(wake_fd_, &one, sizeof(one)) < 0 ? errno : 0;
            wait.end(error == 0);
            if (error != 0) return error;
        }
    }

    // While there is one, its thread looks at the queue after each event that it pushes itself, and before it sleeps.
    class Collector {
      public:
        explicit Collector(EventQueue& queue) : queue_(queue) { collecting = &queue; }
        ~Collector() {
            collecting = nullptr;
            std::lock_guard guard(queue_.mutex_);
            queue_.write_tokens();
        }
        Collector(const Collector&) = delete;
        Collector& operator=(const Collector&) = delete;

      private:
        EventQueue& queue_;
    };

    // From now on the descriptor is this one, a duplicate of the other.
    void use(int fd) {
        std::lock_guard guard(mutex_);
        fd_ = fd;
    }

    // Closes the descriptor. Events that come from now on are lost, and whoever waits for one waits on, as in a read()
    // of a descriptor that another thread closes.
    void close() {
        std::lock_guard guard(mutex_);
        was_nonblocking_ = has_nonblocking_descriptor();
        ::close(fd_);
        fd_ = -1;
        without_token_ = 0;
        events_.clear();
        count_.store(0, std::memory_order_relaxed);
    }

    // Removes the waiting events of an object that goes away.
    template <class Predicate>
    void drop(Predicate belongs) {
        std::lock_guard guard(mutex_);
        remove(belongs);
    }

  private:
    // A thread's read of wake_fd_, which is counted in waiting_.
    class Wait {
      public:
        explicit Wait(EventQueue& queue) : queue_(queue) {}
        ~Wait() {
            if (!has_ended_) queue_.leave();
        }
        Wait(const Wait&) = delete;
        Wait& operator=(const Wait&) = delete;

        void end(bool has_token) {
            has_ended_ = true;
            std::lock_guard guard(queue_.mutex_);
            --queue_.waiting_;
            if (has_token && queue_.wakes_ != 0) --queue_.wakes_;
        }

      private:
        EventQueue& queue_;
        bool has_ended_ = false;
    };

    template <class Deliver>
    int take(Event* event, Deliver deliver) {
        if (events_.empty()) return EAGAIN;
        *event = events_.front();
        if (const int error = deliver(*event); error != 0) return error;
        events_.pop_front();
        count_.store(events_.size(), std::memory_order_relaxed);
        take_token();
        return 0;
    }
    void add(const Event& event) {
        if (fd_ < 0) return;
        events_.push_back(event);
        count_.store(events_.size(), std::memory_order_release);
        ++without_token_;
        if (collecting != this) write_tokens();
    }
    void write_tokens() {
        if (without_token_ == 0 || fd_ < 0) return;
        eventfd_write(fd_, without_token_);
        for (; without_token_ != 0; --without_token_)
            if (wakes_ < waiting_) wake();
    }
    void wake() {
        ++wakes_;
        eventfd_write(wake_fd_, 1);
    }
    // A thread was cancelled in its read.
    void leave() {
        std::lock_guard guard(mutex_);
        --waiting_;
        for (wakes_ = 0; wakes_ < std::min<size_t>(waiting_, events_.size());) wake();
    }
    template <class Predicate>
    void remove(Predicate belongs) {
        const size_t count = std::erase_if(events_, belongs);
        count_.store(events_.size(), std::memory_order_relaxed);
        for (size_t i = 0; i < count; ++i) take_token();
    }
    bool has_nonblocking_descriptor() const {
        return fd_ < 0 ? was_nonblocking_ : (fcntl(fd_, F_GETFL) & O_NONBLOCK) != 0;
    }
    // The descriptor counts a token for each event that waits, but for those without one: all change under the lock, so
    // this never blocks.
    void take_token() {
        if (without_token_ != 0) {
            --without_token_;
            return;
        }
        eventfd_t one;
        if (fd_ >= 0) eventfd_read(fd_, &one);
    }

    static inline thread_local EventQueue* collecting = nullptr;  // the queue of the thread's Collector

    int fd_;                       // -1 after close()
    uint64_t without_token_ = 0;   // events that a Collector's thread has pushed
    bool was_nonblocking_ = true;  // when it was closed; without a descriptor nobody waits
    int wake_fd_ = -1;             // made by the first thread that waits; design note 2
    uint32_t waiting_ = 0;         // threads in pop() that read wake_fd_, are about to or have just done so
    uint32_t wakes_ = 0;  // tokens written to it that no such thread has counted as read; there may be more in it
    std::mutex mutex_;
    std::deque<Event> events_;
    std::atomic<size_t> count_{0};  // of events_; written under the lock
};

}  // namespace rove::verbs
