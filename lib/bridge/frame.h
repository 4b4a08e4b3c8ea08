// SPDX-License-Identifier: Apache-2.0
// Parses the fields of a frame that the bridge needs, with every length checked, and rewrites its link header. Sources:
// RFC 791, 8200, 768, 792, 4443, 3376, 3810. Units are bytes; addresses are GIDs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/frame.h"

namespace rove::bridge {

// The number of bytes that are copied from a frame's beginning before parsing. The frame may lie in another process's
// memory and change at any time. The copy covers a VLAN tag, hop-by-hop options and an ICMPv6 type, or all options of
// IPv4 and a UDP header.
inline constexpr size_t kHeadBytes = 128;

struct Frame {
    // Members may send only some of the last four kinds, and so may the uplink (forwarding.h).
    enum class Kind : uint8_t {
        kMalformed,
        kOther,      // a protocol that rove does not speak
        kDiscovery,  // ARP, or a solicitation or advertisement of ND
        kRoce,
        kEcho,    // request or reply
        kReport,  // membership of a multicast group
        kQuery,   // for the members of multicast groups
    };
    Kind kind = Kind::kOther;
    wire::MacAddress dst_mac{}, src_mac{};
    std::optional<uint16_t> vlan;  // TCI
    wire::Gid src{}, dst{};        // unset for kMalformed, kOther and kDiscovery
    size_t l3_offset = 0;
    size_t l3_bytes = 0;  // from the IP header, without Ethernet's padding
};

// Parses a frame of `frame_bytes`. `head` holds its first kHeadBytes, or all of a shorter frame.
Frame parse(std::span<const uint8_t> head, size_t frame_bytes);

// The bytes that edit() needs in addition to the IP packet: Ethernet header and tag.
inline constexpr size_t kLinkBytes = 14 + 4;

struct Link {
    wire::MacAddress dst{}, src{};
    std::optional<uint16_t> vlan;  // TCI
};
// Writes the IP packet of `frame` with a new link header. The bytes that parse() has checked come from `head`, and the
// others from `data`, the frame itself. `out` must have room for kLinkBytes and the packet. Returns the number of bytes
// written.
size_t edit(uint8_t* out, const Frame& frame, const Link& link, std::span<const uint8_t> head, const uint8_t* data);

}  // namespace rove::bridge
