// SPDX-License-Identifier: Apache-2.0
#include "port/factory/open_port.h"

#include "port/ethdev/ethdev.h"
#include "port/port_kind.h"

namespace rove::datapath {

#define ROVE_DECLARE_OPEN_PORT(kind) OpenPort open_##kind##_port;
ROVE_PORT_KINDS(ROVE_DECLARE_OPEN_PORT)

std::unique_ptr<Port> open_port(uint16_t id, DeviceConfig& config, const PortEnvironment& environment,
                                const std::vector<rte_mempool*>& pools, std::string* error) {
    const PortKind* const kind = kind_of(config.port);
#define ROVE_OPEN_PORT(name) \
    if (kind == &name##_kind) return open_##name##_port(id, config, environment, pools, error);
    ROVE_PORT_KINDS(ROVE_OPEN_PORT)
    auto ethdev = std::make_unique<EthdevPort>(id);
    return ethdev->open(config, pools, error) ? std::move(ethdev) : nullptr;
}

}  // namespace rove::datapath
