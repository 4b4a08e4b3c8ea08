// SPDX-License-Identifier: Apache-2.0
// IGMP and MLD as bytes: queries parsed with every length checked, reports built.
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
    bool older = false;                // of IGMPv1, IGMPv2 or MLDv1, whose routers understand no later reports
    std::optional<uint16_t> vlan;      // TCI
    std::optional<wire::Gid> group{};  // none: all groups are asked for
    uint64_t max_response_ns = 0;      // the answer shall come within this
};
// Nothing: the frame is no query that a host may answer.
std::optional<MembershipQuery> parse_membership_query(std::span<const uint8_t> frame);

// What a report says of a group. The values are those of RFC 3376 4.2.12 and RFC 3810 5.2.12: a member of a group wants
// all sources, so it excludes none; who is no member includes none.
enum class Membership : uint8_t { kIsMember = 2, kLeaves = 3, kJoins = 4 };
struct MembershipRecord {
    wire::Gid group;
    Membership says;
};

inline constexpr size_t kMaxRecords = 10;  // in one report: the frame fits an mbuf of a device with the least MTU, 256
inline constexpr size_t kMaxReportBytes = 14 + 4 + 40 + 8 + 8 + 20 * kMaxRecords;

// Both write to `out`, which has room for kMaxReportBytes, and return the bytes written. The speaker's address decides
// between IGMP and MLD.
size_t build_report(uint8_t* out, const ProxyAddress& from, std::span<const MembershipRecord> records);
// For an older router. It has no word for "joins".
size_t build_older_report(uint8_t* out, const ProxyAddress& from, const MembershipRecord& record);

}  // namespace rove::datapath
