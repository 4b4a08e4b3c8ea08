// SPDX-License-Identifier: Apache-2.0
// Parses frames. Every length is checked before the bytes that it covers are read. The usual frame, untagged IPv4
// without a UDP checksum, takes one straight path. Every other frame leaves it through a branch that the usual frame
// does not take.
#include <cstring>

#include "wire/crc32.h"
#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/in_network.h"
#include "wire/network_headers.h"
#include "wire/transport_headers.h"

namespace rove::wire {
namespace {

constexpr size_t kMinUdpBytes = kUdpBytes + kBthBytes + kIcrcBytes;

// A frame whose headers are read at `head`. The rest is `apart` bytes further on: 0, or the distance to memory that
// others may write to.
struct Split {
    const uint8_t* head;
    size_t bytes;
    ptrdiff_t apart;
};

// The positions of a frame's layers, after its IP and UDP headers were found valid.
struct Layers {
    const uint8_t* l3;
    const uint8_t* l4;
    size_t udp_bytes;
};

// Writes the GID in two stores of 8 bytes, because it is read again in the same units: a load that spans two stores
// waits until both have reached the cache.
void set_ipv4_mapped(Gid& gid, const uint8_t* address) {
    store<uint64_t>(gid.data(), 0);
    store(gid.data() + 8, uint64_t{big_endian(uint32_t{0xFFFF})} | uint64_t{load<uint32_t>(address)} << 32);
}

// Returns true if the checksum over pseudo header, UDP header and data is correct (RFC 768, RFC 8200 8.1).
[[gnu::noinline]] bool udp_checksum_ok(const uint8_t* addresses, size_t address_bytes, const uint8_t* l4,
                                       size_t udp_bytes) {
    uint64_t sum = big_endian(static_cast<uint32_t>(udp_bytes)) + uint64_t{big_endian(uint16_t{kProtocolUdp})};
    for (size_t at = 0; at < address_bytes; at += 4) sum += load<uint32_t>(addresses + at);
    size_t at = 0;
    for (; at + 4 <= udp_bytes; at += 4) sum += load<uint32_t>(l4 + at);
    uint8_t rest[4] = {};
    std::memcpy(rest, l4 + at, udp_bytes - at);
    return fold_checksum(sum + load<uint32_t>(rest)) == 0xFFFF;
}

// Returns the reason to refuse an IPv4 packet whose fixed fields differ from a RoCE packet's.
[[gnu::cold, gnu::noinline]] ParseError refuse_ipv4(const uint8_t* l3, size_t bytes) {
    if (bytes < kIpv4Bytes) return ParseError::kTruncated;
    const size_t header_bytes = (l3[ipv4::kVersionIhl] & 0xF) * size_t{4};
    if (l3[ipv4::kVersionIhl] >> 4 != 4 || header_bytes < kIpv4Bytes) return ParseError::kIpHeader;
    const bool begins = (load_be16(l3 + ipv4::kFragment) & ipv4::kFragmentOffset) == 0;
    if (l3[ipv4::kProtocol] != kProtocolUdp || !begins) return ParseError::kNotRoce;
    if (bytes < header_bytes + kUdpBytes) return ParseError::kTruncated;
    if (load_be16(l3 + header_bytes + udp::kDstPort) != kRoceUdpPort) return ParseError::kNotRoce;
    const size_t length = load_be16(l3 + ipv4::kLength);
    if (length > bytes || length < header_bytes + kMinUdpBytes) return ParseError::kTruncated;
    return ParseError::kIpHeader;  // options, or the first of several fragments
}

// Checks the IPv4 packet at `l3`, which has `bytes` bytes.
ParseError find_ipv4(const uint8_t* l3, size_t bytes, ptrdiff_t apart, Layers& out) {
    if (bytes < kIpv4Bytes + kUdpBytes) [[unlikely]]
        return refuse_ipv4(l3, bytes);
    const uint8_t* const l4 = l3 + kIpv4Bytes;
    // One test for all fields, since each separate test costs a branch.
    const uint32_t wrong = (l3[ipv4::kVersionIhl] ^ ipv4::kVersion4Ihl5) | (l3[ipv4::kProtocol] ^ kProtocolUdp) |
                           (load<uint16_t>(l3 + ipv4::kFragment) & ~big_endian(ipv4::kDontFragment)) |
                           (load<uint16_t>(l4 + udp::kDstPort) ^ big_endian(kRoceUdpPort));
    if (wrong != 0) [[unlikely]]
        return refuse_ipv4(l3, bytes);
    const size_t length = load_be16(l3 + ipv4::kLength);
    if (length > bytes || length < kIpv4Bytes + kMinUdpBytes) return ParseError::kTruncated;
    if (!ipv4_checksum_ok(l3)) return ParseError::kIpHeader;
    const size_t udp_bytes = length - kIpv4Bytes;
    if (load_be16(l4 + udp::kLength) != udp_bytes) return ParseError::kUdp;
    if (load<uint16_t>(l4 + udp::kChecksum) && !udp_checksum_ok(l3 + ipv4::kSrc, 8, l4 + apart, udp_bytes))
        return ParseError::kUdp;
    out = {l3, l4, udp_bytes};
    return ParseError::kNone;
}

[[gnu::noinline]] ParseError find_ipv6(const uint8_t* l3, size_t bytes, ptrdiff_t apart, Layers& out) {
    out = {};
    if (bytes < kIpv6Bytes) return ParseError::kTruncated;
    if (l3[0] >> 4 != 6) return ParseError::kIpHeader;
    if (l3[ipv6::kNextHeader] != kProtocolUdp) return ParseError::kNotRoce;
    if (bytes < kIpv6Bytes + kUdpBytes) return ParseError::kTruncated;
    const uint8_t* const l4 = l3 + kIpv6Bytes;
    if (load_be16(l4 + udp::kDstPort) != kRoceUdpPort) return ParseError::kNotRoce;

    // IPv4-mapped addresses denote IPv4 here and are invalid in an IPv6 header (found by the fuzzer).
    Gid src, dst;
    std::memcpy(src.data(), l3 + ipv6::kSrc, src.size());
    std::memcpy(dst.data(), l3 + ipv6::kDst, dst.size());
    if (is_ipv4_mapped(src) || is_ipv4_mapped(dst)) return ParseError::kIpHeader;

    const size_t udp_bytes = load_be16(l3 + ipv6::kLength);
    if (udp_bytes > bytes - kIpv6Bytes || udp_bytes < kMinUdpBytes) return ParseError::kTruncated;
    if (load_be16(l4 + udp::kLength) != udp_bytes) return ParseError::kUdp;
    if (load<uint16_t>(l4 + udp::kChecksum) && !udp_checksum_ok(l3 + ipv6::kSrc, 32, l4 + apart, udp_bytes))
        return ParseError::kUdp;
    out = {l3, l4, udp_bytes};
    return ParseError::kNone;
}

ParseError find_layers(const Split& frame, Layers& out, std::optional<uint16_t>& vlan) {
    if (frame.bytes < kEthernetBytes) return ParseError::kTruncated;
    uint16_t type = load_be16(frame.head + ethernet::kType);
    size_t l3 = kEthernetBytes;
    vlan.reset();
    if (type == kEtherTypeVlan) {
        if (frame.bytes < kEthernetBytes + kVlanTagBytes) return ParseError::kTruncated;
        vlan = load_be16(frame.head + ethernet::kTci);
        type = load_be16(frame.head + ethernet::kInnerType);
        l3 += kVlanTagBytes;
    }
    if (type == kEtherTypeIpv4) return find_ipv4(frame.head + l3, frame.bytes - l3, frame.apart, out);
    if (type != kEtherTypeIpv6) return ParseError::kNotRoce;
    Layers found;  // a local variable, because passing on the address of `out` would keep it in memory for IPv4 too
    const ParseError error = find_ipv6(frame.head + l3, frame.bytes - l3, frame.apart, found);
    out = found;
    return error;
}

void parse_flow(const uint8_t* frame, const Layers& layers, Flow& flow) {
    std::memcpy(flow.dst_mac.data(), frame + ethernet::kDst, flow.dst_mac.size());
    std::memcpy(flow.src_mac.data(), frame + ethernet::kSrc, flow.src_mac.size());
    flow.udp_src = load_be16(layers.l4 + udp::kSrcPort);
    const uint8_t* const l3 = layers.l3;
    if (l3[0] == ipv4::kVersion4Ihl5) [[likely]] {
        set_ipv4_mapped(flow.src, l3 + ipv4::kSrc);
        set_ipv4_mapped(flow.dst, l3 + ipv4::kDst);
        flow.traffic_class = l3[ipv4::kTos];
        flow.hop_limit = l3[ipv4::kTtl];
        flow.flow_label = 0;
        flow.ipv4_id = load_be16(l3 + ipv4::kId);
        flow.ipv4_df = load_be16(l3 + ipv4::kFragment) & ipv4::kDontFragment;
    } else {
        const uint32_t word = load_be32(l3 + ipv6::kVersionClassLabel);
        std::memcpy(flow.src.data(), l3 + ipv6::kSrc, flow.src.size());
        std::memcpy(flow.dst.data(), l3 + ipv6::kDst, flow.dst.size());
        flow.traffic_class = static_cast<uint8_t>(word >> 20);
        flow.hop_limit = l3[ipv6::kHopLimit];
        flow.flow_label = word & 0xFFFFF;
        flow.ipv4_id = 0;
        flow.ipv4_df = true;
    }
}

// The Ethernet, IPv4 and UDP headers and BTH of the usual frame, in the words of HeaderPrediction. The last word
// overlaps the one before.
constexpr size_t kUsualBytes = kEthernetBytes + kIpv4Bytes + kUdpBytes + kBthBytes;
using UsualWords = decltype(HeaderPrediction::words);
constexpr size_t word_offset(size_t i) {
    return i < kUsualBytes / 8 ? 8 * i : kUsualBytes - 8;
}
constexpr UsualWords kOfFlow{UINT64_MAX,
                             UINT64_MAX,
                             0xFFFF'FFFF'0000'0000,  // without IPv4's length and identification
                             0xFFFF'FFFF'FFFF'0000,  // without its checksum
                             0x0000'FFFF'0000'FFFF,  // without UDP's source port and length
                             0x0000'0000'0000'FFFF,  // without BTH
                             0};
constexpr UsualWords kOfKind{UINT64_MAX,
                             UINT64_MAX,
                             UINT64_MAX,
                             UINT64_MAX,
                             0xFFFF'FFFF'0000'FFFF,  // without UDP's source port
                             0x00FF'FFFF'FFFF'FFFF,
                             0x0000'0000'0000'00FF};  // without BTH's DestQP, AckReq and PSN

// Returns true if the headers equal the known ones in all bits of `mask`.
bool are_same(const uint8_t* frame, const HeaderPrediction& flow, const UsualWords& mask) {
    uint64_t differ = 0;
    for (size_t i = 0; i < mask.size(); ++i)
        differ |= (load<uint64_t>(frame + word_offset(i)) ^ flow.words[i]) & mask[i];
    return differ == 0;
}

void remember(const uint8_t* frame, HeaderPrediction& flow) {
    for (size_t i = 0; i < flow.words.size(); ++i) flow.words[i] = load<uint64_t>(frame + word_offset(i));
    flow.known = true;
}

bool is_usual(const uint8_t* frame, const Layers& layers) {
    return layers.l3 == frame + kEthernetBytes && layers.l4 == layers.l3 + kIpv4Bytes &&
           load<uint16_t>(layers.l4 + udp::kChecksum) == 0;
}

// Does the work of find_layers() for a frame of a known flow. Returns false if a field outside the prediction is
// invalid.
bool find_again(const Split& frame, Layers& out) {
    const uint8_t* const l3 = frame.head + kEthernetBytes;
    const uint8_t* const l4 = l3 + kIpv4Bytes;
    const size_t length = load_be16(l3 + ipv4::kLength), udp_bytes = load_be16(l4 + udp::kLength);
    if (length > frame.bytes - kEthernetBytes || length < kIpv4Bytes + kMinUdpBytes ||
        udp_bytes != length - kIpv4Bytes || !ipv4_checksum_ok(l3)) {
        return false;
    }
    out = {l3, l4, udp_bytes};
    return true;
}

// Parses a frame whose headers equal the ones that `out` was read from, apart from source port, DestQP, AckReq, PSN and
// the headers after BTH.
void parse_alike(const Split& frame, ParsedFrame& out) {
    const uint8_t* const l3 = frame.head + kEthernetBytes;
    const uint8_t* const l4 = l3 + kIpv4Bytes;
    const uint8_t* const bth = l4 + kUdpBytes;
    const OpcodeInfo& info = opcode_info(out.headers.bth.opcode);
    out.flow.udp_src = load_be16(l4 + udp::kSrcPort);
    parse_qpn_and_psn(bth, out.headers.bth);
    parse_extensions(bth + kBthBytes, info.extensions, out.headers);
    out.headers.vp = out.flow.udp_src;
    out.l3 = l3;
    out.payload = bth + info.header_bytes + frame.apart;
    out.verified = false;
}

// Parses BTH and the headers after it, and finds the payload.
ParseError parse_transport(const Layers& layers, ptrdiff_t apart, ParsedFrame& out) {
    const uint8_t* const bth = layers.l4 + kUdpBytes;
    const size_t bth_bytes = layers.udp_bytes - kUdpBytes - kIcrcBytes;  // BTH up to the ICRC
    parse_bth(bth, out.headers.bth);
    const OpcodeInfo& info = opcode_info(out.headers.bth.opcode);
    if (out.headers.bth.version() != 0) return ParseError::kBthVersion;
    if (!info.known) return ParseError::kOpcode;
    if (bth_bytes < info.header_bytes) return ParseError::kTruncated;
    const size_t padded_bytes = bth_bytes - info.header_bytes;
    const size_t pad = out.headers.bth.pad_count();
    if (padded_bytes % 4 || pad > padded_bytes) return ParseError::kPadding;
    if (!(info.extensions & kHasPayload) && padded_bytes) return ParseError::kPadding;

    parse_extensions(bth + kBthBytes, info.extensions, out.headers);
    out.headers.vp = out.flow.udp_src;
    out.l3 = layers.l3;
    out.payload = bth + info.header_bytes + apart;
    out.header_bytes = static_cast<uint32_t>(bth + info.header_bytes - layers.l3);
    out.payload_bytes = static_cast<uint32_t>(padded_bytes - pad);
    out.verified = false;
    return ParseError::kNone;
}

// Parses a frame that differs from the last one. It is a separate function, so that the fast path need not save the
// registers that it uses.
[[gnu::noinline]] ParseError parse_unlike(const Split& frame, ParsedFrame& out, HeaderPrediction& flow, bool* again) {
    Layers layers{};
    *again =
        flow.known && frame.bytes >= kUsualBytes && are_same(frame.head, flow, kOfFlow) && find_again(frame, layers);
    flow.known = false;
    if (*again) {
        out.flow.udp_src = load_be16(layers.l4 + udp::kSrcPort);
        out.flow.ipv4_id = load_be16(layers.l3 + ipv4::kId);
    } else {
        if (const ParseError error = find_layers(frame, layers, out.flow.vlan); error != ParseError::kNone)
            return error;
        parse_flow(frame.head, layers, out.flow);
    }
    const ParseError error = parse_transport(layers, frame.apart, out);
    if (error == ParseError::kNone && is_usual(frame.head, layers)) remember(frame.head, flow);
    return error;
}

[[gnu::always_inline]] inline ParseError parse(const Split& frame, ParsedFrame& out, HeaderPrediction& flow,
                                               bool* again) {
    if (!flow.known || frame.bytes < kUsualBytes || !are_same(frame.head, flow, kOfKind) ||
        load_be16(frame.head + kEthernetBytes + ipv4::kLength) > frame.bytes - kEthernetBytes) [[unlikely]] {
        return parse_unlike(frame, out, flow, again);
    }
    *again = true;
    parse_alike(frame, out);
    return ParseError::kNone;
}

}  // namespace

const char* to_string(ParseError error) {
    switch (error) {
        case ParseError::kNone:
            return "none";
        case ParseError::kNotRoce:
            return "not_roce";
        case ParseError::kTruncated:
            return "truncated";
        case ParseError::kIpHeader:
            return "ip_header";
        case ParseError::kUdp:
            return "udp";
        case ParseError::kBthVersion:
            return "bth_version";
        case ParseError::kOpcode:
            return "opcode";
        case ParseError::kPadding:
            return "padding";
        case ParseError::kIcrc:
            return "icrc";
    }
    return "unknown";
}

ParseError parse_headers(std::span<const uint8_t> frame, ParsedFrame& out) {
    Layers layers{};
    const Split whole{frame.data(), frame.size(), 0};
    if (const ParseError error = find_layers(whole, layers, out.flow.vlan); error != ParseError::kNone) return error;
    parse_flow(frame.data(), layers, out.flow);
    return parse_transport(layers, 0, out);
}

ParseError parse_headers(std::span<const uint8_t> frame, ParsedFrame& out, HeaderPrediction& flow, bool* again) {
    return parse({frame.data(), frame.size(), 0}, out, flow, again);
}

ParseError parse_headers(const uint8_t* head, std::span<const uint8_t> frame, ParsedFrame& out, HeaderPrediction& flow,
                         bool* again) {
    return parse({head, frame.size(), frame.data() - head}, out, flow, again);
}

bool verify(ParsedFrame& frame) {
    const uint8_t* const end = frame.payload + frame.payload_bytes + frame.headers.bth.pad_count();
    const uint32_t sum =
        crc32(icrc(frame.l3, frame.header_bytes), frame.payload, static_cast<size_t>(end - frame.payload));
    return frame.verified = sum == load<uint32_t>(end);
}

void verify(std::span<ParsedFrame* const> frames) {
    struct Covered {
        const uint8_t* l3;
        size_t bytes;
    };
    const auto covered = [&](size_t i) {
        const ParsedFrame& frame = *frames[i];
        const size_t behind = frame.payload_bytes + frame.headers.bth.pad_count();
        return Covered{frame.l3, frame.header_bytes + behind};
    };
    icrc_each(frames.size(), covered, [&](size_t i, uint32_t sum) {
        const auto [l3, bytes] = covered(i);
        frames[i]->verified = sum == load<uint32_t>(l3 + bytes);
    });
}

ParseError parse_frame(std::span<const uint8_t> frame, ParsedFrame& out) {
    const ParseError error = parse_headers(frame, out);
    return error == ParseError::kNone && !verify(out) ? ParseError::kIcrc : error;
}

std::optional<Transit> find_transit(std::span<const uint8_t> frame) {
    Layers layers{};
    std::optional<uint16_t> vlan;
    if (find_layers({frame.data(), frame.size(), 0}, layers, vlan) != ParseError::kNone) return std::nullopt;
    return Transit{static_cast<size_t>(layers.l3 - frame.data()), load_be16(layers.l4 + udp::kSrcPort)};
}

void VerifyingReader::read(void* to, uint32_t bytes) {
    if (at_ == frame_.payload)
        crc_ = icrc_copy(frame_.l3, frame_.header_bytes, to, at_, bytes);
    else
        crc_ = crc32_copy(crc_, to, at_, bytes);
    at_ += bytes;
}

bool VerifyingReader::icrc_matches() const {
    const size_t pad = frame_.headers.bth.pad_count();
    const uint32_t sum = pad == 0 ? crc_ : crc32(crc_, at_, pad);
    return sum == load<uint32_t>(at_ + pad);
}

}  // namespace rove::wire
