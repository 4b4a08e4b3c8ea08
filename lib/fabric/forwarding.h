// SPDX-License-Identifier: Apache-2.0
// How a switch chooses among equal next hops.
//
// ECMP is a function of the flow and of the switch. Packet spray, DRILL and power-of-two would be others of the same
// shape, with a random stream and the queues of the candidate links as arguments; Switch::next_hop() is their only
// caller.
#pragma once

#include "fabric/random.h"

namespace rove::fabric {

// By the 5-tuple: every packet of a flow takes the same of `choices` ways. `salt` is the switch's own. Without it, the
// next tier of switches would see only flows that hash alike, and use a part of its links.
inline uint32_t ecmp(uint64_t flow_hash, uint64_t salt, uint32_t choices) {
    return static_cast<uint32_t>((mix(flow_hash + salt) >> 32) * choices >> 32);
}

}  // namespace rove::fabric
