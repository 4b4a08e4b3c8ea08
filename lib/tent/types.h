// SPDX-License-Identifier: Apache-2.0
// The words that requests, policies and configuration share, with their numbers and names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rove::tent {

inline constexpr uint64_t kNever = ~uint64_t{0};  // of nanoseconds

// Of a request. Lower numbers go first.
enum class Priority : uint8_t { kHigh = 0, kMedium = 1, kLow = 2 };
inline constexpr uint8_t kPriorities = 3;
constexpr uint8_t index(Priority priority) {
    return static_cast<uint8_t>(priority);
}
const char* name(Priority priority);                            // "high"
std::optional<Priority> parse_priority(std::string_view name);  // in any case
std::optional<Priority> to_priority(int64_t number);            // 0..2

// The documented ids. rove carries data by kRdma, kShm, kTcp and kIoUring; the others are names that policies may
// mention and that are never available.
enum class Transport : uint8_t {
    kUnspec = 0,
    kRdma = 1,
    kMnnvl = 2,
    kShm = 3,
    kNvlink = 4,
    kGds = 5,
    kIoUring = 6,
    kTcp = 7,
    kAscend = 8,
    kSunriseLink = 9,
    kTpu = 10,
    kUb = 11,
    kMpcomm = 12,
};
inline constexpr uint8_t kTransports = 13;  // ids 0..12
const char* name(Transport transport);      // "rdma", "io_uring", ...
// Of a policy or a hint: not "unspec". Some transport's name or nothing.
std::optional<Transport> parse_transport(std::string_view name);
const std::string& transport_names();  // all that parse_transport() takes, for messages

enum class SegmentType : uint8_t { kMemory, kFile };

enum class MemoryKind : uint8_t { kCpu, kCuda, kRocm, kNpu };
// "cpu", "cuda", "rocm" or "hip", "npu"
std::optional<MemoryKind> parse_memory_kind(std::string_view name);

}  // namespace rove::tent
