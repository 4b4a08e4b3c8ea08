// SPDX-License-Identifier: Apache-2.0
// See client.h.
#include "tent/control/client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tent/clock.h"

namespace rove::tent {

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

std::optional<Json> ControlClient::exchange(int fd, MessageType type, const Json& body, uint64_t deadline_ns) {
    uint32_t sequence;
    {
        const std::lock_guard lock(mutex_);
        sequence = ++sequence_;
    }
    const std::string frame = encode(type, sequence, body);
    FrameHeader header;
    if (!send_all(fd, frame.data(), frame.size(), deadline_ns)) return std::nullopt;
    if (!receive_all(fd, &header, sizeof(header), deadline_ns)) return std::nullopt;
    if (!header.is_valid() || header.type != MessageType::kReply || header.sequence != sequence) return std::nullopt;
    std::string text(header.length, '\0');
    if (!receive_all(fd, text.data(), text.size(), deadline_ns)) return std::nullopt;
    return parse_object(text);
}

std::optional<Json> ControlClient::call(MessageType type, const Json& body, uint64_t timeout_ns) {
    const uint64_t deadline_ns = monotonic_ns() + timeout_ns;
    int fd = -1;
    std::string address;
    {
        const std::lock_guard lock(mutex_);
        address = address_;
        while (!idle_.empty() && fd < 0) {
            fd = idle_.back();
            idle_.pop_back();
            // One that the peer has closed meanwhile reads as ended.
            char byte;
            if (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) {
                close(fd);
                fd = -1;
            }
        }
    }
    if (fd < 0) fd = connect_to(address, deadline_ns);
    if (fd < 0) return std::nullopt;
    std::optional<Json> answer = exchange(fd, type, body, deadline_ns);
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
