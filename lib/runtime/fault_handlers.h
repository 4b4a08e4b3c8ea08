// SPDX-License-Identifier: Apache-2.0
// The handlers of SIGSEGV and SIGBUS: rove's in front, and the program's behind it, for which all is as sigaction(2)
// has it.
//
// DESIGN NOTES
// 1. A program may install a handler after rove (UCX and Java do). rove's is put in front again, with that one behind
//    it. A handler may call what it found when it was installed, or put that back and raise the signal once more. That
//    is a handler of rove's too. So rove has several, one for each LEVEL: each leads to the handler that it was put in
//    front of, and from what a program has kept it goes on downwards, as it would without rove.
// 2. A handler that its library installs again and again stands in the chain once: where it was before, its level leads
//    to the next one. Levels that nothing leads to any more are used again, so there are a fixed number of them.
// 3. With SA_RESETHAND a handler's level leads to the default action once it has run. rove's handler asks for the
//    alternate stack if the one behind it does. What that one blocks is blocked while it runs.
#pragma once

#include <signal.h>

namespace rove::datapath {

// Deals with a fault, or leaves it to the program's handlers, those from `level` on: then it returns false. Runs in the
// signal's handler.
using TakesFault = bool (*)(int signal, siginfo_t* info, void* context, int level);

// Puts rove's handlers in front, if they are not. Any thread; `takes` is the same each time.
void install_fault_handlers(TakesFault takes);

// Whether the program has a handler for the signal, from `level` on. Safe in a handler.
bool has_handler(int signal, int level);

}  // namespace rove::datapath
