// SPDX-License-Identifier: Apache-2.0
// What a bridge looks at in a frame, with every length checked, and the frame that it sends in its place.
// Sources: RFC 791, 8200, 768, 792, 4443, 3376, 3810. Units: bytes; addresses as GIDs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/frame.h"

namespace rove::bridge {

// Of a frame's beginning so much is copied before it is read: the memory that it lies in may be somebody else's, who
// can change it at any time. What is read is in it: with a VLAN tag, hop-by-hop options and an ICMPv6 type, or all
// options of IPv4 and a UDP header.
inline constexpr size_t kHeadBytes = 128;

struct Frame {
    // Of the last four only some may come from a member, and some from the uplink (forwarding.h).
    enum class Kind : uint8_t {
        kMalformed,
        kOther,      // nothing that rove speaks
        kDiscovery,  // ARP, or a solicitation or advertisement of ND
        kRoce,
        kEcho,    // request or reply
        kReport,  // of a multicast group's members
        kQuery,   // for them
    };
    Kind kind = Kind::kOther;
    wire::MacAddress dst_mac{}, src_mac{};
    std::optional<uint16_t> vlan;  // TCI
    wire::Gid src{}, dst{};        // not of kMalformed, kOther, kDiscovery
    size_t l3_offset = 0;
    size_t l3_bytes = 0;  // as the IP header says; trailing padding of Ethernet is not counted
};

// `head` are the first kHeadBytes of a frame of `frame_bytes`, or all of it.
Frame parse(std::span<const uint8_t> head, size_t frame_bytes);

// Room that edit() needs beyond the IP packet: Ethernet header and tag.
inline constexpr size_t kLinkBytes = 14 + 4;

struct Link {
    wire::MacAddress dst{}, src{};
    std::optional<uint16_t> vlan;  // TCI
};
// The IP packet of `frame`, with another header of the link. Of what parse() has looked at it takes `head`, the rest
// from `data`, where the frame lies. `out` has room for kLinkBytes and the packet. Returns the bytes written.
size_t edit(uint8_t* out, const Frame& frame, const Link& link, std::span<const uint8_t> head, const uint8_t* data);

}  // namespace rove::bridge
