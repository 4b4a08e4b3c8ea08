// SPDX-License-Identifier: Apache-2.0
// Whole RoCEv2 frames: Ethernet (+ 802.1Q) / IPv4 or IPv6 / UDP / transport headers / payload / pad / ICRC.
// Units: bytes; addresses as on the wire; ports and VLAN ids in host order.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/copy.h"
#include "wire/headers.h"

namespace rove::wire {

using MacAddress = std::array<uint8_t, 6>;
using Gid = std::array<uint8_t, 16>;  // an IPv6 address, or ::ffff:a.b.c.d for IPv4

bool is_ipv4_mapped(const Gid& gid);
// 224.0.0.0/4 or ff00::/8.
inline bool is_multicast(const Gid& gid) {
    return gid[0] == 0xFF || (gid[12] >> 4 == 0xE && is_ipv4_mapped(gid));
}
// As a == b, which is a call of memcmp.
inline bool same(const Gid& a, const Gid& b) {
    const auto [a0, a1] = std::bit_cast<std::array<uint64_t, 2>>(a);
    const auto [b0, b1] = std::bit_cast<std::array<uint64_t, 2>>(b);
    return ((a0 ^ b0) | (a1 ^ b1)) == 0;
}
inline bool same(const MacAddress& a, const MacAddress& b) {
    const auto [a0, a1, a2] = std::bit_cast<std::array<uint16_t, 3>>(a);
    const auto [b0, b1, b2] = std::bit_cast<std::array<uint16_t, 3>>(b);
    return ((a0 ^ b0) | (a1 ^ b1) | (a2 ^ b2)) == 0;
}

inline constexpr uint8_t kEcnNotEct = 0, kEcnEct1 = 1, kEcnEct0 = 2, kEcnCe = 3;  // RFC 3168

// Everything below BTH that a packet of one flow has in common.
struct Flow {
    MacAddress dst_mac{}, src_mac{};
    std::optional<uint16_t> vlan;  // 802.1Q TCI: PCP(3) DEI(1) VID(12); none = untagged
    Gid src{}, dst{};              // both IPv4-mapped, or both IPv6
    uint8_t traffic_class = 0;     // DSCP << 2 | ECN
    uint8_t hop_limit = 64;
    uint32_t flow_label = 0;  // IPv6 only, 20 bits
    uint16_t udp_src = 0;
    // IPv4 only, for rebuilding a frame that somebody else made; rove itself sends 0 and DF.
    uint16_t ipv4_id = 0;
    bool ipv4_df = true;
};

// Why a frame was not taken. The order is that of the checks.
enum class ParseError : uint8_t {
    kNone,
    kNotRoce,     // not UDP 4791 over IP: ARP, ND, ICMP, ... are for someone else
    kTruncated,   // shorter than its headers or its IP/UDP length say
    kIpHeader,    // options, fragment, bad version or header checksum
    kUdp,         // UDP length disagrees with IP, or a non-zero UDP checksum is wrong
    kBthVersion,  // TVer is not 0
    kOpcode,      // reserved, or a transport service that rove does not speak
    kPadding,     // length not a multiple of 4, pad larger than the payload, payload or pad where none can be
    kIcrc,
};
const char* to_string(ParseError error);

struct ParsedFrame {
    Flow flow;
    Headers headers;
    const uint8_t* l3 = nullptr;       // first byte of the IP header
    const uint8_t* payload = nullptr;  // points into the input
    uint32_t header_bytes = 0;         // from the IP header up to the payload, which may lie apart
    uint32_t payload_bytes = 0;        // without pad
    bool verified = false;             // the ICRC was found right
    bool ce() const { return (flow.traffic_class & 3) == kEcnCe; }
};

// Parses `frame` (Ethernet header first, no FCS; trailing Ethernet padding is ignored), all but its ICRC.
// Never reads outside `frame`. `out` is meaningful only for kNone.
ParseError parse_headers(std::span<const uint8_t> frame, ParsedFrame& out);

// The Ethernet, IPv4 and UDP headers and BTH of the last frame. Kept beside the ParsedFrame that was read from it,
// whose flow and headers nobody else writes to.
struct HeaderPrediction {
    std::array<uint64_t, 7> words{};
    bool known = false;
};
// As above; `*again`: the frame's flow is that of the last, but for identification and source port. What is equal to
// the last frame's is not looked at again, and in nearly every frame of a burst that is all but the source port,
// DestQP, AckReq and PSN: header prediction (V. Jacobson, 1990).
ParseError parse_headers(std::span<const uint8_t> frame, ParsedFrame& out, HeaderPrediction& flow, bool* again);

// What of a frame can be headers, with room to spare: the rest is payload.
inline constexpr size_t kHeadBytes = 128;
// The same of a frame of `bytes` in memory that somebody else may write to at any time: its headers are read from
// `head`, a copy of its first kHeadBytes. Only the payload, and a UDP checksum, is read from the frame itself.
ParseError parse_headers(const uint8_t* head, std::span<const uint8_t> frame, ParsedFrame& out, HeaderPrediction& flow,
                         bool* again);

// Whether the ICRC is right; remembered in `frame`.
bool verify(ParsedFrame& frame);
void verify(std::span<ParsedFrame* const> frames);

// parse_headers() and verify().
ParseError parse_frame(std::span<const uint8_t> frame, ParsedFrame& out);

// Copies a frame's payload out, front to back, and verifies the ICRC in the same pass.
class VerifyingReader {
  public:
    explicit VerifyingReader(const ParsedFrame& frame) : frame_(frame), at_(frame.payload) {}
    void read(void* to, uint32_t bytes);
    // After the whole payload, not empty, was read: whether it is what was sent.
    bool icrc_matches() const;

  private:
    const ParsedFrame& frame_;
    const uint8_t* at_;
    uint32_t crc_ = 0;
};

// A flow's Ethernet, IP and UDP headers, built once. Per packet only lengths and the IPv4 checksum change.
struct FlowTemplate {
    static constexpr size_t kMaxBytes = 14 + 4 + 40 + 8;
    std::array<uint8_t, kMaxBytes> bytes{};
    uint8_t size = 0;            // of the three headers together
    uint8_t l3_offset = 0;       // 14, or 18 with a VLAN tag
    uint16_t ipv4_checksum = 0;  // folded sum of the header with length 0, not complemented
};
FlowTemplate make_template(const Flow& flow);

// The most that a frame has beside its payload: Ethernet, VLAN, IPv6 and UDP, then BTH, MPETH, RETH and ImmDt (40),
// then pad and ICRC (7).
inline constexpr uint32_t kMaxOverheadBytes = FlowTemplate::kMaxBytes + 40 + 7;

struct Segment {
    const void* data;
    uint32_t bytes;
};

// Bytes that build_frame will write for these headers and this payload (pad and ICRC included).
size_t frame_bytes(const FlowTemplate& flow, uint8_t opcode, uint32_t payload_bytes);

// Writes a whole frame to `out`, which has room for frame_bytes(). Copies the payload from `payload` while computing
// the ICRC over it. headers.bth.pad_count() is ignored: it follows from the payload. Returns the bytes written.
size_t build_frame(uint8_t* out, const FlowTemplate& flow, const Headers& headers, std::span<const Segment> payload);

// Payload up to which one sum over the finished packet is faster than one over the headers, continued in the copy of
// the payload (Zen 3: 28 ns instead of 38 at 8 bytes, 35 instead of 40 at 128, no difference at 256).
inline constexpr uint32_t kSmallPayload = 128;

struct BuiltFrame {
    uint16_t bytes;
    uint8_t l3_offset;  // where seal() shall begin; 0: the ICRC is there
};
// As build_frame(), but a packet with a small payload is left without its ICRC. A burst of them is sealed together:
// what one sum waits for, its own steps and the bytes just written, overlaps with the others'.
BuiltFrame build_unsealed(uint8_t* out, const FlowTemplate& flow, const Headers& headers,
                          std::span<const Segment> payload);
void seal(uint8_t* frame, BuiltFrame built);
struct PendingIcrc {
    uint8_t* l3;     // the IP header
    uint32_t bytes;  // up to the ICRC
};
void seal(std::span<const PendingIcrc> frames);

// Frames that are alike: of one flow, one BTH but for AckReq and PSN, and one size of payload. What they have in common
// is written once.
class FrameSeries {
  public:
    FrameSeries(const FlowTemplate& flow, const Headers& headers, uint32_t payload_bytes);
    // As the function. Of `headers`, AckReq, PSN, VP and what follows BTH are looked at.
    BuiltFrame build_unsealed(uint8_t* out, const Headers& headers, const void* payload) const;

  private:
    std::array<uint8_t, FlowTemplate::kMaxBytes + 12> start_;  // Ethernet header to BTH
    uint32_t payload_bytes_;
    uint16_t extensions_;  // as OpcodeInfo's
    uint16_t frame_bytes_;
    uint8_t size_;  // of `start_`
    uint8_t l3_offset_;
};

}  // namespace rove::wire
