// SPDX-License-Identifier: Apache-2.0
// See client.h.
#include "tent/control/client.h"

#include <sys/socket.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "tent/control/handshake.h"
#include "tent/engine/clock.h"

namespace rove::tent {

std::optional<Json> exchange(Stream& stream, uint32_t sequence, MessageType type, const Json& body,
                             uint64_t deadline_ns) {
    const std::string frame = encode(type, sequence, body);
    FrameHeader header;
    if (!stream.send(frame.data(), frame.size(), deadline_ns)) return std::nullopt;
    if (!stream.receive(&header, sizeof(header), deadline_ns)) return std::nullopt;
    if (!header.is_valid(FrameHeader::kMaxAnswer) || header.type != MessageType::kReply || header.sequence != sequence)
        return std::nullopt;
    std::string text(header.length, '\0');
    if (!stream.receive(text.data(), text.size(), deadline_ns)) return std::nullopt;
    return parse_object(text);
}

std::string ControlClient::address() const {
    const std::lock_guard lock(mutex_);
    return address_;
}

void ControlClient::set_address(std::string address) {
    const std::lock_guard lock(mutex_);
    if (address == address_) return;
    address_ = std::move(address);
    idle_.clear();
}

std::optional<Json> ControlClient::call(MessageType type, const Json& body, uint64_t timeout_ns, std::string* why) {
    const uint64_t deadline_ns = monotonic_ns() + timeout_ns;
    Stream stream;
    std::string address, reason = "no answer";
    uint32_t sequence;
    {
        const std::lock_guard lock(mutex_);
        if (has_hung_up_) return std::nullopt;
        address = address_;
        sequence = ++sequence_;
        while (!idle_.empty() && !stream.is_open()) {
            stream = std::move(idle_.back());
            idle_.pop_back();
            // A connection that the peer has closed meanwhile reads as ended.
            char byte;
            if (recv(stream.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN) stream.close();
        }
    }
    if (!stream.is_open()) stream = open_connection(address, Purpose::kControl, credentials_, deadline_ns, &reason);
    if (why != nullptr) *why = stream.is_open() ? "no answer" : reason;
    if (!stream.is_open()) return std::nullopt;
    {
        const std::lock_guard lock(mutex_);
        if (has_hung_up_) return std::nullopt;
        waiting_.push_back(stream.fd());
    }
    std::optional<Json> answer = exchange(stream, sequence, type, body, deadline_ns);
    const std::lock_guard lock(mutex_);
    std::erase(waiting_, stream.fd());
    if (!answer) return answer;
    if (address == address_) idle_.push_back(std::move(stream));
    return answer;
}

void ControlClient::hang_up() {
    const std::lock_guard lock(mutex_);
    has_hung_up_ = true;
    for (const int fd : waiting_) shutdown(fd, SHUT_RDWR);
}

}  // namespace rove::tent
