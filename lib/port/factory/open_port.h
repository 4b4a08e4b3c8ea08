// SPDX-License-Identifier: Apache-2.0
// Chooses the implementation of a port by its name in the configuration.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "port/device_config.h"
#include "port/port.h"
#include "port/port_environment.h"

namespace rove::datapath {

// Opens the port that `config` names, with the number `id` in this process. Frames that arrive are in mbufs of `pools`,
// which are the workers'. Values that the port chooses itself, such as a mesh's addresses, are written to `config`.
// Returns null on failure, with the reason in `*error`.
std::unique_ptr<Port> open_port(uint16_t id, DeviceConfig& config, const PortEnvironment& environment,
                                const std::vector<rte_mempool*>& pools, std::string* error);

}  // namespace rove::datapath
