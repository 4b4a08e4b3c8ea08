// SPDX-License-Identifier: Apache-2.0
// Converts verbs' address vectors to the datapath's paths and priorities.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "transport/queue_pair.h"

namespace rove::verbs {

struct Context;

// Checks an address vector. RoCE has no LIDs, so a GRH is required. Returns 0 or EINVAL.
int check_address(const Context& context, const ibv_ah_attr& attr);

// Resolves an address vector that has passed the check. Waits for ARP or ND. `ecn` is the value of the two ECN bits in
// its packets. Returns 0, EINVAL or EHOSTUNREACH.
int resolve_path(const Context& context, const ibv_ah_attr& attr, uint16_t udp_source_port, uint8_t ecn,
                 transport::Path& path);

}  // namespace rove::verbs
