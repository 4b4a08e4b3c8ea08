// SPDX-License-Identifier: Apache-2.0
#include "link/address.h"
#include "port/kernel_interface/udp_sockets.h"
#include "port/port.h"
#include "port/port_kind.h"

namespace rove::datapath {

namespace {

// For the protocol, every host is on the port's link, because the kernel determines the next hop.
std::optional<std::vector<std::string>> addresses_in(std::string_view port) {
    std::vector<std::string> found = udp_addresses(port);
    if (port != "udp" && (found.empty() || is_multicast(*parse_address(found.front())))) return std::nullopt;
    for (std::string& address : found) address += "/0";
    return found;
}

std::string udp_identity(const DeviceConfig& config) {
    std::string all = "udp";
    for (const std::string& address : udp_addresses(config.port)) all += " " + address;
    return all;
}

}  // namespace

const PortKind udp_kind{
    .name = "udp",
    .forms = "\"udp\", \"udp:ADDRESS\"",
    .needs_argument = false,
    .has_own_addresses = true,
    .has_segmentation = true,
    .queue_mbufs = 2 * kDescriptors,
    .without_keys = "none with port = \"udp\": the kernel decides",
    .addresses = addresses_in,
    .identity = udp_identity,
};

}  // namespace rove::datapath
