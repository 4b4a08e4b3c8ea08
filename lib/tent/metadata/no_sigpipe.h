// SPDX-License-Identifier: Apache-2.0
// libcurl lets OpenSSL write to sockets without MSG_NOSIGNAL, so that a server that closes a connection would end the
// program with SIGPIPE.
#pragma once

#include <signal.h>
#include <time.h>

namespace rove::tent {

// While the object exists, writes of this thread cause no SIGPIPE.
class NoSigpipe {
  public:
    NoSigpipe() {
        sigset_t pending;
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGPIPE) == 1;
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~NoSigpipe() {
        const timespec now{};
        if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    NoSigpipe(const NoSigpipe&) = delete;
    NoSigpipe& operator=(const NoSigpipe&) = delete;

  private:
    sigset_t pipe_, before_;
    bool was_pending_;
};

}  // namespace rove::tent
