// SPDX-License-Identifier: Apache-2.0
// What the name of a port tells before DPDK has made it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "port/device_config.h"
#include "wire/frame.h"

namespace rove::datapath {

// Of "net_af_packet0,iface=eth0,..." the driver: EAL's names of virtual ports are that with a number behind.
std::string driver_of(std::string_view port);

// Ports that are rove's own: "mesh", "mesh:FOLDER" (ports/mesh.h), "memif:SOCKET,..." (ports/memif.h),
// "interface:NAME" (ports/interface.h), "udp" and "udp:ADDRESS" (ports/udp.h). And what stands behind the colon; "" if
// nothing does.
bool is_mesh(std::string_view port);
bool is_memif(std::string_view port);
bool is_interface(std::string_view port);
bool is_udp(std::string_view port);
std::string port_argument(std::string_view port);
// Whether DPDK drives the port: EAL is told of it.
inline bool is_ethdev(std::string_view port) {
    return !is_mesh(port) && !is_memif(port) && !is_interface(port) && !is_udp(port);
}
// Whether the port says which addresses it has, where the configuration does not.
inline bool has_own_addresses(std::string_view port) {
    return is_mesh(port) || is_interface(port) || is_udp(port);
}

// The value of an argument of a virtual port; "" without.
std::string argument(std::string_view port, std::string_view key);

// Whether the port is named by its PCI address: "0000:03:00.0" or "03:00.0", perhaps with ",devargs". And that address,
// with its domain.
bool is_pci(std::string_view port);
std::string pci_address(std::string_view port);

// Whether the ports of this driver end at another process on the same host.
bool is_peer_to_peer(std::string_view driver);

// The MAC that the device will have, if that can be known without its driver: it is configured, derived (ports between
// processes, taps), or that of an interface of the kernel.
std::optional<wire::MacAddress> mac_before_start(const DeviceConfig& config);

// The interface of the kernel that the port is, or "".
std::string kernel_interface(const DeviceConfig& config);

// Mb/s of the port, as far as that can be known without its driver: what is configured, that of its interface of the
// kernel, else 100 Gb/s.
uint32_t known_rate_mbps(const DeviceConfig& config);

// The folder of the hardware behind the port in sysfs; "" if there is none.
std::string sysfs_device(const DeviceConfig& config);

}  // namespace rove::datapath
