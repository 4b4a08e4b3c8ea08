// SPDX-License-Identifier: Apache-2.0
// The names of priorities, transports and kinds of memory as policies spell them, and of states.
#include "tent/config/types.h"

#include <array>
#include <cctype>

namespace rove::tent {

namespace {

constexpr std::array<const char*, kPriorities> kPriorityNames{"high", "medium", "low"};
constexpr std::array<const char*, kTransports> kTransportNames{"unspec", "rdma",     "mnnvl", "shm",    "nvlink",
                                                               "gds",    "io_uring", "tcp",   "ascend", "sunrise_link",
                                                               "tpu",    "ub",       "mpcomm"};

bool same_in_any_case(std::string_view left, std::string_view right) {
    if (left.size() != right.size()) return false;
    for (size_t i = 0; i < left.size(); ++i)
        if (std::tolower(static_cast<unsigned char>(left[i])) != std::tolower(static_cast<unsigned char>(right[i])))
            return false;
    return true;
}

}  // namespace

const char* name(Priority priority) {
    return index(priority) < kPriorities ? kPriorityNames[index(priority)] : "unknown priority";
}

std::optional<Priority> parse_priority(std::string_view name) {
    for (uint8_t i = 0; i < kPriorities; ++i)
        if (same_in_any_case(name, kPriorityNames[i])) return static_cast<Priority>(i);
    return std::nullopt;
}

std::optional<Priority> to_priority(int64_t number) {
    if (number < 0 || number >= kPriorities) return std::nullopt;
    return static_cast<Priority>(number);
}

const char* name(Transport transport) {
    const auto id = static_cast<uint8_t>(transport);
    return id < kTransports ? kTransportNames[id] : "unknown transport";
}

std::optional<Transport> parse_transport(std::string_view name) {
    for (uint8_t id = 1; id < kTransports; ++id)
        if (name == kTransportNames[id]) return static_cast<Transport>(id);
    return std::nullopt;
}

const std::string& transport_names() {
    static const std::string names = [] {
        std::string all;
        for (uint8_t id = 1; id < kTransports; ++id) all += (id > 1 ? ", " : "") + std::string(kTransportNames[id]);
        return all;
    }();
    return names;
}

std::optional<MemoryKind> parse_memory_kind(std::string_view name) {
    if (name == "cpu") return MemoryKind::kCpu;
    if (name == "cuda") return MemoryKind::kCuda;
    if (name == "rocm" || name == "hip") return MemoryKind::kRocm;
    if (name == "npu") return MemoryKind::kNpu;
    return std::nullopt;
}

const char* name(TransferStatusEnum state) {
    switch (state) {
        case TransferStatusEnum::INITIAL:
            return "INITIAL";
        case TransferStatusEnum::PENDING:
            return "PENDING";
        case TransferStatusEnum::INVALID:
            return "INVALID";
        case TransferStatusEnum::CANCELED:
            return "CANCELED";
        case TransferStatusEnum::COMPLETED:
            return "COMPLETED";
        case TransferStatusEnum::TIMEOUT:
            return "TIMEOUT";
        case TransferStatusEnum::FAILED:
            return "FAILED";
    }
    return "unknown state";
}

}  // namespace rove::tent
