// SPDX-License-Identifier: Apache-2.0
// The configuration of one device and its port, checked by config.cc of lib/runtime.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "link/neighbour.h"
#include "port/fault_injection/settings.h"
#include "wire/frame.h"

namespace rove::datapath {

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

}  // namespace rove::datapath
