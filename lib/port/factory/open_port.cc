// SPDX-License-Identifier: Apache-2.0
#include "port/factory/open_port.h"

#include "port/ethdev/ethdev.h"
#include "port/kernel_interface/interface.h"
#include "port/memif/memif.h"
#include "port/mesh/mesh.h"
#include "port/port_name.h"
#include "port/udp/udp.h"

namespace rove::datapath {

std::unique_ptr<Port> open_port(uint16_t id, DeviceConfig& config, const LinkPort::Environment& environment,
                                const std::vector<rte_mempool*>& pools, std::string* error) {
    if (is_mesh(config.port)) {
        auto mesh = std::make_unique<MeshPort>(id, environment);
        return mesh->open(config, error) ? std::move(mesh) : nullptr;
    }
    if (is_memif(config.port)) {
        auto memif = std::make_unique<MemifPort>(id, config, environment);
        return memif->open(error) ? std::move(memif) : nullptr;
    }
    if (is_interface(config.port)) {
        auto interface = std::make_unique<InterfacePort>(id, environment);
        return interface->open(config, pools, error) ? std::move(interface) : nullptr;
    }
    if (is_udp(config.port)) {
        auto udp = std::make_unique<UdpPort>(id, environment.pool, environment.poller, environment.grace);
        return udp->open(config, error) ? std::move(udp) : nullptr;
    }
    auto ethdev = std::make_unique<EthdevPort>(id);
    return ethdev->open(config, pools, error) ? std::move(ethdev) : nullptr;
}

}  // namespace rove::datapath
