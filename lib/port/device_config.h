// SPDX-License-Identifier: Apache-2.0
// The configuration of one device and its port, as checked by config.cc of lib/runtime.
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
    std::string name;                    // the device's name; "" means rove0, rove1, ... by its position
    std::string port;                    // a port of rove's own (port_name.h), a vdev of EAL's, or a PCI address
    std::vector<std::string> addresses;  // "10.0.0.1/24", "fd00::1/64"; empty if the port knows its addresses
    std::optional<std::string> gateway_ipv4, gateway_ipv6;
    uint32_t link_rate_mbps = 0;  // the rate that verbs report; 0 means the port's own
    int numa_node = -1;           // the node that verbs report where no hardware does; -1 means no node
    uint16_t queues = 0;          // RX and TX queues of the port; 0 means as EthdevPort::open() chooses
    uint32_t mtu = 4096;          // largest RoCE path MTU to offer: 256, 512, 1024, 2048, 4096
    // Set by the file; a port without room for it is then refused, else it gets the largest MTU that fits.
    bool mtu_given = false;
    std::optional<wire::MacAddress> mac;  // default: the port's own; a virtual port derives one from its first address
    std::optional<uint16_t> vlan;         // VID; the PCP is the service level
    std::vector<NeighbourConfig> neighbours;
    ImpairConfig impair;

    // Reads the keys of a value alone, each with its range. config.cc has the keys that depend on others.
    void read_keys(auto& table) {
        table.uint("link_rate_mbps", link_rate_mbps, 100, 800'000);
        table.uint("numa_node", numa_node, 0, 1'023);
        table.uint("queues", queues, 1, 64);
        table.uint("mtu", mtu, 256, 4096);
    }
};

}  // namespace rove::datapath
