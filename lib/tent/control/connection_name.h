// SPDX-License-Identifier: Apache-2.0
// The names of data connections on the control plane.
#pragma once

#include <cstdint>
#include <string>

#include "tent/control/frame.h"

namespace rove::tent {

// The name that both ends use for a connection: its owner (Peer::owner), its rail, and how many connections the
// initiator had before. Only the two ends know the owner, so that no other process can name their connections.
struct ConnectionName {
    std::string owner;
    std::string rail;
    uint64_t number = 0;

    Json to_json() const;
    bool parse(const Json& object);
};
// Returns the owner in a message such as a lease, or "" if it has no valid owner.
std::string parse_owner(const Json& object);

}  // namespace rove::tent
