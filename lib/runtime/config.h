// SPDX-License-Identifier: Apache-2.0
// The checked TOML configuration. Unknown keys, wrong types and values out of range are refused with the file, line,
// key and allowed values. The files config/*.toml explain every key.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "port/device_config.h"
#include "transport/engine.h"

namespace rove::datapath {

inline constexpr uint8_t kServiceLevels = 8;  // the number of priorities of an Ethernet port

inline constexpr uint8_t kHighPriority = 0, kMediumPriority = 1, kLowPriority = 2;

enum class Progress : uint8_t { kShared, kDedicated };

struct Config {
    std::string file;
    std::vector<std::string> eal_args;  // passed to EAL after the arguments that rove sets
    Progress progress = Progress::kShared;
    uint32_t workers = 1;             // dedicated: lcores; shared: always 1
    std::vector<std::string> lcores;  // dedicated: the CPU of each worker
    transport::Config transport;
    // QueuePair::priority for each service level. The defaults follow IEEE 802.1Q's traffic types: 1 is background, and
    // 5 and above are latency-critical.
    std::array<uint8_t, kServiceLevels> priorities{kMediumPriority, kLowPriority,  kMediumPriority, kMediumPriority,
                                                   kMediumPriority, kHighPriority, kHighPriority,   kHighPriority};
    std::vector<DeviceConfig> devices;

    // Returns the configuration that is used without a file: a device for each of these kernel interfaces, or one
    // device on the mesh of this user if there are no interfaces.
    static Config built_in(const std::vector<std::string>& interfaces);
    // Returns nothing and fills `*error` ("FILE:LINE: key 'x.y': ...") if the file is not acceptable.
    static std::optional<Config> load(const std::string& file, std::string* error);
};

}  // namespace rove::datapath
