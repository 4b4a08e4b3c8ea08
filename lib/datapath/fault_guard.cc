// SPDX-License-Identifier: Apache-2.0
#include "datapath/fault_guard.h"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstdio>
#include <mutex>

// Of AddressSanitizer's run-time library, where there is one.
extern "C" [[gnu::weak]] void __asan_handle_no_return();

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

}  // namespace

[[gnu::tls_model("initial-exec")]] thread_local constinit FaultGuard* FaultGuard::active = nullptr;

struct FaultHandler {
    static void handle(int signal, siginfo_t* info, void* context) {
        FaultGuard* const guard = FaultGuard::active;
        if (guard != nullptr && info->si_code > 0) {
            guard->key_ = guard->memory_.invalidate_at(info->si_addr);
            if (guard->key_ != 0) {
                guard->address_ = info->si_addr;
                guard->resume(*static_cast<ucontext_t*>(context));
                return;
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
    // Not deferred: what the program's own handler blocks is its choice.
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

// Without locals and destructors, and not inlined: all that counts at `left` is on the stack above what step() uses.
[[gnu::noinline]] bool FaultGuard::completes(void (*step)(void*), void* of) {
    active = this;
    asm goto(
        "lea %l[left](%%rip), %%rax\n\t"
        "mov %%rax, 0(%0)\n\t"
        "mov %%rsp, 8(%0)\n\t"
        "mov %%rbp, 16(%0)"
        :
        : "D"(&resume_)
        : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc", "memory"
        : left);
    step(of);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    active = nullptr;
    return true;
left:
    return false;
}

// The kernel then restores the registers, the signal mask and the modes of the floating point unit.
void FaultGuard::resume(ucontext_t& context) {
    active = nullptr;
    if (__asan_handle_no_return != nullptr) __asan_handle_no_return();  // functions are left that it knows of
    const auto set = [&](int which, const void* value) {
        context.uc_mcontext.gregs[which] = reinterpret_cast<greg_t>(value);
    };
    set(REG_RIP, resume_.instruction);
    set(REG_RSP, resume_.stack);
    set(REG_RBP, resume_.frame);
    set(REG_RDI, &resume_);
}

void FaultGuard::report() {
    std::fprintf(
        stderr,
        "rove: registered memory at %p has gone (unmapped, protected, or its file truncated): key 0x%08x is dead "
        "until it is deregistered\n",
        address_, key_);
}

}  // namespace rove::datapath
