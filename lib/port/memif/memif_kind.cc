// SPDX-License-Identifier: Apache-2.0
#include "port/port_kind.h"
#include "port/port_name.h"

namespace rove::datapath {

namespace {

// The two ends of a memif are two ports.
std::string memif_identity(const DeviceConfig& config) {
    const bool server = argument(config.port, "role") == "server";
    return (server ? "memif server " : "memif client ") + port_argument(config.port) + " " +
           argument(config.port, "id");
}

}  // namespace

const PortKind memif_kind{
    .name = "memif",
    .forms = "\"memif:SOCKET,role=server\"",
    .has_links = true,
    .identity = memif_identity,
};

}  // namespace rove::datapath
