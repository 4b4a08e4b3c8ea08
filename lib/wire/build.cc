// SPDX-License-Identifier: Apache-2.0
// Builds frames: the template of a flow, and packets from it.
#include <cstring>

#include "wire/copy.h"
#include "wire/crc32.h"
#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/network_headers.h"
#include "wire/transport_headers.h"

namespace rove::wire {
namespace {

constexpr uint32_t pad_of(uint32_t payload_bytes) {
    return -payload_bytes & 3;
}

// Copies a payload longer than kSmallPayload while summing it, and writes pad and ICRC. Returns a pointer to the byte
// after them.
[[gnu::noinline]] uint8_t* append_summed(const uint8_t* l3, uint8_t* at, std::span<const Segment> payload,
                                         uint32_t pad) {
    uint32_t crc = icrc_copy(l3, static_cast<size_t>(at - l3), at, payload.front().data, payload.front().bytes);
    at += payload.front().bytes;
    for (const Segment& segment : payload.subspan(1)) {
        crc = crc32_copy(crc, at, segment.data, segment.bytes);
        at += segment.bytes;
    }
    if (pad != 0) {
        crc = crc32(crc, std::memset(at, 0, pad), pad);
        at += pad;
    }
    store(at, crc);
    return at + kIcrcBytes;
}

// Works like the function above for one segment. It is called last, so that frames with a small payload save no
// registers for it.
[[gnu::noinline]] BuiltFrame append_summed(uint8_t* out, BuiltFrame frame, uint8_t* at, Segment payload) {
    append_summed(out + frame.l3_offset, at, {&payload, 1}, pad_of(payload.bytes));
    return {frame.bytes, 0};
}

uint32_t total_bytes(std::span<const Segment> payload) {
    if (payload.size() == 1) [[likely]]
        return payload.front().bytes;
    uint32_t bytes = 0;
    for (const Segment& segment : payload) bytes += segment.bytes;
    return bytes;
}

// Copies the common part of frames, 42 to 78 bytes, in blocks. The last block overlaps the one before.
void copy_start(uint8_t* out, const uint8_t* from, size_t size) {
    std::memcpy(out, from, 32);
    if (size >= 48) std::memcpy(out + 32, from + 32, 16);
    if (size >= 64) std::memcpy(out + 48, from + 48, 16);
    std::memcpy(out + size - 16, from + size - 16, 16);
}

// Sets the source port of a multi-path packet, which selects its path.
void set_path(uint8_t* bth, uint16_t extensions, const Headers& headers) {
    if (extensions & (kHasMpeth | kHasMpaeth)) store_be16(bth - kUdpBytes + udp::kSrcPort, headers.vp);
}

// Writes the Ethernet header to BTH. set_path() must follow.
void write_start(uint8_t* out, const FlowTemplate& flow, const Headers& headers, const OpcodeInfo& info,
                 uint32_t payload_bytes) {
    // Local copies, because the compiler must assume that each byte written to `out` may change `flow`.
    const uint8_t l3_offset = flow.l3_offset, size = flow.size;
    copy_start(out, flow.bytes.data(), size);
    uint8_t* const l3 = out + l3_offset;
    uint8_t* const bth = out + size;
    const uint32_t pad = pad_of(payload_bytes);
    const size_t udp_bytes = kUdpBytes + info.header_bytes + payload_bytes + pad + kIcrcBytes;
    store_be16(bth - kUdpBytes + udp::kLength, static_cast<uint16_t>(udp_bytes));
    if (size - l3_offset == kIpv4Bytes + kUdpBytes) [[likely]] {
        const uint16_t length = big_endian(static_cast<uint16_t>(kIpv4Bytes + udp_bytes));
        store(l3 + ipv4::kLength, length);
        const uint32_t sum = uint32_t{flow.ipv4_checksum} + length;
        store(l3 + ipv4::kChecksum, static_cast<uint16_t>(~((sum & 0xFFFF) + (sum >> 16))));
    } else {
        store_be16(l3 + ipv6::kLength, static_cast<uint16_t>(udp_bytes));
    }
    emit_bth(bth, headers.bth, pad);
}

}  // namespace

bool is_ipv4_mapped(const Gid& gid) {
    return load<uint64_t>(gid.data()) == 0 && load_be32(gid.data() + 8) == 0xFFFF;
}

FlowTemplate make_template(const Flow& flow) {
    FlowTemplate made;
    uint8_t* const bytes = made.bytes.data();
    const bool v4 = is_ipv4_mapped(flow.dst);
    const uint16_t type = v4 ? kEtherTypeIpv4 : kEtherTypeIpv6;
    std::memcpy(bytes + ethernet::kDst, flow.dst_mac.data(), flow.dst_mac.size());
    std::memcpy(bytes + ethernet::kSrc, flow.src_mac.data(), flow.src_mac.size());
    if (flow.vlan) {
        store_be16(bytes + ethernet::kType, kEtherTypeVlan);
        store_be16(bytes + ethernet::kTci, *flow.vlan);
        store_be16(bytes + ethernet::kInnerType, type);
        made.l3_offset = kEthernetBytes + kVlanTagBytes;
    } else {
        store_be16(bytes + ethernet::kType, type);
        made.l3_offset = kEthernetBytes;
    }

    uint8_t* const l3 = bytes + made.l3_offset;
    uint8_t* const l4 = l3 + (v4 ? kIpv4Bytes : kIpv6Bytes);
    if (v4) {
        l3[ipv4::kVersionIhl] = ipv4::kVersion4Ihl5;
        l3[ipv4::kTos] = flow.traffic_class;
        store_be16(l3 + ipv4::kId, flow.ipv4_id);
        store_be16(l3 + ipv4::kFragment, flow.ipv4_df ? ipv4::kDontFragment : 0);
        l3[ipv4::kTtl] = flow.hop_limit;
        l3[ipv4::kProtocol] = kProtocolUdp;
        std::memcpy(l3 + ipv4::kSrc, flow.src.data() + 12, 4);
        std::memcpy(l3 + ipv4::kDst, flow.dst.data() + 12, 4);
        made.ipv4_checksum = fold_checksum(sum_ipv4_header(l3));
    } else {
        const uint32_t label = flow.flow_label & 0xFFFFF;
        store_be32(l3 + ipv6::kVersionClassLabel, 6u << 28 | uint32_t{flow.traffic_class} << 20 | label);
        l3[ipv6::kNextHeader] = kProtocolUdp;
        l3[ipv6::kHopLimit] = flow.hop_limit;
        std::memcpy(l3 + ipv6::kSrc, flow.src.data(), flow.src.size());
        std::memcpy(l3 + ipv6::kDst, flow.dst.data(), flow.dst.size());
    }
    store_be16(l4 + udp::kSrcPort, flow.udp_src);
    store_be16(l4 + udp::kDstPort, kRoceUdpPort);
    made.size = static_cast<uint8_t>(l4 + kUdpBytes - bytes);
    return made;
}

size_t frame_bytes(const FlowTemplate& flow, uint8_t opcode, uint32_t payload_bytes) {
    return flow.size + opcode_info(opcode).header_bytes + payload_bytes + pad_of(payload_bytes) + kIcrcBytes;
}

size_t build_frame(uint8_t* out, const FlowTemplate& flow, const Headers& headers, std::span<const Segment> payload) {
    const BuiltFrame built = build_unsealed(out, flow, headers, payload);
    if (built.l3_offset != 0) seal(out, built);
    return built.bytes;
}

void seal(uint8_t* frame, BuiltFrame built) {
    const size_t summed = built.bytes - kIcrcBytes - size_t{built.l3_offset};
    const uint8_t* const l3 = frame + built.l3_offset;
    store(frame + built.bytes - kIcrcBytes, icrc(l3, summed));
}

void seal(std::span<const PendingIcrc> frames) {
    icrc_each(
        frames.size(), [&](size_t i) { return frames[i]; },
        [&](size_t i, uint32_t sum) { store(frames[i].l3 + frames[i].bytes, sum); });
}

BuiltFrame build_unsealed(uint8_t* out, const FlowTemplate& flow, const Headers& headers,
                          std::span<const Segment> payload) {
    const OpcodeInfo& info = opcode_info(headers.bth.opcode);
    const uint8_t l3_offset = flow.l3_offset, size = flow.size;
    const uint32_t payload_bytes = total_bytes(payload);
    write_start(out, flow, headers, info, payload_bytes);
    set_path(out + size, info.extensions, headers);
    uint8_t* at = emit_extensions(out + size + kBthBytes, info.extensions, headers);
    const uint32_t pad = pad_of(payload_bytes);
    if (payload_bytes <= kSmallPayload) {
        for (const Segment& segment : payload) {
            copy(at, segment.data, segment.bytes);
            at += segment.bytes;
        }
        store(at, uint32_t{0});  // the pad, and room for the ICRC
        return {static_cast<uint16_t>(at + pad + kIcrcBytes - out), l3_offset};
    }
    return {static_cast<uint16_t>(append_summed(out + l3_offset, at, payload, pad) - out), 0};
}

FrameSeries::FrameSeries(const FlowTemplate& flow, const Headers& headers, uint32_t payload_bytes)
    : payload_bytes_(payload_bytes),
      extensions_(opcode_info(headers.bth.opcode).extensions),
      frame_bytes_(static_cast<uint16_t>(wire::frame_bytes(flow, headers.bth.opcode, payload_bytes))),
      size_(static_cast<uint8_t>(flow.size + kBthBytes)),
      l3_offset_(flow.l3_offset) {
    write_start(start_.data(), flow, headers, opcode_info(headers.bth.opcode), payload_bytes);
}

BuiltFrame FrameSeries::build_unsealed(uint8_t* out, const Headers& headers, const void* payload) const {
    const uint32_t payload_bytes = payload_bytes_;
    const uint16_t extensions = extensions_;
    const BuiltFrame built{frame_bytes_, l3_offset_};
    uint8_t* const bth = out + size_ - kBthBytes;
    copy_start(out, start_.data(), size_);
    emit_psn(bth, headers.bth);
    set_path(bth, extensions, headers);
    uint8_t* const at = emit_extensions(bth + kBthBytes, extensions, headers);
    if (payload_bytes > kSmallPayload) return append_summed(out, built, at, {payload, payload_bytes});
    store(at + payload_bytes, uint32_t{0});  // the pad, and room for the ICRC
    copy(at, payload, payload_bytes);
    return built;
}

}  // namespace rove::wire
