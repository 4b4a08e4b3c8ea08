// SPDX-License-Identifier: Apache-2.0
#include "link/neighbour_packets.h"

#include <algorithm>
#include <cstring>

#include "link/address.h"
#include "link/link_frames.h"

namespace rove::datapath {

namespace {

using namespace link;

constexpr size_t kArpBytes = 28, kEchoBytes = 8, kNeighbourBytes = 24, kOptionBytes = 8;
constexpr uint8_t kEchoReply = 0, kEchoRequest = 8, kEchoRequest6 = 128, kEchoReply6 = 129, kSolicit6 = 135,
                  kAdvertise6 = 136;
constexpr uint8_t kSourceLinkAddress = 1, kTargetLinkAddress = 2;  // ND options
constexpr uint8_t kFlagSolicited = 0x40, kFlagOverride = 0x20;     // ND advertisement
constexpr uint8_t kDiscoveryHopLimit = 255;  // RFC 4861: proves that no router forwarded the packet

bool is_host(const wire::MacAddress& mac) {
    return !is_multicast(mac) && mac != wire::MacAddress{};
}

void parse_arp(std::span<const uint8_t> arp, Discovery& found) {
    found.kind = Discovery::Kind::kMalformed;
    static constexpr uint8_t kEthernetIpv4[6] = {0, 1, 8, 0, 6, 4};
    if (arp.size() < kArpBytes || std::memcmp(arp.data(), kEthernetIpv4, 6) != 0) return;
    const uint16_t operation = load_be16(&arp[6]);
    const wire::MacAddress mac = mac_at(&arp[8]);
    if (!is_host(mac) || (operation != 1 && operation != 2)) return;
    found.sender = mapped(&arp[14]);
    found.receiver = mapped(&arp[24]);
    found.mac = mac;
    // A gratuitous request announces the sender's address, as a reply does.
    const bool tells = operation == 2 || found.sender == found.receiver;
    found.target = tells ? found.sender : found.receiver;
    found.kind = tells ? Discovery::Kind::kAdvertise : Discovery::Kind::kSolicit;
}

void parse_ipv4(std::span<const uint8_t> ip, Discovery& found) {
    if (ip.size() < kIpv4Bytes || ip[9] != kProtocolIcmp) return;
    found.kind = Discovery::Kind::kMalformed;
    const size_t total = load_be16(&ip[2]);
    if (ip[0] != 0x45 || total < kIpv4Bytes + kEchoBytes || total > ip.size() || (load_be16(&ip[6]) & 0x3FFF) != 0)
        return;
    if (fold(sum_words(ip.data(), kIpv4Bytes)) != 0xFFFF) return;
    if (ip[kIpv4Bytes] != kEchoRequest || ip[kIpv4Bytes + 1] != 0) {
        found.kind = Discovery::Kind::kOther;
        return;
    }
    if (fold(sum_words(&ip[kIpv4Bytes], total - kIpv4Bytes)) != 0xFFFF) return;
    found.sender = mapped(&ip[12]);
    found.receiver = mapped(&ip[16]);
    found.ip_bytes = total;
    found.kind = Discovery::Kind::kEcho;
}

// Finds the link-layer address option of type `wanted`. Returns false if an option is malformed.
bool parse_options(std::span<const uint8_t> options, uint8_t wanted, std::optional<wire::MacAddress>& mac) {
    while (!options.empty()) {
        if (options.size() < kOptionBytes) return false;
        const size_t bytes = options[1] * 8u;
        if (bytes == 0 || bytes > options.size()) return false;
        if (options[0] == wanted && bytes == kOptionBytes) {
            mac = mac_at(&options[2]);
            if (!is_host(*mac)) return false;
        }
        options = options.subspan(bytes);
    }
    return true;
}

void parse_ipv6(std::span<const uint8_t> ip, Discovery& found) {
    if (ip.size() < kIpv6Bytes || ip[0] >> 4 != 6 || ip[6] != kProtocolIcmpv6) return;
    found.kind = Discovery::Kind::kMalformed;
    const size_t message = load_be16(&ip[4]);
    if (message < kEchoBytes || message > ip.size() - kIpv6Bytes ||
        sum_icmpv6(ip.data(), ip.data() + kIpv6Bytes, message) != 0xFFFF)
        return;
    const uint8_t type = ip[kIpv6Bytes];
    found.sender = gid_at(&ip[8]);
    found.receiver = gid_at(&ip[24]);
    if (type == kEchoRequest6 && ip[kIpv6Bytes + 1] == 0) {
        if (is_multicast(found.sender) || found.sender == wire::Gid{}) return;
        found.ip_bytes = kIpv6Bytes + message;
        found.kind = Discovery::Kind::kEcho;
        return;
    }
    if (type != kSolicit6 && type != kAdvertise6) {
        found.kind = Discovery::Kind::kOther;
        return;
    }
    if (ip[7] != kDiscoveryHopLimit || ip[kIpv6Bytes + 1] != 0 || message < kNeighbourBytes) return;
    found.target = gid_at(&ip[kIpv6Bytes + 8]);
    const uint8_t option = type == kSolicit6 ? kSourceLinkAddress : kTargetLinkAddress;
    if (is_multicast(found.target) || is_multicast(found.sender) ||
        !parse_options(ip.subspan(kIpv6Bytes + kNeighbourBytes, message - kNeighbourBytes), option, found.mac))
        return;
    found.kind = type == kSolicit6 ? Discovery::Kind::kSolicit : Discovery::Kind::kAdvertise;
}

size_t put_arp(uint8_t* out, uint16_t operation, const ProxyAddress& from, const wire::MacAddress& frame_dst,
               const wire::MacAddress& to_mac, const wire::Gid& to) {
    uint8_t* arp = put_ethernet(out, frame_dst, from.mac, from.vlan, kEtherTypeArp);
    static constexpr uint8_t kEthernetIpv4[6] = {0, 1, 8, 0, 6, 4};
    std::copy_n(kEthernetIpv4, 6, arp);
    store_be16(arp + 6, operation);
    std::copy_n(from.mac.data(), 6, arp + 8);
    std::copy_n(from.address.data() + 12, 4, arp + 14);
    std::copy_n(to_mac.data(), 6, arp + 18);
    std::copy_n(to.data() + 12, 4, arp + 24);
    return static_cast<size_t>(arp + kArpBytes - out);
}

size_t put_neighbour(uint8_t* out, uint8_t type, uint8_t flags, const ProxyAddress& from,
                     const wire::MacAddress& frame_dst, const wire::Gid& to, const wire::Gid& target) {
    uint8_t* ip = put_ethernet(out, frame_dst, from.mac, from.vlan, kEtherTypeIpv6);
    constexpr size_t kMessage = kNeighbourBytes + kOptionBytes;
    std::memset(ip, 0, kIpv6Bytes + kMessage);
    ip[0] = 0x60;
    store_be16(ip + 4, kMessage);
    ip[6] = kProtocolIcmpv6;
    ip[7] = kDiscoveryHopLimit;
    std::copy_n(from.address.data(), 16, ip + 8);
    std::copy_n(to.data(), 16, ip + 24);
    uint8_t* message = ip + kIpv6Bytes;
    message[0] = type;
    message[4] = flags;
    std::copy_n(target.data(), 16, message + 8);
    message[24] = type == kSolicit6 ? kSourceLinkAddress : kTargetLinkAddress;
    message[25] = 1;
    std::copy_n(from.mac.data(), 6, message + 26);
    store_be16(message + 2, static_cast<uint16_t>(~sum_icmpv6(ip, message, kMessage)));
    return static_cast<size_t>(message + kMessage - out);
}

constexpr wire::MacAddress kBroadcast{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
constexpr wire::Gid kAllNodes{0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

}  // namespace

Discovery parse_discovery(std::span<const uint8_t> frame) {
    Discovery found;
    size_t offset = 14;
    if (frame.size() < offset) {
        found.kind = Discovery::Kind::kMalformed;
        return found;
    }
    found.frame_dst = mac_at(frame.data());
    found.frame_src = mac_at(frame.data() + 6);
    uint16_t ether_type = load_be16(&frame[12]);
    if (ether_type == kEtherTypeVlan) {
        offset = 18;
        if (frame.size() < offset) {
            found.kind = Discovery::Kind::kMalformed;
            return found;
        }
        found.vlan = load_be16(&frame[14]);
        ether_type = load_be16(&frame[16]);
    }
    found.ip_offset = offset;
    const auto rest = frame.subspan(offset);
    if (ether_type == kEtherTypeArp) parse_arp(rest, found);
    if (ether_type == kEtherTypeIpv4) parse_ipv4(rest, found);
    if (ether_type == kEtherTypeIpv6) parse_ipv6(rest, found);
    return found;
}

size_t build_solicit(uint8_t* out, const ProxyAddress& from, const wire::Gid& target,
                     const std::optional<wire::MacAddress>& known) {
    if (wire::is_ipv4_mapped(target)) return put_arp(out, 1, from, known.value_or(kBroadcast), {}, target);
    if (known) return put_neighbour(out, kSolicit6, 0, from, *known, target, target);
    const wire::Gid group = solicited_node_group(target);
    return put_neighbour(out, kSolicit6, 0, from, multicast_mac(group), group, target);
}

size_t build_advertise(uint8_t* out, const ProxyAddress& from, const wire::MacAddress& to_mac, const wire::Gid& to) {
    if (wire::is_ipv4_mapped(from.address)) return put_arp(out, 2, from, to_mac, to_mac, to);
    if (to == wire::Gid{})  // duplicate address detection: the answer goes to all hosts, RFC 4861 7.2.4
        return put_neighbour(out, kAdvertise6, kFlagOverride, from, multicast_mac(kAllNodes), kAllNodes, from.address);
    return put_neighbour(out, kAdvertise6, kFlagSolicited | kFlagOverride, from, to_mac, to, from.address);
}

size_t build_announce(uint8_t* out, const ProxyAddress& from) {
    if (wire::is_ipv4_mapped(from.address)) return put_arp(out, 1, from, kBroadcast, {}, from.address);
    return put_neighbour(out, kAdvertise6, kFlagOverride, from, multicast_mac(kAllNodes), kAllNodes, from.address);
}

size_t turn_echo(std::span<uint8_t> frame, const Discovery& echo, const ProxyAddress& from) {
    std::copy_n(echo.frame_src.data(), 6, frame.data());
    std::copy_n(from.mac.data(), 6, frame.data() + 6);
    uint8_t* ip = frame.data() + echo.ip_offset;
    if (wire::is_ipv4_mapped(from.address)) {
        std::copy_n(ip + 12, 4, ip + 16);
        std::copy_n(from.address.data() + 12, 4, ip + 12);
        ip[8] = 64;
        store_be16(ip + 10, 0);
        store_be16(ip + 10, static_cast<uint16_t>(~fold(sum_words(ip, kIpv4Bytes))));
        uint8_t* icmp = ip + kIpv4Bytes;
        icmp[0] = kEchoReply;
        store_be16(icmp + 2, 0);
        store_be16(icmp + 2, static_cast<uint16_t>(~fold(sum_words(icmp, echo.ip_bytes - kIpv4Bytes))));
    } else {
        std::copy_n(ip + 8, 16, ip + 24);
        std::copy_n(from.address.data(), 16, ip + 8);
        ip[7] = 64;
        uint8_t* icmp = ip + kIpv6Bytes;
        icmp[0] = kEchoReply6;
        store_be16(icmp + 2, 0);
        store_be16(icmp + 2, static_cast<uint16_t>(~sum_icmpv6(ip, icmp, echo.ip_bytes - kIpv6Bytes)));
    }
    return echo.ip_offset + echo.ip_bytes;
}

}  // namespace rove::datapath
