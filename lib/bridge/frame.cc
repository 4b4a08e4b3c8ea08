// SPDX-License-Identifier: Apache-2.0
#include "bridge/frame.h"

#include <algorithm>
#include <cstring>

#include "link/link_frames.h"

namespace rove::bridge {

namespace {

using namespace datapath::link;

constexpr uint8_t kProtocolUdp = 17;
constexpr uint16_t kRocePort = 4791;  // IBTA A17.3.1
constexpr size_t kUdpBytes = 8, kHopByHopBytes = 8;

Frame::Kind kind_of_udp(std::span<const uint8_t> udp) {
    if (udp.size() < kUdpBytes) return Frame::Kind::kMalformed;
    return load_be16(&udp[2]) == kRocePort ? Frame::Kind::kRoce : Frame::Kind::kOther;
}

Frame::Kind kind_of_icmp(uint8_t type) {
    return type == 0 || type == 8 ? Frame::Kind::kEcho : Frame::Kind::kOther;
}

Frame::Kind kind_of_igmp(uint8_t type) {
    switch (type) {
        case 0x11:
            return Frame::Kind::kQuery;
        case 0x12:  // reports of versions 1, 2 and 3, and a leave message
        case 0x16:
        case 0x17:
        case 0x22:
            return Frame::Kind::kReport;
        default:
            return Frame::Kind::kOther;
    }
}

Frame::Kind kind_of_icmpv6(uint8_t type) {
    switch (type) {
        case 128:
        case 129:
            return Frame::Kind::kEcho;
        case 130:
            return Frame::Kind::kQuery;
        case 131:  // reports of versions 1 and 2, and a done message
        case 132:
        case 143:
            return Frame::Kind::kReport;
        case 135:
        case 136:
            return Frame::Kind::kDiscovery;
        default:
            return Frame::Kind::kOther;
    }
}

// Parses an IPv4 packet. `ip` is its part in the head, and `bytes` is its length in the frame.
void parse_ipv4(std::span<const uint8_t> ip, size_t bytes, Frame& frame) {
    frame.kind = Frame::Kind::kMalformed;
    if (ip.size() < kIpv4Bytes || ip[0] >> 4 != 4) return;
    const size_t header = (ip[0] & 0xFu) * 4;
    const size_t total = load_be16(&ip[2]);
    if (header < kIpv4Bytes || total <= header || total > bytes || ip.size() <= header) return;
    frame.src = mapped(&ip[12]);
    frame.dst = mapped(&ip[16]);
    frame.l3_bytes = total;
    frame.kind = Frame::Kind::kOther;
    if ((load_be16(&ip[6]) & 0x3FFF) != 0) return;  // a fragment
    const auto payload = ip.subspan(header, std::min(ip.size(), total) - header);
    if (ip[9] == kProtocolUdp) frame.kind = kind_of_udp(payload);
    if (ip[9] == kProtocolIcmp) frame.kind = kind_of_icmp(payload[0]);
    if (ip[9] == kProtocolIgmp) frame.kind = kind_of_igmp(payload[0]);
}

void parse_ipv6(std::span<const uint8_t> ip, size_t bytes, Frame& frame) {
    frame.kind = Frame::Kind::kMalformed;
    if (ip.size() < kIpv6Bytes || ip[0] >> 4 != 6) return;
    const size_t total = kIpv6Bytes + load_be16(&ip[4]);
    if (total > bytes) return;
    frame.src = gid_at(&ip[8]);
    frame.dst = gid_at(&ip[24]);
    frame.l3_bytes = total;
    const auto payload = ip.subspan(kIpv6Bytes, std::min(ip.size(), total) - kIpv6Bytes);
    const uint8_t next = ip[6];
    if (next == kProtocolUdp) {
        frame.kind = kind_of_udp(payload);
    } else if (next == kProtocolIcmpv6) {
        if (!payload.empty()) frame.kind = kind_of_icmpv6(payload[0]);
        // Messages about groups carry a Router Alert option (RFC 3810 5).
        if (frame.kind == Frame::Kind::kReport || frame.kind == Frame::Kind::kQuery) frame.kind = Frame::Kind::kOther;
    } else if (next == kHopByHop) {
        if (payload.size() <= kHopByHopBytes) return;
        const bool is_alert = payload[0] == kProtocolIcmpv6 && payload[1] == 0;
        const Frame::Kind kind = is_alert ? kind_of_icmpv6(payload[kHopByHopBytes]) : Frame::Kind::kOther;
        const bool is_of_groups = kind == Frame::Kind::kReport || kind == Frame::Kind::kQuery;
        frame.kind = is_of_groups ? kind : Frame::Kind::kOther;
    } else {
        frame.kind = Frame::Kind::kOther;
    }
}

}  // namespace

Frame parse(std::span<const uint8_t> head, size_t frame_bytes) {
    Frame frame;
    frame.kind = Frame::Kind::kMalformed;
    if (head.size() < kEthernetBytes) return frame;
    frame.dst_mac = mac_at(head.data());
    frame.src_mac = mac_at(head.data() + 6);
    frame.l3_offset = kEthernetBytes;
    uint16_t ether_type = load_be16(&head[12]);
    if (ether_type == kEtherTypeVlan) {
        if (head.size() < kEthernetBytes + kVlanTagBytes) return frame;
        frame.l3_offset += kVlanTagBytes;
        frame.vlan = load_be16(&head[14]);
        ether_type = load_be16(&head[16]);
    }
    const auto rest = head.subspan(frame.l3_offset);
    const size_t bytes = frame_bytes - frame.l3_offset;
    frame.kind = ether_type == kEtherTypeArp ? Frame::Kind::kDiscovery : Frame::Kind::kOther;
    if (ether_type == kEtherTypeIpv4) parse_ipv4(rest, bytes, frame);
    if (ether_type == kEtherTypeIpv6) parse_ipv6(rest, bytes, frame);
    return frame;
}

size_t edit(uint8_t* out, const Frame& frame, const Link& link, std::span<const uint8_t> head, const uint8_t* data) {
    const uint16_t ether_type = load_be16(&head[frame.l3_offset - 2]);
    uint8_t* const ip = put_ethernet(out, link.dst, link.src, link.vlan, ether_type);
    const size_t end = frame.l3_offset + frame.l3_bytes;
    const size_t known = std::min(head.size(), end);
    std::memcpy(ip, &head[frame.l3_offset], known - frame.l3_offset);
    std::memcpy(ip + known - frame.l3_offset, data + known, end - known);
    return static_cast<size_t>(ip - out) + frame.l3_bytes;
}

}  // namespace rove::bridge
