// SPDX-License-Identifier: Apache-2.0
// The TOML configuration, checked: unknown keys, wrong types and values out of range are refused with file, line, key
// and what is allowed. config/*.toml show every key with its meaning.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "datapath/impair/settings.h"
#include "transport/engine.h"
#include "wire/frame.h"

namespace rove::datapath {

inline constexpr uint8_t kServiceLevels = 8;  // as many as an Ethernet port has priorities

inline constexpr uint8_t kHighPriority = 0, kMediumPriority = 1, kLowPriority = 2;

enum class Progress : uint8_t { kShared, kDedicated };

struct NeighbourConfig {
    wire::Gid address{};
    wire::MacAddress mac{};
};

struct DeviceConfig {
    std::string name;                    // of the device; "": rove0, rove1, ... by its place
    std::string port;                    // ports of rove's own (port_name.h), a vdev of EAL's, or a PCI address
    std::vector<std::string> addresses;  // "10.0.0.1/24", "fd00::1/64"; none: the port knows
    std::optional<std::string> gateway_ipv4, gateway_ipv6;
    uint32_t link_rate_mbps = 0;  // that verbs report; 0: the port's own
    int numa_node = -1;           // that verbs report, where no hardware does; -1: none
    uint16_t queues = 0;          // RX and TX queues of the port; 0: as Port::open() says
    uint32_t mtu = 4096;          // largest RoCE path MTU to offer: 256, 512, 1024, 2048, 4096
    bool mtu_given = false;       // by the file: then a port that has no room for it is refused, else it gets what fits
    std::optional<wire::MacAddress>
        mac;                       // default: the port's own, or derived from the first address for virtual ports
    std::optional<uint16_t> vlan;  // VID; the PCP is the service level
    std::vector<NeighbourConfig> neighbours;
    ImpairConfig impair;
};

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
