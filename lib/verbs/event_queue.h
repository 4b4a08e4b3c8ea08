// SPDX-License-Identifier: Apache-2.0
// A queue of events behind a file descriptor, for completion channels and contexts. poll() and epoll report the
// descriptor as readable exactly while events wait. Workers push, the application pops.
//
// DESIGN NOTES
// 1. A thread that waits in pop() must behave like one in read(): a signal does not end the wait if its handler was
//    installed with SA_RESTART, and does otherwise (signal(7)). The kernel restarts a blocking read() and never a
//    poll(), so the wait is a read().
// 2. That read() does not use the program's descriptor. A token that it took from there would be missing until its
//    thread got the lock, and drop(), which takes tokens under the lock, would block for it. So waiting threads read a
//    second descriptor, and push() writes one token for each of them. A token that a signal left there merely wakes the
//    next thread, which finds nothing and waits again.
// 3. pop() is a cancellation point like read(), at its beginning and in that read(). A thread that is cancelled there
//    may or may not have taken a token, so the other threads are woken again for all waiting events.
// 4. A waiting thread makes rounds itself (runtime/watch.h), and so pushes most of the events for which it waits. These
//    need no token, which would cost two system calls a message: the thread checks the queue before it sleeps. A
//    Collector marks such a thread, and writes tokens for the events that it leaves.
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

    int fd() const { return fd_; }  // -1 if the process has no free descriptor

    void push(const Event& event) {
        std::lock_guard guard(mutex_);
        add(event);
    }

    // Adds an event in place of those for which `replaces(event)` is true. For events that keep coming however long no
    // thread reads them.
    template <class Predicate>
    void push_coalesced(const Event& event, Predicate replaces) {
        std::lock_guard guard(mutex_);
        remove(replaces);
        add(event);
    }

    // Returns false if pop() would find no event. This is a hint: any thread may push or pop at the same time.
    bool has_events() const { return count_.load(std::memory_order_acquire) != 0; }
    // Returns true if pop() does not wait.
    bool is_nonblocking() {
        std::lock_guard guard(mutex_);
        return has_nonblocking_descriptor();
    }

    // Removes the oldest event without waiting. Calls `deliver(event)` before another thread can see that the event has
    // left the queue; if it returns an errno, the event stays. Returns 0, that errno, or EAGAIN.
    template <class Deliver>
    int try_pop(Event* event, Deliver deliver) {
        std::lock_guard guard(mutex_);
        return take(event, deliver);
    }

    // Does the same, but waits for an event unless the descriptor is O_NONBLOCK. Also returns EINTR and EMFILE.
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

    // Marks a thread that checks the queue after each event that it pushes itself, and before it sleeps.
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

    // Replaces the descriptor by `fd`, a duplicate of it.
    void use(int fd) {
        std::lock_guard guard(mutex_);
        fd_ = fd;
    }

    // Closes the descriptor. Later events are lost, and a waiting thread continues to wait, as in a read() of a
    // descriptor that another thread closes.
    void close() {
        std::lock_guard guard(mutex_);
        was_nonblocking_ = has_nonblocking_descriptor();
        ::close(fd_);
        fd_ = -1;
        without_token_ = 0;
        events_.clear();
        count_.store(0, std::memory_order_relaxed);
    }

    // Removes the waiting events of an object that is being destroyed.
    template <class Predicate>
    void drop(Predicate belongs) {
        std::lock_guard guard(mutex_);
        remove(belongs);
    }

  private:
    // A thread's read() of wake_fd_, which is counted in waiting_.
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
    // Corrects the counts after a thread was cancelled in its read().
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
    // Takes the token of one removed event. The descriptor counts one token for each waiting event except those in
    // without_token_. All of this changes under the lock, so the read never blocks.
    void take_token() {
        if (without_token_ != 0) {
            --without_token_;
            return;
        }
        eventfd_t one;
        if (fd_ >= 0) eventfd_read(fd_, &one);
    }

    static inline thread_local EventQueue* collecting = nullptr;  // the queue of this thread's Collector

    int fd_;                       // -1 after close()
    uint64_t without_token_ = 0;   // events that a Collector's thread has pushed
    bool was_nonblocking_ = true;  // the mode when it was closed; without a descriptor no thread waits
    int wake_fd_ = -1;             // made by the first thread that waits; design note 2
    uint32_t waiting_ = 0;         // threads in pop() before, in or just after their read of wake_fd_
    // Tokens written to wake_fd_ that no such thread has counted as read. The descriptor may hold more.
    uint32_t wakes_ = 0;
    std::mutex mutex_;
    std::deque<Event> events_;
    std::atomic<size_t> count_{0};  // the size of events_, written under the lock
};

}  // namespace rove::verbs
