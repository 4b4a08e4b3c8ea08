// SPDX-License-Identifier: Apache-2.0
// Tests what the name of a port reveals before DPDK has created the port.
#include "port/port_name.h"

#include <gtest/gtest.h>

#include "link/address.h"

namespace rove::datapath {
namespace {

std::optional<wire::MacAddress> mac_of(const std::string& port) {
    DeviceConfig config;
    config.port = port;
    config.addresses = {"10.0.0.1/24"};
    return mac_before_start(config);
}

TEST(PortName, PortsBetweenProcessesDeriveTheirMac) {
    const wire::MacAddress derived = derived_mac(*parse_address("10.0.0.1"));
    for (const char* port :
         {"net_memif0,role=server", "net_vhost1,iface=/tmp/x", "net_virtio_user0", "net_tap3,iface=tap3"})
        EXPECT_EQ(mac_of(port), derived) << port;
}

TEST(PortName, InterfacesOfTheKernelMayHaveOne) {
    EXPECT_EQ(mac_of("net_af_packet0,iface=lo"), derived_mac(*parse_address("10.0.0.1"))) << "but for the loopback";
    EXPECT_EQ(mac_of("net_af_packet0,qpairs=2,iface=no-such-interface"), std::nullopt);
    EXPECT_EQ(mac_of("net_af_xdp0"), std::nullopt) << "without an interface";
    EXPECT_EQ(mac_of("interface:no-such-interface"), std::nullopt);
}

TEST(PortName, OtherDriversMustBeAsked) {
    EXPECT_EQ(mac_of("net_null0"), std::nullopt);
    EXPECT_EQ(mac_of("0000:01:00.0"), std::nullopt);
}

TEST(PortName, AConfiguredMacCounts) {
    DeviceConfig config;
    config.port = "net_null0";
    config.addresses = {"10.0.0.1/24"};
    config.mac = parse_mac("02:00:00:00:00:07");
    EXPECT_EQ(mac_before_start(config), config.mac);
}

}  // namespace
}  // namespace rove::datapath
