// SPDX-License-Identifier: Apache-2.0
// A message of the control plane on TCP, after the handshake: a header, then JSON. The bytes come from the network, so
// a header with another magic or version, or with a length above the limit, ends the connection. Units: bytes,
// nanoseconds of CLOCK_MONOTONIC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace rove::tent {

using Json = nlohmann::json;

enum class MessageType : uint16_t {
    kDescribe = 1,  // asks for the description of the segment
    kConnect,       // offers the QPs of a rail and asks for the peer's
    kClose,         // resets the QPs of a rail's connection; after the reply no more of its data arrives
    kNotify,        // a name and a message
    kProbe,         // asks for the instance
    kLease,         // names an owner; its connections may exist only while this control connection is open
    kReply,         // the reply to the message with this sequence number
};

struct FrameHeader {
    static constexpr uint32_t kMagic = 0x544E4554;  // "TENT"
    static constexpr uint16_t kVersion = 2;
    // Bytes of JSON; enough for a notification with every byte escaped.
    static constexpr uint32_t kMaxQuestion = 64u << 10;
    // Bytes of JSON; enough for a segment with some hundred thousand buffers.
    static constexpr uint32_t kMaxAnswer = 16u << 20;

    uint32_t magic = kMagic;
    uint16_t version = kVersion;
    MessageType type = MessageType::kProbe;
    uint32_t length = 0;  // bytes of JSON after the header
    uint32_t sequence = 0;

    bool is_valid(uint32_t most) const { return magic == kMagic && version == kVersion && length <= most; }
};
static_assert(sizeof(FrameHeader) == 16,
              "as on the wire; little-endian, as all of DPDK's 64-bit hosts are in practice");

// Returns the bytes of a frame.
std::string encode(MessageType type, uint32_t sequence, const Json& body);

// Parses the question that begins at `at` in `in`, and moves `at` past it. kNothing: it is not complete. kBroken: it is
// not valid.
enum class Taken : uint8_t { kNothing, kQuestion, kBroken };
Taken take_question(const std::string& in, size_t* at, FrameHeader* header, Json* body);

// Parses JSON text that came from the network. Returns nothing if it is not an object. It never throws.
std::optional<Json> parse_object(const std::string& text);

// These read a field of such an object. They return false if there is no field with this name and type, or its value
// does not fit.
bool get(const Json& object, const char* key, std::string* value);
bool get(const Json& object, const char* key, uint64_t* value);
bool get(const Json& object, const char* key, uint32_t* value);
bool get(const Json& object, const char* key, bool* value);
// Returns the array with this name, or null if there is no such array or it is longer than `limit`.
const Json* get_array(const Json& object, const char* key, size_t limit);

// Waits until `fd` is ready for `events` of poll(2). Returns false if the deadline passes or poll() fails.
bool wait_for(int fd, short events, uint64_t deadline_ns);
// These block until all bytes are sent or received. They return false if the connection ends or the deadline passes.
bool send_all(int fd, const void* data, size_t bytes, uint64_t deadline_ns);
bool receive_all(int fd, void* data, size_t bytes, uint64_t deadline_ns);

}  // namespace rove::tent
