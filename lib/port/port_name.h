// SPDX-License-Identifier: Apache-2.0
// Reads from a port's name the facts that are known before DPDK has created the port.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "port/device_config.h"
#include "wire/frame.h"

namespace rove::datapath {

// Returns the driver in the name of a virtual port, for example "net_af_packet" for "net_af_packet0,iface=eth0,...".
// EAL's name of such a port is its driver's name and a number.
std::string driver_of(std::string_view port);

// Returns the port without its options: "memif:SOCKET" for "memif:SOCKET,role=server".
std::string_view without_options(std::string_view port);
// Returns the text behind the colon of a port of rove's own, without options, or "".
std::string port_argument(std::string_view port);
// Returns true if DPDK drives the port, so that EAL needs its name.
bool is_ethdev(std::string_view port);

// Returns the value of an argument of a virtual port, or "" if the argument is missing.
std::string argument(std::string_view port, std::string_view key);

// Returns true if the port is named by its PCI address, "0000:03:00.0" or "03:00.0", optionally followed by ",devargs".
// pci_address() returns that address with its domain.
bool is_pci(std::string_view port);
std::string pci_address(std::string_view port);

// Returns true if the ports of this driver connect to another process on the same host.
bool is_peer_to_peer(std::string_view driver);

// Returns the MAC that the device will have, if it can be known without the driver. It is configured, derived from an
// address (ports between processes, taps), or that of an interface of the kernel.
std::optional<wire::MacAddress> mac_before_start(const DeviceConfig& config);

// Returns the name of the kernel's interface that the port uses, or "".
std::string kernel_interface(const DeviceConfig& config);

// Returns the rate of the port in Mb/s, as far as it can be known without the driver: the configured rate, else that of
// the kernel's interface, else 100 Gb/s.
uint32_t known_rate_mbps(const DeviceConfig& config);

// Returns the sysfs folder of the hardware behind the port, or "" if there is no hardware.
std::string sysfs_device(const DeviceConfig& config);

}  // namespace rove::datapath
