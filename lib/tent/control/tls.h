// SPDX-License-Identifier: Apache-2.0
// TLS by OpenSSL, without I/O: received bytes go in, bytes to send come out. It is for connections between engines, and
// for connections to redis.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rove/tent_status.h"
#include "tent/config/config.h"

namespace rove::tent {

// The common part of all sessions of one kind: the trusted authorities and the own certificate. Any thread may use it.
class TlsContext {
  public:
    // `prefix` begins the names of the configuration keys that name the files, for messages. Returns kInvalidArgument
    // if a file cannot be used.
    static Status load(const TlsFiles& files, const std::string& prefix, std::shared_ptr<const TlsContext>* out);

    SSL_CTX* get() const { return context_.get(); }

  private:
    struct Free {
        void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    };
    std::unique_ptr<SSL_CTX, Free> context_;
};

// The TLS session of one connection. One thread at a time may use it.
class TlsSession {
  public:
    enum class End : uint8_t { kInitiator, kAcceptor };

    // Each end requires a certificate from the other one that the context trusts. The other's certificate must be for
    // the name or address `host`; "" accepts any.
    TlsSession(const TlsContext& context, End end, const std::string& host = "");

    // Decrypts received bytes. Appends the data to `plain`, and the bytes to send in response to `wire`. An initiator
    // begins with a call without bytes. Returns false if the session is over: error() has the reason, and data that
    // came before and an answer may have been appended.
    bool take(std::string_view came, std::string* plain, std::string* wire);
    // Encrypts `plain` and appends the result to `wire`. Returns false if the session is not open.
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
    BIO *in_ = nullptr, *out_ = nullptr;  // owned by the session
    bool is_acceptor_ = false;
    bool has_begun_ = false, is_open_ = false;
    std::string error_;
};

}  // namespace rove::tent
