// SPDX-License-Identifier: Apache-2.0
// Builds frames like those that a bridge receives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "bridge/frame.h"
#include "link/address.h"
#include "link/link_frames.h"
#include "wire/frame.h"

namespace rove::bridge {

inline wire::MacAddress mac(std::string_view text) {
    return *datapath::parse_mac(text);
}
inline wire::Gid gid(std::string_view text) {
    return *datapath::parse_address(text);
}

// Returns a RoCE frame with this number of payload bytes, as rove builds it.
inline std::vector<uint8_t> roce(const wire::MacAddress& dst_mac, const wire::MacAddress& src_mac, std::string_view dst,
                                 std::string_view src, uint32_t payload_bytes = 64,
                                 std::optional<uint16_t> vlan = std::nullopt) {
    const wire::Flow flow{.dst_mac = dst_mac, .src_mac = src_mac, .vlan = vlan, .src = gid(src), .dst = gid(dst)};
    wire::Headers headers;
    headers.bth.opcode = 0x04;  // RC SEND Only
    std::vector<uint8_t> payload(payload_bytes), frame(payload_bytes + wire::kMaxOverheadBytes);
    for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<uint8_t>(i * 7);
    const wire::Segment segment{payload.data(), payload_bytes};
    frame.resize(wire::build_frame(frame.data(), wire::make_template(flow), headers, {&segment, 1}));
    return frame;
}

// Returns the headers of a frame that is not RoCE, with this IP protocol and these first bytes behind the IP header.
inline std::vector<uint8_t> other(const wire::MacAddress& dst_mac, const wire::MacAddress& src_mac,
                                  std::string_view dst, std::string_view src, uint8_t protocol,
                                  std::vector<uint8_t> payload) {
    payload.resize(std::max<size_t>(payload.size(), 32));
    std::vector<uint8_t> frame = roce(dst_mac, src_mac, dst, src);
    const bool ipv4 = wire::is_ipv4_mapped(gid(dst));
    const size_t header = ipv4 ? datapath::link::kIpv4Bytes : datapath::link::kIpv6Bytes;
    frame.resize(14 + header);
    frame[14 + (ipv4 ? 9 : 6)] = protocol;
    datapath::link::store_be16(&frame[14 + (ipv4 ? 2 : 4)],
                               static_cast<uint16_t>(payload.size() + (ipv4 ? header : 0)));
    frame.insert(frame.end(), payload.begin(), payload.end());
    return frame;
}

inline Frame parsed(const std::vector<uint8_t>& frame) {
    return parse({frame.data(), std::min(frame.size(), kHeadBytes)}, frame.size());
}

}  // namespace rove::bridge
