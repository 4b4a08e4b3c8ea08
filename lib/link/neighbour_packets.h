// SPDX-License-Identifier: Apache-2.0
// Parses ARP, IPv6 neighbour discovery and ICMP echo, with every length checked, and builds such packets. Sources: RFC
// 826, RFC 4861, RFC 792, RFC 4443. Units: bytes; addresses as GIDs (IPv4-mapped for ARP).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "wire/frame.h"

namespace rove::datapath {

inline constexpr size_t kMaxDiscoveryBytes = 14 + 4 + 40 + 32;  // VLAN, IPv6, neighbour message with one option

// The part of a frame other than RoCE that matters to a neighbour.
struct Discovery {
    enum class Kind : uint8_t { kMalformed, kOther, kSolicit, kAdvertise, kEcho };
    Kind kind = Kind::kOther;
    wire::MacAddress frame_dst{}, frame_src{};
    std::optional<uint16_t> vlan;         // TCI
    wire::Gid sender{};                   // the address of the sender; :: in duplicate address detection
    wire::Gid receiver{};                 // the IP destination (ARP: the target)
    wire::Gid target{};                   // the address whose MAC is requested or announced
    std::optional<wire::MacAddress> mac;  // the MAC of `sender` (solicit) or of `target` (advertise)
    size_t ip_offset = 0;                 // offset of the IP header; echo only
    size_t ip_bytes = 0;                  // length of the IP packet; echo only
};
Discovery parse_discovery(std::span<const uint8_t> frame);

struct ProxyAddress {
    wire::MacAddress mac{};
    wire::Gid address{};
    std::optional<uint16_t> vlan;  // VID
};

// The functions below write to `out`, which has room for kMaxDiscoveryBytes, and return the bytes written. This one
// builds an ARP request or neighbour solicitation for `target`. It is sent to all hosts, or only to the MAC `known`, if
// given, to check that the target is still there.
size_t build_solicit(uint8_t* out, const ProxyAddress& from, const wire::Gid& target,
                     const std::optional<wire::MacAddress>& known = std::nullopt);
// Builds an ARP reply or a solicited neighbour advertisement of `from`, to the host that asked.
size_t build_advertise(uint8_t* out, const ProxyAddress& from, const wire::MacAddress& to_mac, const wire::Gid& to);
// Builds a gratuitous ARP or an unsolicited advertisement to all hosts, so that peers that knew another MAC learn this
// one.
size_t build_announce(uint8_t* out, const ProxyAddress& from);
// Turns the echo request in `frame` (parsed as `echo`) into its reply from `from`. Returns the bytes to send.
size_t turn_echo(std::span<uint8_t> frame, const Discovery& echo, const ProxyAddress& from);

}  // namespace rove::datapath
