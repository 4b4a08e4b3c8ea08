// SPDX-License-Identifier: Apache-2.0
// A connection to a store that speaks TCP, or TLS by OpenSSL. Blocks, until deadlines in nanoseconds of
// CLOCK_MONOTONIC.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tent/config.h"

namespace rove::tent {

class Stream {
  public:
    Stream() = default;
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // To "host:port". With TLS the server's certificate must be of `host`, and signed by who is in config.ca_file, or
    // by who the system trusts. False: `*error` says why. Once.
    bool open(const std::string& address, bool with_tls, const StoreConfig& config, uint64_t deadline_ns,
              std::string* error);
    bool write(const std::string& bytes, uint64_t deadline_ns);
    // What is there, one byte at least and `most` at most; "": the connection has ended, or it is late.
    std::string read(size_t most, uint64_t deadline_ns);

  private:
    bool start_tls(const std::string& host, const StoreConfig& config, uint64_t deadline_ns, std::string* error);
    // Waits for what OpenSSL wants after it returned `result`; false: the connection has ended, or it is late.
    bool wait_for_tls(int result, uint64_t deadline_ns);

    int fd_ = -1;
    std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_{nullptr, SSL_CTX_free};
    std::unique_ptr<SSL, void (*)(SSL*)> tls_{nullptr, SSL_free};
};

}  // namespace rove::tent
