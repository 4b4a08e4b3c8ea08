// SPDX-License-Identifier: Apache-2.0
// The TOML configuration, checked: unknown keys, wrong types and values out of range are refused with file, line, key
// and what is allowed. config/*.toml show every key with its meaning.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "port/device_config.h"
#include "transport/engine.h"

namespace rove::datapath {

inline constexpr uint8_t kServiceLevels = 8;  // as many as an Ethernet port has priorities

inline constexpr uint8_t kHighPriority = 0, kMediumPriority = 1, kLowPriority = 2;

enum class Progress : uint8_t { kShared, kDedicated };

struct Config {
    std::string file;
    std::vector<std::string> eal_args;  // passed on, behind those of eal_arguments()
    Progress progress = Progress::kShared;
    uint32_t workers = 1;             // dedicated: lcores; shared: always 1
    std::vector<std::string> lcores;  // dedicated: CPU of each worker
    transport::Config transport;
    // QueuePair::priority by service level. After IEEE 802.1Q's traffic types: 1 is background, 5 and above are
    // latency-critical.
    std::array<uint8_t, kServiceLevels> priorities{kMediumPriority, kLowPriority,  kMediumPriority, kMediumPriority,
                                                   kMediumPriority, kHighPriority, kHighPriority,   kHighPriority};
    std::vector<DeviceConfig> devices;

    // Without a file: a device for each of these interfaces of the kernel, or else one on the mesh of this user.
    static Config built_in(const std::vector<std::string>& interfaces);
    // Returns nothing and fills `*error` ("FILE:LINE: key 'x.y': ...") when the file is not acceptable.
    static std::optional<Config> load(const std::string& file, std::string* error);
};

}  // namespace rove::datapath
