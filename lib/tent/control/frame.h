// SPDX-License-Identifier: Apache-2.0
// A message of the control plane on TCP, after the handshake: a header, then JSON. Bytes come from the network: a
// header that is not ours, or says more than is allowed, ends the connection. Units: bytes, nanoseconds of
// CLOCK_MONOTONIC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace rove::tent {

using Json = nlohmann::json;

enum class MessageType : uint16_t {
    kDescribe = 1,  // -> the segment's descriptor
    kConnect,       // QPs of a rail -> the answerer's QPs
    kClose,         // the QPs of a rail's connection are reset before the answer: nothing of it lands any more
    kNotify,        // name and message
    kProbe,         // -> the instance
    kLease,         // an owner's name: its connections can be made while this one is there, and go with it
    kReply,         // to the message of this sequence number
};

struct FrameHeader {
    static constexpr uint32_t kMagic = 0x544E4554;  // "TENT"
    static constexpr uint16_t kVersion = 2;
    static constexpr uint32_t kMaxQuestion = 64u << 10;  // bytes of JSON: a notification's, all of it escaped
    static constexpr uint32_t kMaxAnswer = 16u << 20;    // ... of a segment with some hundred thousand buffers

    uint32_t magic = kMagic;
    uint16_t version = kVersion;
    MessageType type = MessageType::kProbe;
    uint32_t length = 0;  // of the JSON behind
    uint32_t sequence = 0;

    bool is_valid(uint32_t most) const { return magic == kMagic && version == kVersion && length <= most; }
};
static_assert(sizeof(FrameHeader) == 16,
              "as on the wire; little-endian, as all of DPDK's 64-bit hosts are in practice");

// The bytes of a frame.
std::string encode(MessageType type, uint32_t sequence, const Json& body);

// Takes the question in front of `in` from `at` on, and moves `at` behind it.
enum class Taken : uint8_t { kNothing, kQuestion, kBroken };
Taken take_question(const std::string& in, size_t* at, FrameHeader* header, Json* body);

// JSON text that came from elsewhere; nothing if it is not an object. Never throws.
std::optional<Json> parse_object(const std::string& text);

// Fields of such an object, false if there is none of this name and type (or it does not fit).
bool get(const Json& object, const char* key, std::string* value);
bool get(const Json& object, const char* key, uint64_t* value);
bool get(const Json& object, const char* key, uint32_t* value);
bool get(const Json& object, const char* key, bool* value);
// The array of this name, null if there is none or it is longer than `limit`.
const Json* get_array(const Json& object, const char* key, size_t limit);

// Waits until `fd` is ready for `events` of poll(2); false when it is too late.
bool wait_for(int fd, short events, uint64_t deadline_ns);
// Blocking, until `deadline_ns`. False: the connection ended, or it is late.
bool send_all(int fd, const void* data, size_t bytes, uint64_t deadline_ns);
bool receive_all(int fd, void* data, size_t bytes, uint64_t deadline_ns);

}  // namespace rove::tent
