// SPDX-License-Identifier: Apache-2.0
// A connected socket, with or without TLS. Calls block until a deadline in nanoseconds of CLOCK_MONOTONIC. One thread
// at a time may use it.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "tent/control/tls.h"

namespace rove::tent {

class Stream {
  public:
    Stream() = default;
    // Owns the socket. `tls` is the session that was begun on it, or null.
    explicit Stream(int fd, std::unique_ptr<TlsSession> tls = nullptr) : fd_(fd), tls_(std::move(tls)) {}
    ~Stream() { close(); }
    Stream(Stream&& other) noexcept { *this = std::move(other); }
    Stream& operator=(Stream&& other) noexcept;

    bool is_open() const { return fd_ >= 0; }
    int fd() const { return fd_; }
    void close();
    // Returns the socket and no longer owns it, for a caller that only waits for the connection to end.
    int release() { return std::exchange(fd_, -1); }

    // Starts TLS as the initiator, with `host` as in TlsSession. Returns false on failure, with the reason in `*error`.
    bool start_tls(const TlsContext& context, const std::string& host, uint64_t deadline_ns, std::string* error);
    // Returns why TLS has ended, or "" if it has not ended or there is no TLS.
    std::string tls_error() const { return tls_ != nullptr ? tls_->error() : ""; }

    // These send or receive all bytes. They return false if the connection ends or the deadline passes.
    bool send(const void* data, size_t bytes, uint64_t deadline_ns);
    bool receive(void* data, size_t bytes, uint64_t deadline_ns);
    // Receives the bytes that are there, without waiting. Returns their number, 0 if there are no bytes yet, or -1 if
    // the connection has ended.
    ssize_t receive_some(void* to, size_t most);
    // Sends as many bytes from the front of `parts` as possible without waiting. Returns their number, 0 if nothing can
    // be sent now, or -1 if the connection has ended.
    ssize_t send_some(std::span<const iovec> parts);
    // Returns true if TLS has encrypted bytes for which the socket had no room. Then send_some() must be called again.
    bool has_unsent() const { return unsent_at_ != unsent_.size(); }
    // Waits until there may be bytes to receive. Returns false if the deadline passes.
    bool wait(uint64_t deadline_ns) const;

  private:
    ssize_t receive_raw(void* to, size_t most) const;
    ssize_t send_raw(std::span<const iovec> parts) const;
    bool flush();
    bool has_plain() const { return plain_at_ != plain_.size(); }
    // Gives the bytes that are there to TLS. Returns the same values as receive_some().
    ssize_t take_sealed();

    int fd_ = -1;
    std::unique_ptr<TlsSession> tls_;
    std::string plain_;  // decrypted bytes; the ones before plain_at_ are already received
    size_t plain_at_ = 0;
    std::string unsent_;  // encrypted bytes of send_some(); the ones before unsent_at_ are already sent
    size_t unsent_at_ = 0;
};

}  // namespace rove::tent
