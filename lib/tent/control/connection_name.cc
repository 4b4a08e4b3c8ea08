// SPDX-License-Identifier: Apache-2.0
// See connection_name.h.
#include "tent/control/connection_name.h"

#include <array>
#include <nlohmann/json.hpp>

#include "tent/engine/segment.h"

namespace rove::tent {

Json ConnectionName::to_json() const {
    return {{"owner", owner}, {"rail", rail}, {"number", number}};
}

bool ConnectionName::parse(const Json& object) {
    constexpr size_t kMaxName = 256;
    owner = parse_owner(object);
    return !owner.empty() && get(object, "rail", &rail) && get(object, "number", &number) && rail.size() <= kMaxName &&
           number != UINT64_MAX;
}

std::string parse_owner(const Json& object) {
    std::string owner;
    std::array<uint8_t, 16> bytes;
    return get(object, "owner", &owner) && from_hex(owner, &bytes) ? owner : "";
}

}  // namespace rove::tent
