// SPDX-License-Identifier: Apache-2.0
// The handlers of SIGSEGV and SIGBUS. rove's handlers come first and the program's handlers follow, for which
// everything behaves as in sigaction(2).
//
// DESIGN NOTES
// 1. A program may install a handler after rove, as UCX and Java do. rove's handler is put in front again, and the new
//    one follows it. A handler may call the handler that it replaced, or restore it and raise the signal once more. The
//    replaced handler is one of rove's too. So rove has several handlers, one for each LEVEL. Each continues with the
//    handler in front of which it was installed, so a handler that the program saved continues further down the chain,
//    as it would without rove.
// 2. If a library installs the same handler again and again, the handler stays in the chain only once: its earlier
//    level passes on to the next one. Levels that no other level leads to are reused, so a fixed number suffices.
// 3. With SA_RESETHAND, a handler's level leads to the default action once the handler has run. rove's handler uses the
//    alternate stack if the handler behind it does. Signals that the program's handler blocks are blocked while it
//    runs.
#pragma once

#include <signal.h>

namespace rove::datapath {

// Handles a fault, or returns false to leave it to the program's handlers from `level` on. Runs in the signal handler.
using TakesFault = bool (*)(int signal, siginfo_t* info, void* context, int level);

// Puts rove's handlers in front unless they are there already. Any thread may call it, always with the same `takes`.
void install_fault_handlers(TakesFault takes);

// Returns true if the program has a handler for the signal, from `level` on. Safe in a signal handler.
bool has_handler(int signal, int level);

}  // namespace rove::datapath
