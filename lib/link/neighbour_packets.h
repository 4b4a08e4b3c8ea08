// SPDX-License-Identifier: Apache-2.0
// ARP, IPv6 neighbour discovery and ICMP echo as bytes: parsed with every length checked, and built.
// Sources: RFC 826, RFC 4861, RFC 792, RFC 4443. Units: bytes; addresses as GIDs (IPv4-mapped for ARP).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "wire/frame.h"

namespace rove::datapath {

inline constexpr size_t kMaxDiscoveryBytes = 14 + 4 + 40 + 32;  // VLAN, IPv6, neighbour message with one option

// What a frame that is not RoCE says, as far as a neighbour cares.
struct Discovery {
    enum class Kind : uint8_t { kMalformed, kOther, kSolicit, kAdvertise, kEcho };
    Kind kind = Kind::kOther;
    wire::MacAddress frame_dst{}, frame_src{};
    std::optional<uint16_t> vlan;         // TCI
    wire::Gid sender{};                   // who speaks; :: in duplicate address detection
    wire::Gid receiver{};                 // IP destination (ARP: the target)
    wire::Gid target{};                   // whose MAC is asked for, or told
    std::optional<wire::MacAddress> mac;  // the MAC that goes with `sender` (solicit) or `target` (advertise)
    size_t ip_offset = 0;                 // of the IP header; echo only
    size_t ip_bytes = 0;                  // IP header and all that it says follows; echo only
};
Discovery parse_discovery(std::span<const uint8_t> frame);

struct ProxyAddress {
    wire::MacAddress mac{};
    wire::Gid address{};
    std::optional<uint16_t> vlan;  // VID
};

// All write to `out`, which has room for kMaxDiscoveryBytes, and return the bytes written. ARP request or neighbour
// solicitation for `target`, to all; or, if its MAC is `known`, to it alone: is it still there?
size_t build_solicit(uint8_t* out, const ProxyAddress& from, const wire::Gid& target,
                     const std::optional<wire::MacAddress>& known = std::nullopt);
// ARP reply or solicited neighbour advertisement of `from` to the one who asked.
size_t build_advertise(uint8_t* out, const ProxyAddress& from, const wire::MacAddress& to_mac, const wire::Gid& to);
// Gratuitous ARP or unsolicited advertisement to all: so that peers who knew another MAC learn this one.
size_t build_announce(uint8_t* out, const ProxyAddress& from);
// Turns the echo request in `frame` (parsed as `echo`) into its reply, sent from `from`. Returns the bytes to send.
size_t turn_echo(std::span<uint8_t> frame, const Discovery& echo, const ProxyAddress& from);

}  // namespace rove::datapath
