// SPDX-License-Identifier: Apache-2.0
// Terms that requests, policies and configuration share, and their names. Their numbers are the ones of the public
// header.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rove/tent.hpp"

namespace rove::tent {

inline constexpr uint64_t kNever = ~uint64_t{0};  // nanoseconds

// The priority of a request. Lower numbers go first.
enum class Priority : uint8_t { kHigh = PRIO_HIGH, kMedium = PRIO_MEDIUM, kLow = PRIO_LOW };
inline constexpr uint8_t kPriorities = 3;
constexpr uint8_t index(Priority priority) {
    return static_cast<uint8_t>(priority);
}
const char* name(Priority priority);                            // such as "high"
std::optional<Priority> parse_priority(std::string_view name);  // ignores case
std::optional<Priority> to_priority(int64_t number);            // accepts 0..2

// rove carries data by RDMA, SHM, TCP and IOURING. Policies may mention the others, which are never available (T-21).
using Transport = TransportType;
inline constexpr uint8_t kTransports = kNumTransportTypes;
const char* name(Transport transport);  // such as "rdma" or "io_uring"
// Parses the transport of a policy or a hint. Returns nothing if the name is unknown or "unspec".
std::optional<Transport> parse_transport(std::string_view name);
const std::string& transport_names();  // all names that parse_transport() accepts, for messages

const char* name(TransferStatusEnum state);  // such as "COMPLETED"

enum class SegmentType : uint8_t { kMemory, kFile };

enum class MemoryKind : uint8_t { kCpu, kCuda, kRocm, kNpu };
// Accepts "cpu", "cuda", "rocm" or "hip", and "npu".
std::optional<MemoryKind> parse_memory_kind(std::string_view name);

}  // namespace rove::tent
