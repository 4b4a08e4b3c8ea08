// SPDX-License-Identifier: Apache-2.0
// The addresses on which an engine listens, and the address that it gives to others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rove/tent_status.h"
#include "tent/config/config.h"
#include "tent/control/address.h"

namespace rove::tent {

struct Place {
    std::vector<SocketAddress> listen;  // addresses, some of which this host may not have
    std::string host;                   // host to which others connect
    uint16_t port = 0;                  // port to which others connect; 0 for the one on which it listens
    std::string note;                   // notice for the user, "" if there is nothing to say
};

// Returns the address of an RDMA port: RoCE's GIDs are IPv4-mapped or IPv6 addresses.
SocketAddress address_of(const uint8_t (&gid)[16]);

// With a secret or certificates the engine listens on all addresses, unless the configuration names one. Without them
// every process that can connect is trusted, so it listens only on the loopback and on the addresses of its own ports.
// Returns kInvalidArgument if the configuration names another address, or one that is not valid.
Status choose_place(const Config& config, bool has_credentials, const std::vector<SocketAddress>& ports, Place* out);

}  // namespace rove::tent
