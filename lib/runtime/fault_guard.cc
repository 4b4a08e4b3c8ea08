// SPDX-License-Identifier: Apache-2.0
#include "runtime/fault_guard.h"

#include <signal.h>
#include <ucontext.h>
#include <unwind.h>

#include <cstdio>

#include "runtime/fault_handlers.h"

// A function of AddressSanitizer's run-time library, if that is present.
extern "C" [[gnu::weak]] void __asan_handle_no_return();

namespace rove::datapath {

[[gnu::tls_model("initial-exec")]] thread_local constinit FaultGuard* FaultGuard::active = nullptr;

// The address for which the program's handler was called last, in this call of completes().
[[gnu::tls_model("initial-exec")]] thread_local constinit const void* asked = nullptr;

struct FaultHandler {
    // Returns true if a handler of the program's has interrupted the guarded code and caused the fault itself. Then the
    // frame of another signal is between this handler and completes().
    static bool is_nested(const FaultGuard& guard) {
        struct Walk {
            uintptr_t end;
            int signal_frames = 0;
        } walk{reinterpret_cast<uintptr_t>(guard.resume_.stack)};
        _Unwind_Backtrace(
            [](_Unwind_Context* frame, void* of) {
                Walk& walk = *static_cast<Walk*>(of);
                int is_signal_frame = 0;
                _Unwind_GetIPInfo(frame, &is_signal_frame);
                walk.signal_frames += is_signal_frame != 0;
                constexpr uintptr_t kFrameBytes = 1024;  // more than the frame of completes()
                const bool has_come = _Unwind_GetCFA(frame) - walk.end - 1 < kFrameBytes;
                return walk.signal_frames > 1 || has_come ? _URC_NORMAL_STOP : _URC_NO_REASON;
            },
            &walk);
        return walk.signal_frames > 1;
    }

    // Returns true if the fault occurred in guarded code and has been handled.
    static bool takes(int signal, siginfo_t* info, void* context, int level) {
        FaultGuard* const guard = FaultGuard::active;
        if (guard == nullptr || info->si_code <= 0 || is_nested(*guard)) return false;
        const bool is_protected = signal == SIGSEGV && info->si_code != SEGV_MAPERR;
        if (is_protected && asked != info->si_addr && has_handler(signal, level)) {
            asked = info->si_addr;
            return false;
        }
        guard->key_ = guard->memory_.invalidate_at(info->si_addr);
        if (guard->key_ == 0) return false;
        guard->address_ = info->si_addr;
        guard->resume(*static_cast<ucontext_t*>(context));
        return true;
    }
};

void FaultGuard::install() {
    install_fault_handlers(FaultHandler::takes);
}

// Has no locals and no destructors and is not inlined, so all that matters at `left` is on the stack above what step()
// uses.
[[gnu::noinline]] bool FaultGuard::completes(void (*step)(void*), void* of) {
    active = this;
    asked = nullptr;
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

// When the handler returns, the kernel restores the registers, the signal mask and the modes of the floating-point
// unit.
void FaultGuard::resume(ucontext_t& context) {
    active = nullptr;
    // Functions that AddressSanitizer tracks are left without returning.
    if (__asan_handle_no_return != nullptr) __asan_handle_no_return();
    const auto set = [&](int which, const void* value) {
        context.uc_mcontext.gregs[which] = reinterpret_cast<greg_t>(value);
    };
    set(REG_RIP, resume_.instruction);
    set(REG_RSP, resume_.stack);
    set(REG_RBP, resume_.frame);
    set(REG_RDI, &resume_);
}

void FaultGuard::report() {
    std::fprintf(stderr,
                 "rove: registered memory at %p is no longer accessible (unmapped, protected, or its file truncated): "
                 "key 0x%08x is dead "
                 "until it is deregistered\n",
                 address_, key_);
}

}  // namespace rove::datapath
