// SPDX-License-Identifier: Apache-2.0
// See frame.h.
#include "tent/control/frame.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "tent/engine/clock.h"

namespace rove::tent {

std::string encode(MessageType type, uint32_t sequence, const Json& body) {
    // Text that is not UTF-8, in a notification, is sent with replacement characters; otherwise dump() would throw.
    const std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
    FrameHeader header;
    header.type = type;
    header.length = static_cast<uint32_t>(text.size());
    header.sequence = sequence;
    std::string frame(sizeof(header), '\0');
    std::memcpy(frame.data(), &header, sizeof(header));
    return frame += text;
}

Taken take_question(const std::string& in, size_t* at, FrameHeader* header, Json* body) {
    if (in.size() - *at < sizeof(*header)) return Taken::kNothing;
    std::memcpy(header, in.data() + *at, sizeof(*header));
    if (!header->is_valid(FrameHeader::kMaxQuestion)) return Taken::kBroken;
    if (in.size() - *at - sizeof(*header) < header->length) return Taken::kNothing;
    auto object = parse_object(in.substr(*at + sizeof(*header), header->length));
    if (!object) return Taken::kBroken;
    *body = std::move(*object);
    *at += sizeof(*header) + header->length;
    return Taken::kQuestion;
}

std::optional<Json> parse_object(const std::string& text) {
    constexpr int kMaxDepth = 16;  // limit of depth, since the parser recurses
    const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kMaxDepth; };
    Json value = Json::parse(text, shallow, false);
    if (!value.is_object()) return std::nullopt;
    return value;
}

namespace {

const Json* find(const Json& object, const char* key) {
    const auto at = object.find(key);
    return at == object.end() ? nullptr : &*at;
}

}  // namespace

bool get(const Json& object, const char* key, std::string* value) {
    const Json* field = find(object, key);
    if (field == nullptr || !field->is_string()) return false;
    *value = field->get<std::string>();
    return true;
}

bool get(const Json& object, const char* key, uint64_t* value) {
    const Json* field = find(object, key);
    if (field == nullptr || !field->is_number_unsigned()) return false;
    *value = field->get<uint64_t>();
    return true;
}

bool get(const Json& object, const char* key, uint32_t* value) {
    uint64_t wide = 0;
    if (!get(object, key, &wide) || wide > std::numeric_limits<uint32_t>::max()) return false;
    *value = static_cast<uint32_t>(wide);
    return true;
}

bool get(const Json& object, const char* key, bool* value) {
    const Json* field = find(object, key);
    if (field == nullptr || !field->is_boolean()) return false;
    *value = field->get<bool>();
    return true;
}

const Json* get_array(const Json& object, const char* key, size_t limit) {
    const Json* field = find(object, key);
    return field != nullptr && field->is_array() && field->size() <= limit ? field : nullptr;
}

bool wait_for(int fd, short events, uint64_t deadline_ns) {
    while (true) {
        const uint64_t now = monotonic_ns();
        if (now >= deadline_ns) return false;
        pollfd one{fd, events, 0};
        const uint64_t wait_ms = std::min<uint64_t>((deadline_ns - now) / 1'000'000 + 1, 60'000);
        const int ready = poll(&one, 1, static_cast<int>(wait_ms));
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return false;
    }
}

bool send_all(int fd, const void* data, size_t bytes, uint64_t deadline_ns) {
    const char* at = static_cast<const char*>(data);
    while (bytes != 0) {
        const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            at += sent;
            bytes -= static_cast<size_t>(sent);
        } else if (errno != EINTR && (errno != EAGAIN || !wait_for(fd, POLLOUT, deadline_ns))) {
            return false;
        }
    }
    return true;
}

bool receive_all(int fd, void* data, size_t bytes, uint64_t deadline_ns) {
    char* at = static_cast<char*>(data);
    while (bytes != 0) {
        const ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);
        if (got > 0) {
            at += got;
            bytes -= static_cast<size_t>(got);
        } else if (got == 0 || (errno != EINTR && (errno != EAGAIN || !wait_for(fd, POLLIN, deadline_ns)))) {
            return false;
        }
    }
    return true;
}

}  // namespace rove::tent
