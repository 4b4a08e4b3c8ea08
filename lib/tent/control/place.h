// SPDX-License-Identifier: Apache-2.0
// Where an engine listens, and where it tells others that they reach it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rove/tent_status.h"
#include "tent/config/config.h"
#include "tent/control/address.h"

namespace rove::tent {

struct Place {
    std::vector<SocketAddress> listen;  // any of which this host may not have
    std::string host;                   // for others
    uint16_t port = 0;                  // for others; 0: the one that it listens on
    std::string note;                   // what the user is to know, "" if nothing
};

// Of an RDMA port: RoCE's GIDs are addresses of IPv4, mapped, and IPv6.
SocketAddress address_of(const uint8_t (&gid)[16]);

// With a secret or certificates on all addresses, unless the configuration names one. Without, everybody who can
// connect is believed: so only on the loopback and the addresses of our own ports. kInvalidArgument: the configuration
// names another.
Status choose_place(const Config& config, bool has_credentials, const std::vector<SocketAddress>& ports, Place* out);

}  // namespace rove::tent
