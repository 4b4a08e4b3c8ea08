// SPDX-License-Identifier: Apache-2.0
// Leaves signals to the program's own threads.
#pragma once

#include <signal.h>

#include <initializer_list>

namespace rove {

// Blocks signals during its lifetime, so threads that are started meanwhile receive none except SIGSEGV and SIGBUS.
// rove needs these two to notice that the memory of a request has been unmapped.
class NoSignals {
  public:
    NoSignals() {
        sigset_t all;
        sigfillset(&all);
        for (const int signal : {SIGSEGV, SIGBUS}) sigdelset(&all, signal);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    NoSignals(const NoSignals&) = delete;
    ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_;
};

}  // namespace rove
