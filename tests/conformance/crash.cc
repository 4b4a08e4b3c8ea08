// SPDX-License-Identifier: Apache-2.0
// A program's own handlers of SIGSEGV and SIGBUS work as `man 2 sigaction` says, although the library may handle these
// signals itself. This holds for handlers that were installed before the device was opened, and after.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "verbs.h"

using namespace conformance;

namespace {

// The handler's observations, in memory that the parent also reads.
struct Seen {
    int calls, other_calls;
    bool own_is_blocked, other_is_blocked, on_alternate_stack;
};
Seen* seen = nullptr;
struct sigaction kept {};        // the handler that chain() replaced
struct sigaction other_kept {};  // the handler that other_chain() replaced
uint8_t alternate[1 << 16];

void look() {
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    const char here = 0;
    seen->on_alternate_stack =
        &here >= reinterpret_cast<char*>(alternate) && &here < reinterpret_cast<char*>(alternate + sizeof(alternate));
    seen->own_is_blocked = sigismember(&blocked, SIGSEGV) == 1 || sigismember(&blocked, SIGBUS) == 1;
    seen->other_is_blocked = sigismember(&blocked, SIGUSR1) == 1;
    if (++seen->calls > 3) _exit(1);  // the handler should run once
}

void report(int) {
    look();
}
void restore_and_raise(int signal) {
    look();
    sigaction(signal, &kept, nullptr);
    raise(signal);
}
void restore_and_return(int signal) {
    look();
    sigaction(signal, &kept, nullptr);
}
void pass_on(const struct sigaction& to, int signal, siginfo_t* info, void* context) {
    if ((to.sa_flags & SA_SIGINFO) != 0)
        to.sa_sigaction(signal, info, context);
    else if (to.sa_handler != SIG_DFL)
        to.sa_handler(signal);
    else
        sigaction(signal, &to, nullptr);
}
void chain(int signal, siginfo_t* info, void* context) {
    look();
    pass_on(kept, signal, info, context);
}
void other_chain(int signal, siginfo_t* info, void* context) {
    if (++seen->other_calls > 3) _exit(1);
    pass_on(other_kept, signal, info, context);
}

struct sigaction action(void (*handler)(int), int flags) {
    struct sigaction made {};
    made.sa_handler = handler;
    made.sa_flags = flags;
    return made;
}
struct sigaction action(void (*handler)(int, siginfo_t*, void*), int flags) {
    struct sigaction made {};
    made.sa_sigaction = handler;
    made.sa_flags = flags | SA_SIGINFO;
    return made;
}

void touch_nothing() {
    *reinterpret_cast<volatile int*>(8) = 1;
}
void touch_behind_a_file() {
    const int file = memfd_create("short", 0);
    auto* const at = static_cast<volatile int*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    *at = 1;
}

// A registration makes the library check its own handlers.
void registers(ibv_pd* pd) {
    static uint8_t memory[4096];
    make_mr(pd, memory, sizeof(memory));
}

enum class When { kBefore, kAfter };

// Runs a process that opens the device, calls `install` before or after that, and then calls `crash`. Returns the
// signal that ended the process, or 0 if it ended otherwise.
int ends_by(When when, const std::function<void(ibv_pd*)>& install, const std::function<void()>& crash) {
    if (seen == nullptr)
        seen =
            static_cast<Seen*>(mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    *seen = {};
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        if (when == When::kBefore) install(nullptr);
        const ibv_pd* const made = make_pd().release();
        auto* const pd = const_cast<ibv_pd*>(made);
        registers(pd);
        if (when == When::kAfter) install(pd);
        registers(pd);
        crash();
        _exit(2);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void expect_one_call(const struct sigaction& handler, int signal, void (*crash)()) {
    for (const When when : {When::kBefore, When::kAfter}) {
        const int ended = ends_by(
            when, [&](ibv_pd*) { sigaction(signal, &handler, &kept); }, crash);
        EXPECT(ended == signal && seen->calls == 1, "ended by signal %d after %d calls, installed %s", ended,
               seen->calls, when == When::kBefore ? "before" : "after");
    }
}

}  // namespace

ALONE(crash, with_SA_RESETHAND_a_handler_runs_once) {
    expect_one_call(action(report, SA_RESETHAND), SIGSEGV, touch_nothing);
    expect_one_call(action(report, static_cast<int>(SA_RESETHAND | SA_NODEFER)), SIGBUS, touch_behind_a_file);
}

// Python's faulthandler does this.
ALONE(crash, a_handler_that_restores_and_raises_runs_once) {
    expect_one_call(action(restore_and_raise, SA_NODEFER), SIGSEGV, touch_nothing);
    expect_one_call(action(restore_and_raise, 0), SIGSEGV, touch_nothing);
    expect_one_call(action(restore_and_raise, SA_NODEFER), SIGBUS, touch_behind_a_file);
}

ALONE(crash, a_handler_that_restores_and_returns_runs_once) {
    expect_one_call(action(restore_and_return, 0), SIGSEGV, touch_nothing);
    expect_one_call(action(restore_and_return, SA_ONSTACK), SIGBUS, touch_behind_a_file);
}

ALONE(crash, a_handler_that_chains_runs_once) {
    expect_one_call(action(chain, 0), SIGSEGV, touch_nothing);
}

// Two libraries both want to be the first handler. A handler that finds itself as the present handler does not keep it.
ALONE(crash, handlers_that_are_installed_again_and_again_run_once) {
    const auto install = [](ibv_pd* pd) {
        const auto again = [](const struct sigaction& handler, struct sigaction& keep) {
            struct sigaction found {};
            sigaction(SIGSEGV, &handler, &found);
            if (found.sa_sigaction != handler.sa_sigaction) keep = found;
        };
        for (int i = 0; i < 200; ++i) {
            again(action(chain, 0), kept);
            registers(pd);
            if (i % 3 == 0) registers(pd);
            again(action(other_chain, 0), other_kept);
            if (i % 2 == 0) registers(pd);
        }
    };
    const int ended = ends_by(When::kAfter, install, touch_nothing);
    EXPECT(ended == SIGSEGV && seen->calls == 1 && seen->other_calls == 1, "ended by signal %d after %d and %d calls",
           ended, seen->calls, seen->other_calls);
}

ALONE(crash, a_handler_blocks_what_it_says) {
    for (const int flags : {0, SA_NODEFER}) {
        struct sigaction handler = action(restore_and_raise, flags);
        sigaddset(&handler.sa_mask, SIGUSR1);
        expect_one_call(handler, SIGSEGV, touch_nothing);
        EXPECT(seen->other_is_blocked && seen->own_is_blocked == (flags == 0));
    }
}

ALONE(crash, a_handler_runs_on_the_stack_that_it_says) {
    for (const int flags : {0, SA_ONSTACK}) {
        const struct sigaction handler = action(restore_and_return, flags);
        const auto install = [&](ibv_pd*) {
            const stack_t stack{.ss_sp = alternate, .ss_flags = 0, .ss_size = sizeof(alternate)};
            sigaltstack(&stack, nullptr);
            sigaction(SIGSEGV, &handler, &kept);
        };
        for (const When when : {When::kBefore, When::kAfter}) {
            EXPECT(ends_by(when, install, touch_nothing) == SIGSEGV && seen->calls == 1);
            EXPECT(seen->on_alternate_stack == (flags != 0), "flags 0x%x", static_cast<unsigned>(flags));
        }
    }
}

ALONE(crash, a_signal_that_was_sent_ends_the_process) {
    for (const int signal : {SIGSEGV, SIGBUS}) {
        EXPECT(ends_by(
                   When::kAfter, [](ibv_pd*) {}, [&] { kill(getpid(), signal); }) == signal);
        const auto install = [&](ibv_pd*) {
            const struct sigaction handler = action(report, SA_RESETHAND);
            sigaction(signal, &handler, nullptr);
        };
        const int ended = ends_by(When::kAfter, install, [&] {
            raise(signal);
            raise(signal);
        });
        EXPECT(ended == signal && seen->calls == 1, "%d after %d calls", ended, seen->calls);
    }
}

// --- memory that the program protects, as garbage collectors do to detect writes

namespace {

uint8_t* guarded = nullptr;
constexpr size_t kGuardedBytes = 8 * 4096;
volatile sig_atomic_t opened = 0, alarms = 0;

void open_page(int, siginfo_t* info, void*) {
    auto* const at = static_cast<uint8_t*>(info->si_addr);
    if (at < guarded || at >= guarded + kGuardedBytes) _exit(3);
    opened = opened + 1;
    mprotect(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(at) & ~uintptr_t{4095}), 4096, PROT_READ | PROT_WRITE);
}

void touch_guarded(int) {
    mprotect(guarded, 4096, PROT_NONE);
    guarded[0] = static_cast<uint8_t>(guarded[0] + 1);
    alarms = alarms + 1;
}

void guard_pages() {
    guarded =
        static_cast<uint8_t*>(mmap(nullptr, kGuardedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT(guarded != MAP_FAILED);
}

}  // namespace

ALONE(crash, protected_memory_is_written_as_its_owner_would) {
    Ends ends;
    guard_pages();
    Owned<ibv_mr> mr = make_mr(ends.pd, guarded, kGuardedBytes);
    const struct sigaction handler = action(open_page, 0);
    EXPECT(sigaction(SIGSEGV, &handler, nullptr) == 0);
    registers(ends.pd);
    EXPECT(mprotect(guarded, kGuardedBytes, PROT_READ) == 0);
    fill(ends.local.at(), kGuardedBytes, 5);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, kGuardedBytes)},
                  .to = reinterpret_cast<uintptr_t>(guarded),
                  .rkey = mr->rkey});
    succeeded(ends.send_cq);
    EXPECT(matches(guarded, kGuardedBytes, 5));
    EXPECT(mprotect(guarded, kGuardedBytes, PROT_NONE) == 0);
    post(ends.a, {.opcode = IBV_WR_RDMA_READ,
                  .sges = {ends.local.sge(0, kGuardedBytes)},
                  .to = reinterpret_cast<uintptr_t>(guarded),
                  .rkey = mr->rkey});
    succeeded(ends.send_cq);
    EXPECT(matches(ends.local.at(), kGuardedBytes, 5));
}

// A handler interrupts posting and polling, and touches such memory.
ALONE(crash, a_handler_that_faults_in_registered_memory_goes_on) {
    Ends ends;
    guard_pages();
    Owned<ibv_mr> mr = make_mr(ends.pd, guarded, kGuardedBytes);
    const struct sigaction handler = action(open_page, 0), ticks = action(touch_guarded, 0);
    EXPECT(sigaction(SIGSEGV, &handler, nullptr) == 0 && sigaction(SIGALRM, &ticks, nullptr) == 0);
    registers(ends.pd);
    const itimerval every{{0, 500}, {0, 500}}, off{};
    EXPECT(setitimer(ITIMER_REAL, &every, nullptr) == 0);
    const double begun = now();
    while (alarms < 300 && now() - begun < 15) {
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                      .sges = {ends.local.sge(0, 4096)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey()});
        succeeded(ends.send_cq);
    }
    setitimer(ITIMER_REAL, &off, nullptr);
    EXPECT(alarms >= 300 && opened >= 300, "%d handlers ended, of which %d opened the page", static_cast<int>(alarms),
           static_cast<int>(opened));
    post(ends.a, {.opcode = IBV_WR_RDMA_READ,
                  .sges = {ends.local.sge(0, 8)},
                  .to = reinterpret_cast<uintptr_t>(guarded) + 4096,
                  .rkey = mr->rkey});
    succeeded(ends.send_cq);
}
