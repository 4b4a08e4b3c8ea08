// SPDX-License-Identifier: Apache-2.0
// The description that a peer publishes: its devices, and the memory that others may read and write. It travels as
// JSON, and data from the network is checked. Units are bytes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tent/control/frame.h"
#include "tent/memory/shared_memory.h"
#include "tent/placement/ranks.h"

namespace rove::tent {

// The prefix of the name of a segment that is a file.
inline constexpr std::string_view kFileScheme = "file://";
inline constexpr size_t kMaxDevices = 64;      // the number of bits in a policy's device mask
inline constexpr size_t kMaxBuffers = 100000;  // limit for one segment

struct BufferDesc {
    uint64_t address = 0, length = 0;
    std::string location;         // "cpu:0", "*"
    bool writable = true;         // true for kGlobalReadWrite, false for kGlobalReadOnly
    std::vector<uint32_t> rkeys;  // indexed by the owner's device
    std::vector<uint8_t> ranks;   // distances to the owner's devices (ranks.h); empty: near to all
    std::optional<ObjectId>
        shared;  // the shared memory that contains it, if other processes on this machine can map it
};

struct DeviceDesc {
    std::string name;
    std::array<uint8_t, 16> gid{};
    uint32_t mtu = 1024;  // largest path MTU
};

class OpenFile;  // transports/io_uring/file.h

enum class SegmentKind : uint8_t { kMemory, kFile };

struct SegmentDesc {
    SegmentKind kind = SegmentKind::kMemory;
    std::string name;
    uint64_t instance = 0;      // identifies the process; changes with a restart
    std::string shm_server;     // name of its ShmServer
    bool same_machine = false;  // true if that server answers us; not sent
    std::string data_address;   // host:port of the tcp transport, or ""
    std::vector<DeviceDesc> devices;
    std::vector<BufferDesc> buffers;       // sorted by address
    std::shared_ptr<const OpenFile> file;  // the file that this process has opened; not sent

    // Returns the buffer that holds all of [address, address + length), or null.
    const BufferDesc* find(uint64_t address, uint64_t length) const;
};

Json to_json(const SegmentDesc& segment);
// Returns no value if a field is missing, of another type or beyond its limits, or if buffers wrap around.
std::optional<SegmentDesc> parse_segment(const Json& object);

std::string to_hex(const std::array<uint8_t, 16>& gid);
bool from_hex(const std::string& text, std::array<uint8_t, 16>* gid);

}  // namespace rove::tent
