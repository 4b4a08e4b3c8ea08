// SPDX-License-Identifier: Apache-2.0
// See stream.h.
#include "tent/control/stream.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tent/control/frame.h"
#include "tent/engine/clock.h"

namespace rove::tent {

namespace {

constexpr size_t kSealBytes = 65'536;         // bytes that are encrypted at a time when sending
constexpr uint64_t kReplyNs = 1'000'000'000;  // time to send the answers of TLS itself

}  // namespace

Stream& Stream::operator=(Stream&& other) noexcept {
    if (this == &other) return *this;
    close();
    fd_ = std::exchange(other.fd_, -1);
    tls_ = std::move(other.tls_);
    plain_ = std::move(other.plain_);
    plain_at_ = std::exchange(other.plain_at_, 0);
    other.plain_.clear();
    unsent_ = std::move(other.unsent_);
    unsent_at_ = std::exchange(other.unsent_at_, 0);
    other.unsent_.clear();
    return *this;
}

void Stream::close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

bool Stream::start_tls(const TlsContext& context, const std::string& host, uint64_t deadline_ns, std::string* error) {
    tls_ = std::make_unique<TlsSession>(context, TlsSession::End::kInitiator, host);
    std::string wire;
    bool goes_on = tls_->take({}, &plain_, &wire);
    *error = "TLS: no answer";
    if (goes_on) goes_on = send_all(fd_, wire.data(), wire.size(), deadline_ns);
    while (goes_on && !tls_->is_open()) {
        if (!wait_for(fd_, POLLIN, deadline_ns)) return false;
        goes_on = take_sealed() >= 0;
    }
    if (!goes_on) *error = "TLS: " + (tls_error().empty() ? "the peer does not use TLS" : tls_error());
    return goes_on;
}

bool Stream::send(const void* data, size_t bytes, uint64_t deadline_ns) {
    if (tls_ == nullptr) return send_all(fd_, data, bytes, deadline_ns);
    const char* at = static_cast<const char*>(data);
    std::string wire;
    for (size_t part; bytes != 0; at += part, bytes -= part) {
        part = std::min(bytes, kSealBytes);
        wire.clear();
        if (!tls_->seal({at, part}, &wire) || !send_all(fd_, wire.data(), wire.size(), deadline_ns)) return false;
    }
    return true;
}

bool Stream::receive(void* data, size_t bytes, uint64_t deadline_ns) {
    char* at = static_cast<char*>(data);
    while (bytes != 0) {
        const ssize_t got = receive_some(at, bytes);
        if (got < 0 || (got == 0 && !wait(deadline_ns))) return false;
        at += got;
        bytes -= static_cast<size_t>(got);
    }
    return true;
}

ssize_t Stream::receive_some(void* to, size_t most) {
    if (tls_ == nullptr) return receive_raw(to, most);
    if (!has_plain()) {
        const ssize_t taken = take_sealed();
        if (!has_plain()) return taken < 0 ? -1 : 0;
    }
    const size_t bytes = std::min(most, plain_.size() - plain_at_);
    std::memcpy(to, plain_.data() + plain_at_, bytes);
    plain_at_ += bytes;
    return static_cast<ssize_t>(bytes);
}

ssize_t Stream::send_some(std::span<const iovec> parts) {
    if (tls_ == nullptr) return send_raw(parts);
    if (!flush()) return -1;
    if (has_unsent()) return 0;
    size_t sealed = 0;
    unsent_.clear();
    unsent_at_ = 0;
    for (const iovec& part : parts) {
        const size_t bytes = std::min(part.iov_len, kSealBytes - sealed);
        if (bytes != 0 && !tls_->seal({static_cast<const char*>(part.iov_base), bytes}, &unsent_)) return -1;
        sealed += bytes;
    }
    return flush() ? static_cast<ssize_t>(sealed) : -1;
}

bool Stream::flush() {
    if (!has_unsent()) return true;
    const iovec rest{unsent_.data() + unsent_at_, unsent_.size() - unsent_at_};
    const ssize_t sent = send_raw({&rest, 1});
    if (sent > 0) unsent_at_ += static_cast<size_t>(sent);
    return sent >= 0;
}

ssize_t Stream::send_raw(std::span<const iovec> parts) const {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    const ssize_t sent = sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return sent;
    return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

ssize_t Stream::receive_raw(void* to, size_t most) const {
    const ssize_t got = recv(fd_, to, most, MSG_DONTWAIT);
    if (got > 0) return got;
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

ssize_t Stream::take_sealed() {
    char chunk[kSealBytes];
    plain_.clear();
    plain_at_ = 0;
    const ssize_t got = receive_raw(chunk, sizeof(chunk));
    if (got <= 0) return got;
    std::string wire;
    const bool goes_on = tls_->take({chunk, static_cast<size_t>(got)}, &plain_, &wire);
    if (!wire.empty() && !send_all(fd_, wire.data(), wire.size(), monotonic_ns() + kReplyNs)) return -1;
    return goes_on ? got : -1;
}

bool Stream::wait(uint64_t deadline_ns) const {
    return has_plain() || wait_for(fd_, POLLIN, deadline_ns);
}

}  // namespace rove::tent
