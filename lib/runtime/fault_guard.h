// SPDX-License-Identifier: Apache-2.0
// Recovers from faults in registered memory that no longer exists. A NIC's pages stay as long as they are registered. A
// worker, however, copies through the program's own mapping, and the program may unmap it, protect it, or truncate the
// file behind it while a peer reads or writes it. Then the worker's access faults. A handler for SIGSEGV and SIGBUS
// marks the region as dead and returns to the start of the worker's burst, which repeats its work. Now the region's key
// is refused like a wrong one.
//
// DESIGN NOTES
// 1. The handler acts only if this thread is inside a FaultGuard and the address that faulted is in a registered
//    region. Any other fault goes to the handler that the program had, or ends the process as it would without rove.
// 2. Interrupted work was interrupted at an access to the program's memory. There no lock is held, and no object on the
//    stack has a destructor with an effect. The state that a copy serves is recorded before the copy or changes after
//    it. See Engine::recover().
// 3. A copy costs nothing extra. A burst costs one call that records where it was called. This call is not setjmp(),
//    because a caller of setjmp() can keep nothing in registers, which was expensive in a worker's hottest functions.
// 4. Protected memory still exists. A garbage collector protects memory to see who writes, and its handler removes the
//    protection. So a handler of the program's gets the fault first (fault_handlers.h). If the access faults again, the
//    region is dead.
// 5. If a handler of the program's interrupts guarded code and faults itself, it is not aborted: that fault belongs to
//    the program.
#pragma once

#include <ucontext.h>

#include <atomic>
#include <cstdint>

#include "transport/memory.h"

namespace rove::datapath {

class FaultGuard {
  public:
    explicit FaultGuard(transport::MemoryTable& memory) : memory_(memory) {}

    // Calls `step()` until it returns. If a fault aborts it, `recover()` is called before the next try. Must be called
    // on the thread that is in a worker's round.
    void run(auto&& step, auto&& recover) {
        auto of = [&step] { step(); };
        const auto call = [](void* closure) { (*static_cast<decltype(of)*>(closure))(); };
        while (!completes(call, &of)) {
            report();
            recover();
        }
    }

    // Puts our handlers in front unless they are there already. Any thread may call it. It is called for each
    // registration and from time to time.
    static void install();

  private:
    friend struct FaultHandler;

    // Calls step(of). Returns true if it returned, or false if a fault has aborted it.
    bool completes(void (*step)(void*), void* of);
    void resume(ucontext_t& context);  // makes the handler return to completes()
    void report();

    // The library is loaded with the program, so a handler needs neither an allocation nor a call to read this.
    [[gnu::tls_model("initial-exec")]] static thread_local constinit FaultGuard* active;

    transport::MemoryTable& memory_;
    struct {
        const void* instruction;
        const void* stack;
        const void* frame;
    } resume_;  // the place where a fault continues, and the registers that completes() needs there
    const void* address_ = nullptr;  // the address that faulted
    uint32_t key_ = 0;               // the key of the region that is dead
};

}  // namespace rove::datapath
