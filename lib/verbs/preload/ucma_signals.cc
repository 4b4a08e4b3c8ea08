// SPDX-License-Identifier: Apache-2.0
// A process that is ended by a signal. The kernel disconnects whoever dies; here the stack dies with the process, so
// the thread `rove-cm` does that first, and then ends the process as the signal would have done.
//
// Only signals by which people and service managers end programs, and only if the program leaves them to the system.
// The handler returns at once: the thread that the signal came to may hold what the farewell needs, and goes on until
// the process has ended, some milliseconds later. A second signal ends it at once.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "verbs/preload/provider.h"
#include "verbs/preload/ucma.h"
#include "verbs/preload/ucma_state.h"

namespace rove::verbs::ucma {

namespace {

// A signal's default action is back when its handler begins.
void on_signal(int signal) {
    if (is_owner() && !provider().is_forked_child())
        end_with(signal);
    else
        raise(signal);
}

}  // namespace

void Ucma::watch_signals() {
    for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
        struct sigaction found, ours{};
        ours.sa_handler = on_signal;
        ours.sa_flags = SA_RESTART | SA_RESETHAND;
        if (sigaction(signal, nullptr, &found) == 0 && (found.sa_flags & SA_SIGINFO) == 0 &&
            found.sa_handler == SIG_DFL)
            sigaction(signal, &ours, nullptr);
    }
}

void Ucma::end_with(int signal) {
    ends_with_.store(signal);
    wake();
}

void Ucma::say_goodbye() {
    constexpr auto kUntilRead = std::chrono::milliseconds(10);  // a peer's ring that ends with us
    stop();
    const auto until = std::chrono::steady_clock::now() + kUntilRead;
    while (std::chrono::steady_clock::now() < until) {
        runtime_.load(std::memory_order_relaxed)->progress();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    kill(getpid(), ends_with_.load());
}

}  // namespace rove::verbs::ucma
