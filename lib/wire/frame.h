// SPDX-License-Identifier: Apache-2.0
// Whole RoCEv2 frames: Ethernet (+ 802.1Q) / IPv4 or IPv6 / UDP / transport headers / payload / pad / ICRC. Lengths are
// in bytes. Addresses are as on the wire; ports and VLAN ids are in host order.
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
// Returns true for 224.0.0.0/4 and ff00::/8.
inline bool is_multicast(const Gid& gid) {
    return gid[0] == 0xFF || (gid[12] >> 4 == 0xE && is_ipv4_mapped(gid));
}
// Returns true if a == b. The operator itself would call memcmp.
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

// The headers below BTH that all packets of one flow share.
struct Flow {
    MacAddress dst_mac{}, src_mac{};
    std::optional<uint16_t> vlan;  // 802.1Q TCI: PCP(3) DEI(1) VID(12); untagged if unset
    Gid src{}, dst{};              // both IPv4-mapped, or both IPv6
    uint8_t traffic_class = 0;     // DSCP << 2 | ECN
    uint8_t hop_limit = 64;
    uint32_t flow_label = 0;  // IPv6 only, 20 bits
    uint16_t udp_src = 0;
    // Used only for IPv4, to rebuild a frame from another sender. rove itself sends 0 and DF.
    uint16_t ipv4_id = 0;
    bool ipv4_df = true;
};

// The reason why a frame was refused, in the order of the checks.
enum class ParseError : uint8_t {
    kNone,
    kNotRoce,     // not UDP 4791 over IP: ARP, ND, ICMP, ... belong to other receivers
    kTruncated,   // shorter than its headers or its IP/UDP length
    kIpHeader,    // options, fragment, bad version or header checksum
    kUdp,         // UDP length disagrees with IP, or a non-zero UDP checksum is wrong
    kBthVersion,  // TVer is not 0
    kOpcode,      // reserved, or a transport service that rove does not speak
    kPadding,     // length not a multiple of 4, pad larger than the payload, or payload or pad not allowed
    kIcrc,
};
const char* to_string(ParseError error);

struct ParsedFrame {
    Flow flow;
    Headers headers;
    const uint8_t* l3 = nullptr;       // first byte of the IP header
    const uint8_t* payload = nullptr;  // points into the input
    uint32_t header_bytes = 0;         // from the IP header to the payload, which may be in another buffer
    uint32_t payload_bytes = 0;        // without pad
    bool verified = false;             // the ICRC was checked and is correct
    bool ce() const { return (flow.traffic_class & 3) == kEcnCe; }
};

// Parses `frame` (Ethernet header first, no FCS; trailing Ethernet padding is ignored) except for its ICRC. It never
// reads outside `frame`. `out` is meaningful only if the result is kNone.
ParseError parse_headers(std::span<const uint8_t> frame, ParsedFrame& out);

// The Ethernet, IPv4 and UDP headers and BTH of the last frame. It belongs to the ParsedFrame that was read from that
// frame, whose flow and headers must not be changed by other code.
struct HeaderPrediction {
    std::array<uint64_t, 7> words{};
    bool known = false;
};
// Parses like the function above and sets `*again` if the frame has the flow of the last one, apart from identification
// and source port. Fields equal to the last frame's are not parsed again. In nearly every frame of a burst that is
// everything except the source port, DestQP, AckReq and PSN: header prediction (V. Jacobson, 1990).
ParseError parse_headers(std::span<const uint8_t> frame, ParsedFrame& out, HeaderPrediction& flow, bool* again);

// The largest part of a frame that can be headers, with a margin. The rest is payload.
inline constexpr size_t kHeadBytes = 128;
// Parses like the function above a frame in memory that another process may write to at any time. The headers are read
// from `head`, a copy of the frame's first kHeadBytes. Only the payload, and a UDP checksum, is read from the frame
// itself.
ParseError parse_headers(const uint8_t* head, std::span<const uint8_t> frame, ParsedFrame& out, HeaderPrediction& flow,
                         bool* again);

// Returns true if the ICRC is correct, and records the result in `frame`.
bool verify(ParsedFrame& frame);
void verify(std::span<ParsedFrame* const> frames);

// Calls parse_headers() and verify().
ParseError parse_frame(std::span<const uint8_t> frame, ParsedFrame& out);

// Copies a frame's payload out, front to back, and verifies the ICRC in the same pass.
class VerifyingReader {
  public:
    explicit VerifyingReader(const ParsedFrame& frame) : frame_(frame), at_(frame.payload) {}
    void read(void* to, uint32_t bytes);
    // Returns true if the payload is the one that was sent. Valid after the whole payload was read, which must not be
    // empty.
    bool icrc_matches() const;

  private:
    const ParsedFrame& frame_;
    const uint8_t* at_;
    uint32_t crc_ = 0;
};

// The Ethernet, IP and UDP headers of a flow, built once. Only lengths and the IPv4 checksum change per packet.
struct FlowTemplate {
    static constexpr size_t kMaxBytes = 14 + 4 + 40 + 8;
    std::array<uint8_t, kMaxBytes> bytes{};
    uint8_t size = 0;            // total of the three headers
    uint8_t l3_offset = 0;       // 14, or 18 with a VLAN tag
    uint16_t ipv4_checksum = 0;  // folded sum of the header with length 0, not complemented
};
FlowTemplate make_template(const Flow& flow);

// The maximum size of a frame without its payload: Ethernet, VLAN, IPv6 and UDP, then BTH, MPETH, RETH and ImmDt (40),
// then pad and ICRC (7).
inline constexpr uint32_t kMaxOverheadBytes = FlowTemplate::kMaxBytes + 40 + 7;

struct Segment {
    const void* data;
    uint32_t bytes;
};

// Returns the number of bytes that build_frame() writes for these headers and this payload, including pad and ICRC.
size_t frame_bytes(const FlowTemplate& flow, uint8_t opcode, uint32_t payload_bytes);

// Writes a whole frame to `out`, which must have room for frame_bytes(). It copies the payload from `payload` while it
// computes the ICRC. headers.bth.pad_count() is ignored, since the pad follows from the payload. Returns the number of
// bytes written.
size_t build_frame(uint8_t* out, const FlowTemplate& flow, const Headers& headers, std::span<const Segment> payload);

// The largest payload for which one sum over the finished packet is faster than a sum over the headers that the
// payload's copy continues. On Zen 3 it takes 28 ns instead of 38 at 8 bytes and 35 instead of 40 at 128; there is no
// difference at 256.
inline constexpr uint32_t kSmallPayload = 128;

struct BuiltFrame {
    uint16_t bytes;
    uint8_t l3_offset;  // where seal() must begin; 0 if the ICRC is already written
};
// Builds a frame like build_frame(), but leaves a packet with a small payload without its ICRC. A burst of such packets
// is sealed together. Each sum waits for its own steps and for the bytes just written, and in a burst these waits
// overlap.
BuiltFrame build_unsealed(uint8_t* out, const FlowTemplate& flow, const Headers& headers,
                          std::span<const Segment> payload);
void seal(uint8_t* frame, BuiltFrame built);
struct PendingIcrc {
    uint8_t* l3;     // the IP header
    uint32_t bytes;  // length up to the ICRC
};
void seal(std::span<const PendingIcrc> frames);

// A series of similar frames: they share the flow, the BTH except for AckReq and PSN, and the size of the payload. The
// common part is written once.
class FrameSeries {
  public:
    FrameSeries(const FlowTemplate& flow, const Headers& headers, uint32_t payload_bytes);
    // Works like the function of the same name. It uses only AckReq, PSN, VP and the headers after BTH from `headers`.
    BuiltFrame build_unsealed(uint8_t* out, const Headers& headers, const void* payload) const;

  private:
    std::array<uint8_t, FlowTemplate::kMaxBytes + 12> start_;  // Ethernet header to BTH
    uint32_t payload_bytes_;
    uint16_t extensions_;  // Extension bits
    uint16_t frame_bytes_;
    uint8_t size_;  // bytes used in `start_`
    uint8_t l3_offset_;
};

}  // namespace rove::wire
