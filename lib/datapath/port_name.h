// SPDX-License-Identifier: Apache-2.0
// What the name of a port tells before DPDK has made it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "datapath/config.h"
#include "wire/frame.h"

namespace rove::datapath {

// Whether the ports of this driver end at another process on the same host.
bool is_peer_to_peer(std::string_view driver);

// The MAC that the device will have, if that can be known without its driver: it is configured, derived (ports between
// processes, taps), or that of an interface of the kernel.
std::optional<wire::MacAddress> mac_before_start(const DeviceConfig& config);

// The interface of the kernel that the port is, or "".
std::string kernel_interface(const DeviceConfig& config);

// The folder of the hardware behind the port in sysfs; "" if there is none.
std::string sysfs_device(const DeviceConfig& config);

}  // namespace rove::datapath
