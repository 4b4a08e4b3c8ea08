// SPDX-License-Identifier: Apache-2.0
#include "bridge/forwarding.h"

#include <bit>

namespace rove::bridge {

using datapath::is_multicast;

namespace {

Forwarding::Way dropped(Counter why) {
    return {.drop = why};
}

bool is_unspecified(const wire::Gid& address) {
    static constexpr wire::Gid kIpv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    return address == wire::Gid{} || address == kIpv4;
}

uint16_t vid(uint16_t tci) {
    return tci & 0xFFF;
}

}  // namespace

const char* to_string(Counter counter) {
    static constexpr const char* kNames[] = {
        "to_uplink",        "to_members",       "between_members",  "drop_malformed",  "drop_protocol",
        "drop_vlan",        "drop_spoofed",     "drop_not_ours",    "drop_too_long",   "drop_segments",
        "drop_member_full", "drop_uplink_full", "drop_uplink_down", "drop_unresolved", "drop_no_mbuf"};
    static_assert(std::size(kNames) == static_cast<size_t>(Counter::kCount));
    return kNames[static_cast<size_t>(counter)];
}

// A simple hash suffices: tables hold members' addresses and a bounded number of addresses that members have asked for.
size_t AddressHash::operator()(const wire::Gid& address) const {
    const auto [high, low] = std::bit_cast<std::array<uint64_t, 2>>(address);
    const uint64_t mixed = (high ^ std::rotl(low, 29)) * 0x9E37'79B9'7F4A'7C15;
    return mixed ^ mixed >> 32;
}

void Forwarding::add(Member member, const std::vector<wire::Gid>& addresses) {
    for (const wire::Gid& address : addresses) members_.try_emplace(address, member);
}

void Forwarding::remove(Member member) {
    std::erase_if(members_, [&](const auto& one) { return one.second == member; });
}

std::optional<Forwarding::Member> Forwarding::owner_of(const wire::Gid& address) const {
    const auto found = members_.find(address);
    return found == members_.end() ? std::nullopt : std::optional(found->second);
}

wire::Gid Forwarding::next_hop(const wire::Gid& address) const {
    for (const Gateway& gateway : settings_.gateways)
        if (wire::is_ipv4_mapped(gateway.address) == wire::is_ipv4_mapped(address) &&
            !gateway.subnet.contains(address) && !datapath::is_link_local(address))
            return gateway.address;
    return address;
}

Forwarding::Way Forwarding::from_member(Member member, const Frame& frame) const {
    using Kind = Frame::Kind;
    if (frame.kind == Kind::kMalformed) return dropped(Counter::kMalformed);
    const bool passes = frame.kind == Kind::kRoce || frame.kind == Kind::kEcho || frame.kind == Kind::kReport;
    if (!passes) return dropped(Counter::kProtocol);
    if (frame.vlan && vid(*frame.vlan) != 0) return dropped(Counter::kVlan);
    // A host without an IPv4 address sends its membership reports from 0.0.0.0 (RFC 3376 4.2.13).
    const bool is_anonymous = frame.kind == Kind::kReport && is_unspecified(frame.src);
    if (!is_anonymous && owner_of(frame.src) != member) return dropped(Counter::kSpoofed);
    if (frame.l3_bytes > settings_.most_bytes) return dropped(Counter::kTooLong);
    if (is_multicast(frame.dst) != is_multicast(frame.dst_mac)) return dropped(Counter::kNotOurs);
    if (is_multicast(frame.dst)) return {.to = To::kUplink, .next_hop = frame.dst};
    if (frame.dst_mac != settings_.mac || is_unspecified(frame.dst)) return dropped(Counter::kNotOurs);
    if (const auto owner = owner_of(frame.dst); owner)
        return *owner == member ? dropped(Counter::kNotOurs) : Way{.to = To::kMember, .member = *owner};
    return {.to = To::kUplink, .next_hop = next_hop(frame.dst)};
}

Forwarding::Way Forwarding::from_uplink(const Frame& frame) const {
    using Kind = Frame::Kind;
    if (frame.kind == Kind::kMalformed) return dropped(Counter::kMalformed);
    const uint16_t tag = frame.vlan ? vid(*frame.vlan) : uint16_t{0};
    if (tag != settings_.vlan.value_or(0)) return dropped(Counter::kVlan);
    // Frames that the kernel sends through this interface have the same MAC.
    if (frame.src_mac == settings_.mac || is_multicast(frame.src_mac)) return dropped(Counter::kNotOurs);
    if (frame.kind == Kind::kDiscovery) return {.to = To::kNeighbours};
    const bool passes = frame.kind == Kind::kRoce || frame.kind == Kind::kEcho || frame.kind == Kind::kQuery;
    if (!passes) return dropped(Counter::kProtocol);
    if (owner_of(frame.src) || is_multicast(frame.src)) return dropped(Counter::kSpoofed);
    if (is_multicast(frame.dst) != is_multicast(frame.dst_mac)) return dropped(Counter::kNotOurs);
    if (is_multicast(frame.dst))
        return frame.kind == Kind::kEcho ? dropped(Counter::kNotOurs) : Way{.to = To::kAllMembers};
    if (frame.dst_mac != settings_.mac) return dropped(Counter::kNotOurs);
    if (const auto owner = owner_of(frame.dst); owner) return {.to = To::kMember, .member = *owner};
    return frame.kind == Kind::kEcho ? Way{.to = To::kNeighbours} : dropped(Counter::kNotOurs);
}

}  // namespace rove::bridge
