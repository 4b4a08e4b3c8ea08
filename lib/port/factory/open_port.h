// SPDX-License-Identifier: Apache-2.0
// A port by its name in the configuration: which implementation it is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "port/device_config.h"
#include "port/memif/link_port.h"
#include "port/port.h"

namespace rove::datapath {

// Opens the port that `config` names, as the `id`-th of the process. Frames that arrive are in mbufs of `pools`, which
// are the workers'. What the port itself chooses, as a mesh's addresses, is written to `config`. Null: `*error` says
// why.
std::unique_ptr<Port> open_port(uint16_t id, DeviceConfig& config, const LinkPort::Environment& environment,
                                const std::vector<rte_mempool*>& pools, std::string* error);

}  // namespace rove::datapath
