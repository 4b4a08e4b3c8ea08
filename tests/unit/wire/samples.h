// SPDX-License-Identifier: Apache-2.0
// Flows, headers and frames for tests.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "wire/byte_order.h"
#include "wire/crc32.h"
#include "wire/frame.h"
#include "wire/icrc.h"

namespace rove::wire::samples {

using Frame = std::vector<uint8_t>;

inline Frame random_bytes(size_t count, uint32_t seed = 1) {
    std::mt19937 random(seed);
    Frame made(count);
    std::ranges::generate(made, [&] { return static_cast<uint8_t>(random()); });
    return made;
}

inline Flow flow(bool v6, bool vlan) {
    Flow made{.dst_mac = {2, 0, 0, 0, 7, 2}, .src_mac = {2, 0, 0, 0, 7, 1}};
    if (v6) {  // no byte is 0 or appears twice, so a lost byte is noticed
        for (uint8_t i = 0; i < 16; ++i) made.src[i] = 0xD0 + i, made.dst[i] = 0xE0 + i;
    } else {
        made.src = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 7, 0, 1};
        made.dst = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 11, 8, 2, 3};
    }
    if (vlan) made.vlan = 5 << 13 | 123;
    made.traffic_class = 26 << 2 | kEcnEct0;
    made.hop_limit = 63;
    made.udp_src = 0xC123;
    if (v6) made.flow_label = 0xABCDE;
    return made;
}

// Returns headers in which every field differs, so that swapped fields are noticed.
inline Headers headers(uint8_t opcode) {
    Headers made;
    made.bth = {.opcode = opcode,
                .flags = Bth::kSolicited | Bth::kMigReq,
                .pkey = 0x8001,
                .ecn = Bth::kBecn,
                .ack_req = true,
                .dest_qpn = 0x123456,
                .psn = 0xFEDCBA};
    made.deth = {.qkey = 0x11223344, .src_qpn = 0x556677};
    made.reth = {.va = 0x0102030405060708, .rkey = 0x11121314, .length = 0x21222324};
    made.atomic = {
        .va = 0x3132333435363738, .rkey = 0x41424344, .swap_or_add = 0x5152535455565758, .compare = 0x6162636465666768};
    made.aeth = {.syndrome = kSyndromeNakRemoteAccess, .msn = 0x717273};
    made.feth = {.placement = 3, .selectivity = 1};
    made.atomic_original = 0x8182838485868788;
    made.immediate = 0x91929394;
    made.invalidate_rkey = 0xA1A2A3A4;
    made.mp = {.flags = Mpeth::kRetx | Mpeth::kSync | Mpeth::kLast | Mpeth::kEarly, .msn = 0xB1B2B3, .ipsn = 0xC1C2C3};
    made.mp_ack = {.entry = {.kind = MpAck::kNack,
                             .ece = true,
                             .retx = false,
                             .response = true,
                             .psn = 0xD1D2D3,
                             .vp = 0xD4D5,
                             .trimmed = true},
                   .syndrome = kSyndromeNakRemoteOperation,
                   .aack_psn = 0xE1E2E3,
                   .room = 0xE5,
                   .more = 0xE4};
    made.xrc_srqn = 0x1A1B1C;
    made.vp = 0xF1F2;
    made.hello = {.version = 0xF3,
                  .answer = true,
                  .mp = true,
                  .qpn = 0xF4F5F6,
                  .nonce = 0xF7F8F9FA,
                  .limits = {.reorder_packets = 0x2A2B, .early_kib = 0x2C2D},
                  .tick = 0x3A3B3C3D,
                  .echo_tick = 0x4A4B4C4D};
    return made;
}

inline Frame frame(const Flow& flow, const Headers& headers, const Frame& payload) {
    const FlowTemplate made = make_template(flow);
    const Segment segment{payload.data(), static_cast<uint32_t>(payload.size())};
    Frame out(frame_bytes(made, headers.bth.opcode, segment.bytes));
    out.resize(build_frame(out.data(), made, headers, {&segment, 1}));
    return out;
}

// Makes the ICRC right again after a change, if the frame is still long enough for headers.
inline void seal(Frame& frame, size_t l3) {
    const size_t headers = frame[l3] >> 4 == 4 ? 40 : 60;
    if (frame.size() < l3 + headers + kIcrcBytes) return;
    const size_t covered = frame.size() - l3 - kIcrcBytes;
    store(frame.data() + l3 + covered, icrc(frame.data() + l3, covered));
}

}  // namespace rove::wire::samples
