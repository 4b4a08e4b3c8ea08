// SPDX-License-Identifier: Apache-2.0
#include "runtime/fault_handlers.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

namespace rove::datapath {

namespace {

constexpr int kLevels = 32;
constexpr int kEnd = -1;  // end of the chain: the default action

// The action of the program in front of which a handler of rove's was installed. Handlers may read it while
// install_fault_handlers() writes. A level is filled before the kernel gets its handler, and refilled only if nothing
// leads to it.
struct Level {
    std::atomic<uintptr_t> function{0};  // SIG_DFL, SIG_IGN, or a handler of either type
    std::atomic<int> flags{0};
    std::atomic<uint64_t> mask{0};  // the signals that Linux has
    std::atomic<int> next{kEnd};
    std::atomic<bool> passes{false};  // its handler is at a level further in front now
    bool is_used = false;             // under `installing`
};

struct Chain {
    const int signal;
    std::array<Level, kLevels> levels{};
    int front = kEnd;  // under `installing`
};
constinit Chain chains[2] = {{SIGSEGV}, {SIGBUS}};
constinit std::atomic<TakesFault> takes_fault{nullptr};
constinit std::mutex installing;

Chain& chain_of(int signal) {
    return chains[signal == SIGBUS ? 1 : 0];
}

bool is_function(uintptr_t function) {
    return function != reinterpret_cast<uintptr_t>(SIG_DFL) && function != reinterpret_cast<uintptr_t>(SIG_IGN);
}

int first_from(const Chain& chain, int level) {
    while (level != kEnd && chain.levels[static_cast<size_t>(level)].passes.load(std::memory_order_relaxed))
        level = chain.levels[static_cast<size_t>(level)].next.load(std::memory_order_relaxed);
    return level;
}

// Restores the default action, which ends the process with its state unchanged when the faulting instruction runs
// again. A signal that was sent is raised once more.
void take_default(int signal, const siginfo_t* info) {
    struct sigaction by_default {};
    by_default.sa_handler = SIG_DFL;
    sigaction(signal, &by_default, nullptr);
    if (info->si_code <= 0) raise(signal);
}

void run_from(int level, int signal, siginfo_t* info, void* context) {
    Chain& chain = chain_of(signal);
    level = first_from(chain, level);
    if (level == kEnd) return take_default(signal, info);
    Level& of = chain.levels[static_cast<size_t>(level)];
    const int flags = of.flags.load(std::memory_order_relaxed);
    uintptr_t function = of.function.load(std::memory_order_relaxed);
    if (is_function(function) && (flags & static_cast<int>(SA_RESETHAND)) != 0)
        function = of.function.exchange(reinterpret_cast<uintptr_t>(SIG_DFL), std::memory_order_relaxed);
    if (!is_function(function)) {
        const bool is_ignored = function == reinterpret_cast<uintptr_t>(SIG_IGN) && info->si_code <= 0;
        if (!is_ignored) take_default(signal, info);
        return;
    }
    sigset_t blocked, before;
    sigemptyset(&blocked);
    const uint64_t mask = of.mask.load(std::memory_order_relaxed);
    std::memcpy(&blocked, &mask, sizeof(mask));
    if ((flags & SA_NODEFER) == 0) sigaddset(&blocked, signal);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    if ((flags & SA_SIGINFO) != 0)
        reinterpret_cast<void (*)(int, siginfo_t*, void*)>(function)(signal, info, context);
    else
        reinterpret_cast<void (*)(int)>(function)(signal);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

template <int kLevel>
void handle(int signal, siginfo_t* info, void* context) {
    const TakesFault takes = takes_fault.load(std::memory_order_relaxed);
    if (!takes(signal, info, context, kLevel)) run_from(kLevel, signal, info, context);
}

using Handler = void (*)(int, siginfo_t*, void*);
template <int... kLevel>
constexpr std::array<Handler, kLevels> all_handlers(std::integer_sequence<int, kLevel...>) {
    return {&handle<kLevel>...};
}
constexpr std::array<Handler, kLevels> kHandlers = all_handlers(std::make_integer_sequence<int, kLevels>());

// Returns the level whose handler of rove's is `action`, or kEnd.
int level_of(const struct sigaction& action) {
    if ((action.sa_flags & SA_SIGINFO) == 0) return kEnd;
    for (int level = 0; level < kLevels; ++level)
        if (action.sa_sigaction == kHandlers[static_cast<size_t>(level)]) return level;
    return kEnd;
}

// Returns a level that was never used, else one that passes on to the next, else the one behind the front.
int free_level(Chain& chain) {
    int found = kEnd;
    for (int level = 0; level < kLevels; ++level) {
        const Level& of = chain.levels[static_cast<size_t>(level)];
        if (!of.is_used) return level;
        if (level != chain.front && of.passes.load(std::memory_order_relaxed)) found = level;
    }
    if (found == kEnd) found = chain.levels[static_cast<size_t>(chain.front)].next.load(std::memory_order_relaxed);
    for (Level& of : chain.levels)  // so that nothing leads to it any more
        if (of.next.load(std::memory_order_relaxed) == found)
            of.next.store(chain.levels[static_cast<size_t>(found)].next.load(std::memory_order_relaxed),
                          std::memory_order_relaxed);
    return found;
}

void put_in_front(Chain& chain) {
    struct sigaction found {};
    sigaction(chain.signal, nullptr, &found);
    if (const int level = level_of(found); level != kEnd) {  // ours is in front, or a handler has restored it
        chain.front = level;
        return;
    }
    const auto function = (found.sa_flags & SA_SIGINFO) != 0 ? reinterpret_cast<uintptr_t>(found.sa_sigaction)
                                                             : reinterpret_cast<uintptr_t>(found.sa_handler);
    const int level = free_level(chain);
    for (Level& of : chain.levels)
        if (of.is_used && of.function.load(std::memory_order_relaxed) == function)
            of.passes.store(true, std::memory_order_relaxed);
    Level& of = chain.levels[static_cast<size_t>(level)];
    uint64_t mask;
    std::memcpy(&mask, &found.sa_mask, sizeof(mask));
    of.function.store(function, std::memory_order_relaxed);
    of.flags.store(found.sa_flags, std::memory_order_relaxed);
    of.mask.store(mask, std::memory_order_relaxed);
    of.next.store(chain.front, std::memory_order_relaxed);
    of.passes.store(false, std::memory_order_relaxed);
    of.is_used = true;
    chain.front = level;
    struct sigaction ours {};
    ours.sa_sigaction = kHandlers[static_cast<size_t>(level)];
    // SA_NODEFER, because the program's own handler decides which signals it blocks.
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | (found.sa_flags & SA_ONSTACK);
    sigaction(chain.signal, &ours, nullptr);
}

}  // namespace

bool has_handler(int signal, int level) {
    const Chain& chain = chain_of(signal);
    level = first_from(chain, level);
    return level != kEnd &&
           is_function(chain.levels[static_cast<size_t>(level)].function.load(std::memory_order_relaxed));
}

void install_fault_handlers(TakesFault takes) {
    const std::lock_guard lock(installing);
    takes_fault.store(takes, std::memory_order_relaxed);
    for (Chain& chain : chains) put_in_front(chain);
}

}  // namespace rove::datapath
