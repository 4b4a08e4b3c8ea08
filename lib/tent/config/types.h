// SPDX-License-Identifier: Apache-2.0
// The words that requests, policies and configuration share, and their names. Their numbers are those of the public
// header.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rove/tent.hpp"

namespace rove::tent {

inline constexpr uint64_t kNever = ~uint64_t{0};  // of nanoseconds

// Of a request. Lower numbers go first.
enum class Priority : uint8_t { kHigh = PRIO_HIGH, kMedium = PRIO_MEDIUM, kLow = PRIO_LOW };
inline constexpr uint8_t kPriorities = 3;
constexpr uint8_t index(Priority priority) {
    return static_cast<uint8_t>(priority);
}
const char* name(Priority priority);                            // "high"
std::optional<Priority> parse_priority(std::string_view name);  // in any case
std::optional<Priority> to_priority(int64_t number);            // 0..2

// rove carries data by RDMA, SHM, TCP and IOURING; the others are names that policies may mention and that are never
// available (T-21).
using Transport = TransportType;
inline constexpr uint8_t kTransports = kNumTransportTypes;
const char* name(Transport transport);  // "rdma", "io_uring", ...
// Of a policy or a hint: not "unspec". Some transport's name or nothing.
std::optional<Transport> parse_transport(std::string_view name);
const std::string& transport_names();  // all that parse_transport() takes, for messages

const char* name(TransferStatusEnum state);  // "COMPLETED"

enum class SegmentType : uint8_t { kMemory, kFile };

enum class MemoryKind : uint8_t { kCpu, kCuda, kRocm, kNpu };
// "cpu", "cuda", "rocm" or "hip", "npu"
std::optional<MemoryKind> parse_memory_kind(std::string_view name);

}  // namespace rove::tent
