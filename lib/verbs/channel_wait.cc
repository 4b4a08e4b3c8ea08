// SPDX-License-Identifier: Apache-2.0
#include "verbs/channel_wait.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>

#include "datapath/watch.h"
#include "verbs/channel_files.h"

namespace rove::verbs {

namespace {

// What read() does once a signal's handler has run. ppoll(), by which a watch sleeps, always ends, and the kernel does not
// tell which handler it was.
enum class AfterSignal : uint8_t {
    kRestarts,  // all handlers that the program has installed are SA_RESTART, or there are none
    kEnds,      // none of them is
    kDepends,
};

AfterSignal ask_handlers() {
    bool some_restart = false, some_end = false;
    for (int signal = 1; signal <= SIGRTMAX; ++signal) {
        // These are faults of a thread's own code, and a thread that waits runs none.
        const bool is_fault = signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE ||
                              signal == SIGTRAP || signal == SIGSYS;
        struct sigaction action;
        if (is_fault || sigaction(signal, nullptr, &action) != 0) continue;
        if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
        ((action.sa_flags & SA_RESTART) != 0 ? some_restart : some_end) = true;
    }
    if (some_end) return some_restart ? AfterSignal::kDepends : AfterSignal::kEnds;
    return AfterSignal::kRestarts;
}

// The last answer, since to ask takes some 60 system calls.
class Handlers {
  public:
    AfterSignal after_signal(uint64_t now_ns) {
        constexpr uint64_t kAskAgainNs = 10'000'000;
        if (now_ns - asked_ns_.load(std::memory_order_relaxed) >= kAskAgainNs) ask(now_ns);
        return answer_.load(std::memory_order_relaxed);
    }
    // Returns true if read() would have ended. If the program has changed its handlers during the wait, it may be either.
    bool has_ended_read(uint64_t now_ns) {
        ask(now_ns);
        return answer_.load(std::memory_order_relaxed) != AfterSignal::kRestarts;
    }

  private:
    void ask(uint64_t now_ns) {
        answer_.store(ask_handlers(), std::memory_order_relaxed);
        asked_ns_.store(now_ns, std::memory_order_relaxed);
    }

    // Relaxed: threads may ask twice.
    std::atomic<uint64_t> asked_ns_{0};
    std::atomic<AfterSignal> answer_{AfterSignal::kDepends};
};

constinit Handlers handlers;

int count_delivered(Cq* cq) {
    ++cq->comp_events_delivered;
    return 0;
}

}  // namespace

int wait_for_event(Channel& channel, Cq** cq) {
    pthread_testcancel();
    EventQueue<Cq*>& events = channel.events;
    if (const int error = events.try_pop(cq, count_delivered); error != EAGAIN) return error;
    if (events.is_nonblocking()) return EAGAIN;
    datapath::Runtime& runtime = *from(channel.context).runtime;
    if (!runtime.can_watch()) return events.pop(cq, count_delivered);
    if (handlers.after_signal(runtime.now_ns()) == AfterSignal::kDepends) {
        channel_files::not_seen(channel.fd);
        runtime.hand_over();
        return events.pop(cq, count_delivered);
    }
    channel_files::seen(channel.fd);
    datapath::Watch watch(runtime);
    for (;;) {
        watch.spin([&] { return events.has_events(); });
        if (const int error = events.try_pop(cq, count_delivered); error != EAGAIN) return error;
        pollfd files[2] = {{.fd = channel.fd, .events = POLLIN, .revents = 0}, {}};
        if (watch.sleep(files, 1, UINT64_MAX, nullptr) < 0 && errno == EINTR &&
            handlers.has_ended_read(watch.now_ns()))
            return EINTR;
    }
}

}  // namespace rove::verbs
