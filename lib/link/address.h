// SPDX-License-Identifier: Apache-2.0
// IP and MAC addresses as text: "10.0.0.1/24", "fd00::1/64", "02:00:00:00:00:01". Prefix lengths are in bits of the
// 128-bit GID, so an IPv4 /24 is 120.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "wire/frame.h"

namespace rove::datapath {

struct Subnet {
    wire::Gid address{};
    uint8_t prefix_bits = 128;
    bool contains(const wire::Gid& other) const;
};

std::optional<wire::Gid> parse_address(std::string_view text);     // an address without a prefix
std::optional<Subnet> parse_subnet(std::string_view text);         // without "/N", a single host
std::optional<wire::MacAddress> parse_mac(std::string_view text);  // a unicast address, not zero

std::string to_string(const wire::Gid& address);
std::string to_string(const wire::MacAddress& mac);

bool is_multicast(const wire::Gid& address);     // 224.0.0.0/4 or ff00::/8
bool is_link_local(const wire::Gid& address);    // fe80::/10
bool is_multicast(const wire::MacAddress& mac);  // the group bit, so broadcast too

wire::Gid link_local_gid(const wire::MacAddress& mac);     // modified EUI-64, RFC 4291 appendix A
wire::MacAddress multicast_mac(const wire::Gid& group);    // RFC 1112 6.4, RFC 2464 7
wire::Gid solicited_node_group(const wire::Gid& address);  // RFC 4291 2.7.1
// Returns a stable, locally administered MAC for a port that has no MAC of its own: FNV-1a of the address.
wire::MacAddress derived_mac(const wire::Gid& address);

}  // namespace rove::datapath
