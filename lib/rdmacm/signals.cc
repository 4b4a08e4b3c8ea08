// SPDX-License-Identifier: Apache-2.0
// Disconnects a process that a signal ends. The kernel disconnects a dying process from its peers. Here the stack dies
// with the process, so the thread `rove-cm` disconnects first, and then ends the process as the signal would have done.
//
// This applies only to signals with which people and service managers end programs, and only if the program leaves them
// to the system. No code of the program runs after the signal: a thread that receives it stays in the handler until the
// process ends, and rove-cm sends it to the other threads. A thread that is inside rove may hold a lock that
// disconnecting needs, so it continues, and gets the signal again until it has left. Another lock that a thread holds,
// such as malloc()'s, can block rove-cm. Therefore the waiting threads end the process after a while. A second signal
// ends it at once.
#include <link.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/files.h"
#include "rdmacm/server.h"
#include "rdmacm/state.h"
#include "verbs/process_provider.h"

namespace rove::verbs::ucma {

namespace {

constexpr int kSignals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
constexpr auto kLongest = std::chrono::milliseconds(500);  // the limit for disconnecting

std::atomic<int> ending{0};                // the first signal
uintptr_t code_begin = 0, code_bytes = 0;  // the library or program that contains this code

void find_own_code() {
    const auto look = [](dl_phdr_info* object, size_t, void*) {
        for (int i = 0; i < object->dlpi_phnum; ++i) {
            const ElfW(Phdr)& part = object->dlpi_phdr[i];
            const uintptr_t begin = object->dlpi_addr + part.p_vaddr;
            if (part.p_type != PT_LOAD || reinterpret_cast<uintptr_t>(&find_own_code) - begin >= part.p_memsz) continue;
            code_begin = begin;
            code_bytes = part.p_memsz;
            return 1;
        }
        return 0;
    };
    dl_iterate_phdr(look, nullptr);
}

// Returns true if this signal's handler has interrupted rove's code, or code that it has called.
bool is_inside() {
    struct Walk {
        bool is_behind_handler = false, is_inside = false;
    } walk;
    _Unwind_Backtrace(
        [](_Unwind_Context* frame, void* of) {
            Walk& walk = *static_cast<Walk*>(of);
            int is_interrupted = 0;
            const uintptr_t at = _Unwind_GetIPInfo(frame, &is_interrupted);
            walk.is_behind_handler |= is_interrupted != 0;
            walk.is_inside = walk.is_behind_handler && at - code_begin < code_bytes;
            return walk.is_inside ? _URC_NORMAL_STOP : _URC_NO_REASON;
        },
        &walk);
    return walk.is_inside;
}

[[noreturn]] void die_by(int signal) {
    struct sigaction by_default {};
    by_default.sa_handler = SIG_DFL;
    sigaction(signal, &by_default, nullptr);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
    for (;;) kill(getpid(), signal);
}

void on_signal(int signal, siginfo_t* info, void*) {
    const int errno_before = errno;
    const bool is_repeated = info->si_code == SI_TKILL && info->si_pid == getpid() && ending.load() == signal;
    if (!is_repeated) {
        int none = 0;
        if (!is_owner() || provider().is_forked_child() || !ending.compare_exchange_strong(none, signal))
            die_by(signal);
        terminate_by_signal(signal);
    }
    if (!is_inside()) {
        constexpr timespec kMoment{0, 10'000'000};
        for (auto waited = std::chrono::milliseconds(0); waited < kLongest; waited += std::chrono::milliseconds(10))
            nanosleep(&kMoment, nullptr);
        die_by(signal);
    }
    errno = errno_before;
}

// Sends the signal to all other threads. Those that have not blocked it stop, or continue until they have left rove.
void stop_other_threads(int signal) {
    for (const std::string& thread : names_in("/proc/self/task"))
        if (const auto id = static_cast<pid_t>(std::atoi(thread.c_str())); id != gettid())
            syscall(SYS_tgkill, getpid(), id, signal);
}

}  // namespace

void RdmaCmServer::watch_signals() {
    find_own_code();
    for (const int signal : kSignals) {
        struct sigaction found, ours{};
        ours.sa_sigaction = on_signal;
        ours.sa_flags = SA_RESTART | SA_SIGINFO;
        if (sigaction(signal, nullptr, &found) == 0 && (found.sa_flags & SA_SIGINFO) == 0 &&
            found.sa_handler == SIG_DFL)
            sigaction(signal, &ours, nullptr);
    }
}

void RdmaCmServer::terminate_by_signal(int signal) {
    ends_with_.store(signal);
    wake();
}

void RdmaCmServer::disconnect_all() {
    // The time that peers need to read the rings that disappear with this process.
    constexpr auto kUntilRead = std::chrono::milliseconds(10);
    const int signal = ends_with_.load();
    stop_other_threads(signal);
    stop();
    const auto until = std::chrono::steady_clock::now() + kUntilRead;
    while (std::chrono::steady_clock::now() < until) {
        stop_other_threads(signal);
        runtime_.load(std::memory_order_relaxed)->progress();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    die_by(signal);
}

}  // namespace rove::verbs::ucma
