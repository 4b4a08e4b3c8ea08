// SPDX-License-Identifier: Apache-2.0
// A connected socket, with TLS or without. Calls block until deadlines, in nanoseconds of CLOCK_MONOTONIC. One thread
// at a time.
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
    // Takes the socket; `tls`: what was begun on it, null: none.
    explicit Stream(int fd, std::unique_ptr<TlsSession> tls = nullptr) : fd_(fd), tls_(std::move(tls)) {}
    ~Stream() { close(); }
    Stream(Stream&& other) noexcept { *this = std::move(other); }
    Stream& operator=(Stream&& other) noexcept;

    bool is_open() const { return fd_ >= 0; }
    int fd() const { return fd_; }
    void close();
    // The socket, for whoever only waits for its end.
    int release() { return std::exchange(fd_, -1); }

    // As the initiator; `host` as TlsSession has it. False: `*error` says why.
    bool start_tls(const TlsContext& context, const std::string& host, uint64_t deadline_ns, std::string* error);
    // Why TLS has ended; "": it has not, or there is none.
    std::string tls_error() const { return tls_ != nullptr ? tls_->error() : ""; }

    // All of it. False: the connection has ended, or it is late.
    bool send(const void* data, size_t bytes, uint64_t deadline_ns);
    bool receive(void* data, size_t bytes, uint64_t deadline_ns);
    // What is there, without waiting: how many bytes; 0: nothing yet; -1: the connection has ended.
    ssize_t receive_some(void* to, size_t most);
    // What goes without waiting, from the front of `parts`: how many bytes; 0: nothing now; -1: the connection has
    // ended.
    ssize_t send_some(std::span<const iovec> parts);
    // Of what send_some() took, TLS has sealed something for which the socket had no room: to be called again.
    bool has_unsent() const { return unsent_at_ != unsent_.size(); }
    // Until there may be something to receive. False: it is late.
    bool wait(uint64_t deadline_ns) const;

  private:
    ssize_t receive_raw(void* to, size_t most) const;
    ssize_t send_raw(std::span<const iovec> parts) const;
    bool flush();
    bool has_plain() const { return plain_at_ != plain_.size(); }
    // Lets TLS take what is there; as receive_some().
    ssize_t take_sealed();

    int fd_ = -1;
    std::unique_ptr<TlsSession> tls_;
    std::string plain_;  // what TLS has taken; up to plain_at_ it was received
    size_t plain_at_ = 0;
    std::string unsent_;  // of send_some(), sealed; up to unsent_at_ it was sent
    size_t unsent_at_ = 0;
};

}  // namespace rove::tent
