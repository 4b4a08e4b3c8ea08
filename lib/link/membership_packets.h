// SPDX-License-Identifier: Apache-2.0
// Parses IGMP and MLD queries, with every length checked, and builds reports.
// Sources: RFC 2236 (IGMPv2), RFC 3376 (IGMPv3), RFC 2710 (MLDv1), RFC 3810 (MLDv2), RFC 2113 and 2711 (Router Alert).
// Units: bytes, nanoseconds; groups as GIDs (IPv4-mapped for IGMP).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "link/neighbour_packets.h"
#include "wire/frame.h"

namespace rove::datapath {

struct MembershipQuery {
    bool ipv6 = false;
    bool older = false;            // a query of IGMPv1, IGMPv2 or MLDv1, whose routers do not understand later reports
    std::optional<uint16_t> vlan;  // TCI
    std::optional<wire::Gid> group{};  // no value if the query is for all groups
    uint64_t max_response_ns = 0;      // the longest time until the answer
};
// Returns nothing if the frame is not a query that a host may answer.
std::optional<MembershipQuery> parse_membership_query(std::span<const uint8_t> frame);

// The record types of RFC 3376 4.2.12 and RFC 3810 5.2.12. A member of a group wants all sources, so it excludes no
// source; a host that is not a member includes no source.
enum class Membership : uint8_t { kIsMember = 2, kLeaves = 3, kJoins = 4 };
struct MembershipRecord {
    wire::Gid group;
    Membership says;
};

// The records in a report. With so few its frame fits an mbuf of a device with the smallest MTU, 256.
inline constexpr size_t kMaxRecords = 10;
inline constexpr size_t kMaxReportBytes = 14 + 4 + 40 + 8 + 8 + 20 * kMaxRecords;

// Both functions write to `out`, which has room for kMaxReportBytes, and return the bytes written. The protocol is IGMP
// or MLD according to the address in `from`.
size_t build_report(uint8_t* out, const ProxyAddress& from, std::span<const MembershipRecord> records);
// Builds a report for an older router. The older versions have no record for a join, only for a membership.
size_t build_older_report(uint8_t* out, const ProxyAddress& from, const MembershipRecord& record);

}  // namespace rove::datapath
