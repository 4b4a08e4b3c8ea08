// SPDX-License-Identifier: Apache-2.0
#include "datapath/fault_guard.h"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>
#include <xmmintrin.h>

#include <atomic>
#include <cstdio>
#include <mutex>

namespace rove::datapath {

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS};

// What a program's handlers were, newest first. Never freed: a handler may be reading it.
struct Previous {
    struct sigaction actions[2];
    const Previous* before;
};

std::mutex installing;
std::atomic<const Previous*> newest{nullptr};

// The call of somebody else's handler that this thread is in.
struct Chained {
    const siginfo_t* info = nullptr;
    const void* frame = nullptr;
    const Previous* to = nullptr;
};
[[gnu::tls_model("initial-exec")]] thread_local Chained chained;  // as FaultGuard::active

void call(const struct sigaction& action, int signal, siginfo_t* info, void* context) {
    if ((action.sa_flags & SA_SIGINFO) == 0 && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) {
        // Ends the process when the faulting instruction is executed again, with the state that it had. A signal that
        // somebody sent is sent once more.
        struct sigaction by_default {};
        by_default.sa_handler = SIG_DFL;
        const bool sent = info->si_code <= 0;
        if (sent && action.sa_handler == SIG_IGN) return;
        sigaction(signal, &by_default, nullptr);
        if (sent) raise(signal);
        return;
    }
    sigset_t blocked = action.sa_mask, before;
    if ((action.sa_flags & SA_NODEFER) == 0) sigaddset(&blocked, signal);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    if ((action.sa_flags & SA_SIGINFO) != 0)
        action.sa_sigaction(signal, info, context);
    else
        action.sa_handler(signal);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// The kernel gave the handler the default modes of the floating point unit, and the thread shall go on with its own.
void restore_modes(const void* context) {
    const auto* const state = static_cast<const ucontext_t*>(context)->uc_mcontext.fpregs;
    if (state == nullptr) return;
    _mm_setcsr(state->mxcsr);
    const uint16_t control = state->cwd;
    asm volatile("fldcw %0" : : "m"(control));
}

}  // namespace

[[gnu::tls_model("initial-exec")]] thread_local constinit FaultGuard* FaultGuard::active = nullptr;

struct FaultHandler {
    static void handle(int signal, siginfo_t* info, void* context) {
        FaultGuard* const guard = FaultGuard::active;
        if (guard != nullptr && info->si_code > 0) {
            guard->key_ = guard->memory_.invalidate_at(info->si_addr);
            if (guard->key_ != 0) {
                guard->address_ = info->si_addr;
                FaultGuard::active = nullptr;
                restore_modes(context);
                _longjmp(guard->resume_, 1);
            }
        }
        const Chained outer = chained;
        const bool again = outer.info == info && outer.frame > __builtin_frame_address(0) && outer.to != nullptr;
        const Previous* const to = again ? outer.to->before : newest.load(std::memory_order_acquire);
        static constexpr struct sigaction kDefault {};
        chained = {info, __builtin_frame_address(0), to};
        call(to != nullptr ? to->actions[signal == SIGBUS] : kDefault, signal, info, context);
        chained = outer;
    }
};

void FaultGuard::install() {
    struct sigaction ours {};
    ours.sa_sigaction = FaultHandler::handle;
    // Not deferred: it is left by _longjmp, which does not restore the mask.
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    const std::lock_guard lock(installing);
    struct sigaction now[2];
    bool in_front = true;
    for (int i = 0; i < 2; ++i) {
        sigaction(kSignals[i], nullptr, &now[i]);
        in_front &= (now[i].sa_flags & SA_SIGINFO) != 0 && now[i].sa_sigaction == ours.sa_sigaction;
    }
    if (in_front) return;
    const Previous* const known = newest.load(std::memory_order_relaxed);
    auto* const previous = new Previous{{now[0], now[1]}, known};
    for (struct sigaction& action : previous->actions) {
        // Of the signal that is ours still, what was behind it stays behind it.
        if ((action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == ours.sa_sigaction)
            action = known->actions[&action - previous->actions];
    }
    newest.store(previous, std::memory_order_release);
    for (const int signal : kSignals) sigaction(signal, &ours, nullptr);
}

void FaultGuard::report() {
    std::fprintf(
        stderr,
        "rove: registered memory at %p has gone (unmapped, protected, or its file truncated): key 0x%08x is dead "
        "until it is deregistered\n",
        address_, key_);
}

}  // namespace rove::datapath
