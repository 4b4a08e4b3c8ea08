// SPDX-License-Identifier: Apache-2.0
// Registered memory that has gone. A NIC's pages stay as long as they are registered; a worker copies through the
// program's own mapping, and the program may unmap it, protect it, or truncate the file behind it, while a peer reads
// or writes it. The worker's access then faults. A handler for SIGSEGV and SIGBUS marks the region as dead, and returns
// to where the worker's burst began, which does what it did once more: now the region's key is refused, as a wrong one
// would be.
//
// DESIGN NOTES
// 1. The handler acts only if this thread is inside of a FaultGuard, and if the address that faulted lies in a
//    registered region. Everything else goes to the handler that the program had, or ends the process as without us.
// 2. What was left half done was left at an access to the program's memory. No lock is held there, and no object lives
//    on the stack that has a destructor with an effect; what the copy was for is written down before it or changes
//    after it. See Engine::recover().
// 3. A copy costs nothing more; a burst a call that writes down where it was called. setjmp() is not that call: whoever
//    calls it can keep nothing in registers, which was dear in a worker's hottest functions.
// 4. Memory that is protected has not gone: a garbage collector does so to see who writes, and its handler opens it. So
//    a handler of the program's is asked first (fault_handlers.h). If the access faults again, the region is dead.
// 5. A handler of the program's that interrupts guarded code, and faults, is not left: that fault is the program's.
#pragma once

#include <ucontext.h>

#include <atomic>
#include <cstdint>

#include "transport/memory.h"

namespace rove::datapath {

class FaultGuard {
  public:
    explicit FaultGuard(transport::MemoryTable& memory) : memory_(memory) {}

    // Calls `step()` until it returns; when it is left by a fault, `recover()` is called before it is called again. On
    // the thread that is in a worker's round.
    void run(auto&& step, auto&& recover) {
        auto of = [&step] { step(); };
        const auto call = [](void* closure) { (*static_cast<decltype(of)*>(closure))(); };
        while (!completes(call, &of)) {
            report();
            recover();
        }
    }

    // Puts our handler in front, if it is not. Any thread. At each registration, and now and then.
    static void install();

  private:
    friend struct FaultHandler;

    // Calls step(of). Whether it returned; if not, a fault has left it.
    bool completes(void (*step)(void*), void* of);
    void resume(ucontext_t& context);  // makes the handler return to completes()
    void report();

    // The library is loaded with the program, so that this needs no allocation when a handler reads it, and no call.
    [[gnu::tls_model("initial-exec")]] static thread_local constinit FaultGuard* active;

    transport::MemoryTable& memory_;
    struct {
        const void* instruction;
        const void* stack;
        const void* frame;
    } resume_;                       // where a fault goes to, and the registers that completes() needs there
    const void* address_ = nullptr;  // that faulted
    uint32_t key_ = 0;               // of the region that died
};

}  // namespace rove::datapath
