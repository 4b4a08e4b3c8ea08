// SPDX-License-Identifier: Apache-2.0
#include "verbs/channel_wait.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <cerrno>

#include "runtime/watch.h"
#include "verbs/channel_files.h"

namespace rove::verbs {

namespace {

// Returns true if a read() would continue after a signal handler has run, which is so if all handlers of the program
// are SA_RESTART. A watch sleeps in ppoll(), which always ends, and the kernel does not tell which handler ran. So in a
// program with handlers of both kinds, either kind ends the wait.
bool handlers_restart() {
    for (int signal = 1; signal <= SIGRTMAX; ++signal) {
        // These signals are faults of the thread's own code, and a waiting thread runs none.
        const bool is_fault = signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE ||
                              signal == SIGTRAP || signal == SIGSYS;
        struct sigaction action;
        if (is_fault || sigaction(signal, nullptr, &action) != 0) continue;
        if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
        if ((action.sa_flags & SA_RESTART) == 0) return false;
    }
    return true;
}

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
    channel_files::seen(channel.fd);
    datapath::Runtime& runtime = *from(channel.context).runtime;
    if (!runtime.can_watch()) return events.pop(cq, count_delivered);
    const EventQueue<Cq*>::Collector collector(events);
    datapath::Watch watch(runtime);
    for (;;) {
        watch.spin([&] { return events.has_events(); });
        if (const int error = events.try_pop(cq, count_delivered); error != EAGAIN) return error;
        pollfd files[2] = {{.fd = channel.fd, .events = POLLIN, .revents = 0}, {}};
        if (watch.sleep(files, 1, UINT64_MAX, nullptr) < 0 && errno == EINTR && !handlers_restart()) return EINTR;
    }
}

}  // namespace rove::verbs
