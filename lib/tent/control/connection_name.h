// SPDX-License-Identifier: Apache-2.0
// What the connections of the data path are called on the control plane.
#pragma once

#include <cstdint>
#include <string>

#include "tent/control/frame.h"

namespace rove::tent {

// A connection as both ends name it: whose it is (Peer::owner), its rail, and how many connections the active process
// had before. Only the two ends know the owner, so that nobody else can name what is theirs.
struct ConnectionName {
    std::string owner;
    std::string rail;
    uint64_t number = 0;

    Json to_json() const;
    bool parse(const Json& object);
};
// The owner of a lease, "" if it is none.
std::string parse_owner(const Json& object);

}  // namespace rove::tent
