// SPDX-License-Identifier: Apache-2.0
// Registered memory that has gone. A NIC's pages stay as long as they are registered; a worker copies through the
// program's own mapping, and the program may unmap it, protect it, or truncate the file behind it, while a peer reads
// or writes it. The worker's access then faults. A handler for SIGSEGV and SIGBUS marks the region as dead, and goes
// back to where the worker's burst began, which does what it did once more: now the region's key is refused, as a wrong
// one would be.
//
// DESIGN NOTES
// 1. The handler acts only if this thread is inside of a FaultGuard, and if the address that faulted lies in a
//    registered region. Everything else goes to the handler that the program had, or ends the process as without us.
// 2. What was left half done was left at an access to the program's memory. No lock is held there, and no object lives
//    on the stack that has a destructor with an effect; what the copy was for is written down before it or changes
//    after it. See Engine::recover().
// 3. A copy costs nothing more; a burst a _setjmp (some 5 ns).
// 4. A program may install a handler after us (UCX and Java do). Ours is put in front again, with theirs behind it. If
//    theirs in its turn calls what it found when it was installed, that is ours: the same fault, deeper in the stack,
//    goes to the one before theirs.
#pragma once

#include <atomic>
#include <csetjmp>
#include <cstdint>

#include "transport/memory.h"

namespace rove::datapath {

class FaultGuard {
  public:
    explicit FaultGuard(transport::MemoryTable& memory) : memory_(memory) {}

    // Calls `step()` until it returns; when it is left by a fault, `recover()` is called before it is called again. On
    // the thread that is in a worker's round.
    void run(auto&& step, auto&& recover) {
        // Where _longjmp leads to. What changes between here and there lives in memory, behind the references.
        while (_setjmp(resume_) != 0) {
            report();
            recover();
        }
        enter();
        step();
        leave();
    }

    // Puts our handler in front, if it is not. Any thread. At each registration, and now and then.
    static void install();

  private:
    friend struct FaultHandler;

    void enter() {
        active = this;
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    static void leave() {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        active = nullptr;
    }
    void report();

    // The library is loaded with the program, so that this needs no allocation when a handler reads it, and no call.
    [[gnu::tls_model("initial-exec")]] static thread_local constinit FaultGuard* active;

    transport::MemoryTable& memory_;
    std::jmp_buf resume_;
    const void* address_ = nullptr;  // that faulted
    uint32_t key_ = 0;               // of the region that died
};

}  // namespace rove::datapath
