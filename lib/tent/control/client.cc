// SPDX-License-Identifier: Apache-2.0
// See client.h.
#include "tent/control/client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "tent/clock.h"
#include "tent/control/handshake.h"

namespace rove::tent {

std::optional<Json> exchange(int fd, uint32_t sequence, MessageType type, const Json& body, uint64_t deadline_ns) {
    const std::string frame = encode(type, sequence, body);
    FrameHeader header;
    if (!send_all(fd, frame.data(), frame.size(), deadline_ns)) return std::nullopt;
    if (!receive_all(fd, &header, sizeof(header), deadline_ns)) return std::nullopt;
    if (!header.is_valid(FrameHeader::kMaxAnswer) || header.type != MessageType::kReply || header.sequence != sequence)
        return std::nullopt;
    std::string text(header.length, '\0');
    if (!receive_all(fd, text.data(), text.size(), deadline_ns)) return std::nullopt;
    return parse_object(text);
}

ControlClient::~ControlClient() {
    for (const int fd : idle_) close(fd);
}

std::string ControlClient::address() const {
    const std::lock_guard lock(mutex_);
    return address_;
}

void ControlClient::set_address(std::string address) {
    const std::lock_guard lock(mutex_);
    if (address == address_) return;
    address_ = std::move(address);
    for (const int fd : idle_) close(fd);
    idle_.clear();
}

std::optional<Json> ControlClient::call(MessageType type, const Json& body, uint64_t timeout_ns,
                                        std::string* why) {
    const uint64_t deadline_ns = monotonic_ns() + timeout_ns;
    int fd = -1;
    std::string address, reason = "no answer";
    uint32_t sequence;
    {
        const std::lock_guard lock(mutex_);
        address = address_;
        sequence = ++sequence_;
        while (!idle_.empty() && fd < 0) {
            fd = idle_.back();
            idle_.pop_back();
            // One that the peer has closed meanwhile reads as ended.
            char byte;
            if (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN) {
                close(fd);
                fd = -1;
            }
        }
    }
    if (fd < 0) fd = open_connection(address, Purpose::kControl, secret_, deadline_ns, &reason);
    if (why != nullptr) *why = fd < 0 ? reason : "no answer";
    if (fd < 0) return std::nullopt;
    std::optional<Json> answer = exchange(fd, sequence, type, body, deadline_ns);
    if (!answer) {
        close(fd);
        return answer;
    }
    const std::lock_guard lock(mutex_);
    if (address == address_) {
        idle_.push_back(fd);
    } else {
        close(fd);
    }
    return answer;
}

}  // namespace rove::tent
