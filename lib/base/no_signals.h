// SPDX-License-Identifier: Apache-2.0
// Signals are the business of the program's threads.
#pragma once

#include <signal.h>

#include <initializer_list>

namespace rove {

// Threads that are started while it is there take none but SIGSEGV and SIGBUS, by which rove notices that memory of a
// request is no more.
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
