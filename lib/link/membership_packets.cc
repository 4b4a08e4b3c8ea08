// SPDX-License-Identifier: Apache-2.0
#include "link/membership_packets.h"

#include <algorithm>
#include <cstring>

#include "link/address.h"
#include "link/link_frames.h"

namespace rove::datapath {

namespace {

using namespace link;

constexpr size_t kIgmpBytes = 8, kIgmpv3QueryBytes = 12, kMldBytes = 24, kMldv2QueryBytes = 28, kHopByHopBytes = 8;
constexpr size_t kIgmpRecordBytes = 8, kMldRecordBytes = 20;
constexpr uint8_t kIgmpQuery = 0x11, kIgmpv2Report = 0x16, kIgmpv2Leave = 0x17, kIgmpv3Report = 0x22;
constexpr uint8_t kMldQuery = 130, kMldv1Report = 131, kMldv1Done = 132, kMldv2Report = 143;
constexpr uint8_t kIpv4RouterAlert[4] = {0x94, 4, 0, 0};
constexpr uint8_t kHopByHopRouterAlert[kHopByHopBytes] = {kProtocolIcmpv6, 0, 5, 2, 0, 0, 1, 0};  // option, then PadN
constexpr uint8_t kTosInternetControl = 0xC0;                                                     // RFC 3376 4
constexpr uint64_t kTenthNs = 100'000'000, kMillisecondNs = 1'000'000;
constexpr uint64_t kIgmpv1ResponseNs = 10'000'000'000;  // RFC 3376 7.2.1: its queries state no time

const wire::Gid kAllSystems{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 224, 0, 0, 1};
const wire::Gid kAllRouters{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 224, 0, 0, 2};
const wire::Gid kIgmpv3Routers{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 224, 0, 0, 22};
const wire::Gid kAllNodes6{0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
const wire::Gid kAllRouters6{0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
const wire::Gid kMldv2Routers{0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16};

// Decodes a response code with a mantissa of `bits` bits plus a hidden one, and three bits of exponent (RFC 3376 4.1.1,
// RFC 3810 5.1.3).
uint64_t decode(uint32_t code, unsigned bits) {
    if (code < 1u << (bits + 3)) return code;
    return uint64_t{(code & ((1u << bits) - 1)) | 1u << bits} << ((code >> bits & 7) + 3);
}

std::optional<MembershipQuery> parse_igmp(std::span<const uint8_t> ip) {
    if (ip.size() < kIpv4Bytes || ip[0] >> 4 != 4 || ip[9] != kProtocolIgmp) return {};
    const size_t header = (ip[0] & 0xF) * size_t{4}, total = load_be16(&ip[2]);
    if (header < kIpv4Bytes || total > ip.size() || total < header + kIgmpBytes) return {};
    if ((load_be16(&ip[6]) & 0x3FFF) != 0 || ip[8] != 1) return {};  // not a fragment, and sent on this link
    if (fold(sum_words(ip.data(), header)) != 0xFFFF) return {};
    const auto igmp = ip.subspan(header, total - header);
    if (igmp[0] != kIgmpQuery || fold(sum_words(igmp.data(), igmp.size())) != 0xFFFF) return {};
    if (igmp.size() != kIgmpBytes && igmp.size() < kIgmpv3QueryBytes) return {};  // RFC 3376 7.1
    MembershipQuery query;
    query.older = igmp.size() == kIgmpBytes;
    query.max_response_ns = query.older && igmp[1] == 0 ? kIgmpv1ResponseNs
                            : query.older               ? igmp[1] * kTenthNs
                                                        : decode(igmp[1], 4) * kTenthNs;
    const wire::Gid group = mapped(&igmp[4]), to = mapped(&ip[16]);
    if (is_multicast(group)) query.group = group;
    if (!query.group && group != mapped(std::array<uint8_t, 4>{}.data())) return {};
    if (to != query.group.value_or(kAllSystems)) return {};
    return query;
}

std::optional<MembershipQuery> parse_mld(std::span<const uint8_t> ip) {
    constexpr size_t kLeast = kIpv6Bytes + kHopByHopBytes + kMldBytes;
    if (ip.size() < kLeast || ip[0] >> 4 != 6 || ip[6] != kHopByHop || ip[7] != 1) return {};
    const size_t bytes = load_be16(&ip[4]);
    if (bytes > ip.size() - kIpv6Bytes || bytes < kHopByHopBytes + kMldBytes) return {};
    // RFC 3810 6.2: ignore queries without a link-local source or a Router Alert. Queriers write no other options.
    const uint8_t* const options = &ip[kIpv6Bytes];
    if (!is_link_local(gid_at(&ip[8])) || options[0] != kProtocolIcmpv6 || options[1] != 0) return {};
    const bool alert = (options[2] == 5 && options[3] == 2) || (options[2] == 1 && options[3] == 0 && options[4] == 5);
    const auto mld = ip.subspan(kIpv6Bytes + kHopByHopBytes, bytes - kHopByHopBytes);
    if (!alert || mld[0] != kMldQuery || mld[1] != 0) return {};
    if (sum_icmpv6(ip.data(), mld.data(), mld.size()) != 0xFFFF) return {};
    if (mld.size() != kMldBytes && mld.size() < kMldv2QueryBytes) return {};
    MembershipQuery query;
    query.ipv6 = true;
    query.older = mld.size() == kMldBytes;
    const uint16_t code = load_be16(&mld[4]);
    query.max_response_ns = (query.older ? uint64_t{code} : decode(code, 12)) * kMillisecondNs;
    const wire::Gid group = gid_at(&mld[8]), to = gid_at(&ip[24]);
    if (is_multicast(group)) query.group = group;
    if (!query.group && group != wire::Gid{}) return {};
    if (to != query.group.value_or(kAllNodes6)) return {};
    return query;
}

// Writes the headers below IGMP for a message of `bytes`. Returns the position of the message.
uint8_t* put_ipv4(uint8_t* out, const ProxyAddress& from, const wire::Gid& to, size_t bytes) {
    uint8_t* ip = put_ethernet(out, multicast_mac(to), from.mac, from.vlan, kEtherTypeIpv4);
    constexpr size_t kHeader = kIpv4Bytes + sizeof kIpv4RouterAlert;
    std::memset(ip, 0, kHeader + bytes);
    ip[0] = 0x40 | kHeader / 4;
    ip[1] = kTosInternetControl;
    store_be16(ip + 2, static_cast<uint16_t>(kHeader + bytes));
    ip[8] = 1;
    ip[9] = kProtocolIgmp;
    std::copy_n(from.address.data() + 12, 4, ip + 12);
    std::copy_n(to.data() + 12, 4, ip + 16);
    std::copy_n(kIpv4RouterAlert, sizeof kIpv4RouterAlert, ip + kIpv4Bytes);
    store_be16(ip + 10, static_cast<uint16_t>(~fold(sum_words(ip, kHeader))));
    return ip + kHeader;
}

// Writes the headers below MLD. Returns the position of the message.
uint8_t* put_ipv6(uint8_t* out, const ProxyAddress& from, const wire::Gid& to, size_t bytes) {
    uint8_t* ip = put_ethernet(out, multicast_mac(to), from.mac, from.vlan, kEtherTypeIpv6);
    std::memset(ip, 0, kIpv6Bytes + kHopByHopBytes + bytes);
    ip[0] = 0x60;
    store_be16(ip + 4, static_cast<uint16_t>(kHopByHopBytes + bytes));
    ip[6] = kHopByHop;
    ip[7] = 1;
    std::copy_n(from.address.data(), 16, ip + 8);
    std::copy_n(to.data(), 16, ip + 24);
    std::copy_n(kHopByHopRouterAlert, kHopByHopBytes, ip + kIpv6Bytes);
    return ip + kIpv6Bytes + kHopByHopBytes;
}

// Writes a report of the newer version of either protocol except its checksum: records without sources (RFC 3376 4.2,
// RFC 3810 5.2). The two differ only in the length of a group's address, which ends its record.
void put_records(uint8_t* report, uint8_t type, std::span<const MembershipRecord> records, size_t record_bytes) {
    report[0] = type;
    store_be16(report + 6, static_cast<uint16_t>(records.size()));
    uint8_t* at = report + kIgmpBytes;
    for (const MembershipRecord& record : records) {
        at[0] = static_cast<uint8_t>(record.says);
        std::copy(record.group.end() - static_cast<std::ptrdiff_t>(record_bytes - 4), record.group.end(), at + 4);
        at += record_bytes;
    }
}

size_t finish_igmp(uint8_t* out, uint8_t* igmp, size_t bytes) {
    store_be16(igmp + 2, static_cast<uint16_t>(~fold(sum_words(igmp, bytes))));
    return static_cast<size_t>(igmp + bytes - out);
}

size_t finish_mld(uint8_t* out, uint8_t* mld, size_t bytes) {
    store_be16(mld + 2, static_cast<uint16_t>(~sum_icmpv6(mld - kHopByHopBytes - kIpv6Bytes, mld, bytes)));
    return static_cast<size_t>(mld + bytes - out);
}

}  // namespace

std::optional<MembershipQuery> parse_membership_query(std::span<const uint8_t> frame) {
    size_t offset = kEthernetBytes;
    if (frame.size() < offset || !is_multicast(mac_at(frame.data()))) return {};
    uint16_t type = load_be16(&frame[12]);
    std::optional<uint16_t> vlan;
    if (type == kEtherTypeVlan) {
        offset += kVlanTagBytes;
        if (frame.size() < offset) return {};
        vlan = load_be16(&frame[14]);
        type = load_be16(&frame[16]);
    }
    std::optional<MembershipQuery> query;
    if (type == kEtherTypeIpv4) query = parse_igmp(frame.subspan(offset));
    if (type == kEtherTypeIpv6) query = parse_mld(frame.subspan(offset));
    if (query) query->vlan = vlan;
    return query;
}

size_t build_report(uint8_t* out, const ProxyAddress& from, std::span<const MembershipRecord> records) {
    if (wire::is_ipv4_mapped(from.address)) {
        const size_t bytes = kIgmpBytes + records.size() * kIgmpRecordBytes;
        uint8_t* const igmp = put_ipv4(out, from, kIgmpv3Routers, bytes);
        put_records(igmp, kIgmpv3Report, records, kIgmpRecordBytes);
        return finish_igmp(out, igmp, bytes);
    }
    const size_t bytes = kIgmpBytes + records.size() * kMldRecordBytes;
    uint8_t* const mld = put_ipv6(out, from, kMldv2Routers, bytes);
    put_records(mld, kMldv2Report, records, kMldRecordBytes);
    return finish_mld(out, mld, bytes);
}

size_t build_older_report(uint8_t* out, const ProxyAddress& from, const MembershipRecord& record) {
    const bool leaves = record.says == Membership::kLeaves;
    if (wire::is_ipv4_mapped(from.address)) {
        uint8_t* const igmp = put_ipv4(out, from, leaves ? kAllRouters : record.group, kIgmpBytes);
        igmp[0] = leaves ? kIgmpv2Leave : kIgmpv2Report;
        std::copy_n(record.group.data() + 12, 4, igmp + 4);
        return finish_igmp(out, igmp, kIgmpBytes);
    }
    uint8_t* const mld = put_ipv6(out, from, leaves ? kAllRouters6 : record.group, kMldBytes);
    mld[0] = leaves ? kMldv1Done : kMldv1Report;
    std::copy_n(record.group.data(), 16, mld + 8);
    return finish_mld(out, mld, kMldBytes);
}

}  // namespace rove::datapath
