// SPDX-License-Identifier: Apache-2.0
// From verbs' address vectors to the datapath's paths and priorities.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "transport/queue_pair.h"

namespace rove::verbs {

struct Context;

// Checks an address vector. RoCE has no local identifiers: a GRH is required. Returns 0 or EINVAL.
int check_address(const Context& context, const ibv_ah_attr& attr);

// Resolves a checked one, waiting for ARP or ND. `ecn` is what its packets carry in the two ECN bits.
// Returns 0, EINVAL or EHOSTUNREACH.
int resolve_path(const Context& context, const ibv_ah_attr& attr, uint16_t udp_source_port, uint8_t ecn,
                 transport::Path& path);

}  // namespace rove::verbs
