// SPDX-License-Identifier: Apache-2.0
// TLS by OpenSSL, without I/O: bytes that came go in, bytes to send come out. Of connections between engines, and of
// those to redis.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rove/tent_status.h"
#include "tent/config/config.h"

namespace rove::tent {

// What all sessions of one kind have in common: whom we trust, and which certificate is ours. Any thread.
class TlsContext {
  public:
    // `prefix`: of the names of the keys that the files are from, for messages. kInvalidArgument: a file cannot be
    // used.
    static Status load(const TlsFiles& files, const std::string& prefix, std::shared_ptr<const TlsContext>* out);

    SSL_CTX* get() const { return context_.get(); }

  private:
    struct Free {
        void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    };
    std::unique_ptr<SSL_CTX, Free> context_;
};

// One connection. One thread at a time.
class TlsSession {
  public:
    enum class End : uint8_t { kInitiator, kAcceptor };

    // Each end wants a certificate of the other that the context trusts. `host`: the other's must be of this name or
    // address; "": of any.
    TlsSession(const TlsContext& context, End end, const std::string& host = "");

    // Takes what came, appends what it says to `plain`, and what is to be sent because of it to `wire`. An initiator
    // begins with a call without bytes. False: the session is over; error() says why, and what was said before, and an
    // answer, may have been appended.
    bool take(std::string_view came, std::string* plain, std::string* wire);
    // Appends what says `plain` to `wire`. False: the session is not open.
    bool seal(std::string_view plain, std::string* wire);
    bool is_open() const { return is_open_; }
    const std::string& error() const { return error_; }

  private:
    bool advance(std::string* plain);
    void drain(std::string* wire);
    bool fail(int result);

    struct Free {
        void operator()(SSL* session) const { SSL_free(session); }
    };
    std::unique_ptr<SSL, Free> session_;
    BIO *in_ = nullptr, *out_ = nullptr;  // the session's
    bool is_acceptor_ = false;
    bool has_begun_ = false, is_open_ = false;
    std::string error_;
};

}  // namespace rove::tent
