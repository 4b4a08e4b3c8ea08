// SPDX-License-Identifier: Apache-2.0
// Writes a capture (pcap) of the packets that rove's wire library builds and Wireshark does not know (mp's and XRC's,
// FLUSH and ATOMIC WRITE): every opcode once with distinct numbers, then truncated packets. For the test of
// tools/wireshark/rove.lua.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "wire/ack_entry.h"
#include "wire/frame.h"

namespace {

using namespace rove::wire;

constexpr uint32_t kPcapMagic = 0xA1B2C3D4, kEthernet = 1;  // microseconds; little-endian like this machine

void write_words(std::FILE* file, std::initializer_list<uint32_t> words) {
    for (const uint32_t word : words) std::fwrite(&word, sizeof word, 1, file);
}

void write_frame(std::FILE* file, const std::vector<uint8_t>& frame) {
    const auto bytes = static_cast<uint32_t>(frame.size());
    write_words(file, {0, 0, bytes, bytes});
    std::fwrite(frame.data(), 1, frame.size(), file);
}

Flow flow() {
    Flow flow;
    flow.dst_mac = {2, 0, 0, 0, 0, 1};
    flow.src_mac = {2, 0, 0, 0, 0, 2};
    flow.src = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 2};
    flow.dst = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1};
    flow.udp_src = 0xC123;
    return flow;
}

Headers headers(uint8_t opcode) {
    Headers h{};
    h.bth.opcode = opcode;
    h.bth.dest_qpn = 0x123456;
    h.bth.psn = 1000u + opcode;
    h.reth = {.va = 0x1122334455667788, .rkey = 0xABCD, .length = 64};
    h.aeth = {.syndrome = kSyndromeAck, .msn = 77};
    h.mp = {.flags = Mpeth::kRetx | Mpeth::kLast | Mpeth::kEarly, .msn = 5, .ipsn = 9};
    h.mp_ack = {.entry = {.kind = MpAck::kSack, .ece = true, .retx = false, .response = true, .psn = 500, .vp = 0xC001},
                .syndrome = kSyndromeNakRemoteAccess,
                .aack_psn = 499,
                .room = 15,
                .more = 2};
    h.vp = 0xC123;
    h.feth = {.placement = 1, .selectivity = 1};
    h.xrc_srqn = 0x0A0B0C;
    h.hello = {.version = kMpVersion,
               .answer = true,
               .mp = true,
               .qpn = 0x654321,
               .nonce = 0xDEADBEEF,
               .limits = {.reorder_packets = 120, .early_kib = 1024},
               .tick = 7000,
               .echo_tick = 5000};
    return h;
}

std::vector<uint8_t> build(uint8_t opcode) {
    std::array<uint8_t, 64> payload{};
    size_t bytes = payload.size();
    if (opcode_info(opcode).extensions & kHasMpaeth) {
        emit_ack_entry(payload.data(),
                       {.kind = MpAck::kAck, .ece = false, .retx = false, .response = true, .psn = 501, .vp = 0xC002});
        emit_ack_entry(payload.data() + kMpAckEntryBytes, {.kind = MpAck::kNack,
                                                           .ece = false,
                                                           .retx = true,
                                                           .response = false,
                                                           .psn = 502,
                                                           .vp = 0xC003,
                                                           .trimmed = true});
        bytes = 2 * kMpAckEntryBytes;
    }
    if (!(opcode_info(opcode).extensions & kHasPayload) || opcode == kOpcodeHello) bytes = 0;
    const FlowTemplate top = make_template(flow());
    std::vector<uint8_t> frame(frame_bytes(top, opcode, static_cast<uint32_t>(bytes)));
    const Segment segment{payload.data(), static_cast<uint32_t>(bytes)};
    build_frame(frame.data(), top, headers(opcode), {&segment, bytes != 0});
    return frame;
}

}  // namespace

int main(int argc, char** argv) {
    std::FILE* file = argc == 2 ? std::fopen(argv[1], "wb") : nullptr;
    if (file == nullptr) {
        std::fprintf(stderr, "usage: mp_frames FILE\n");
        return 2;
    }
    write_words(file, {kPcapMagic, 4u << 16 | 2, 0, 0, 65535, kEthernet});  // version 2.4
    for (const Op op : {Op::kFlush, Op::kAtomicWrite}) write_frame(file, build(opcode(Service::kRc, op)));
    for (unsigned opcode = 0xA0; opcode <= 0xFF; ++opcode)
        if (opcode_info(static_cast<uint8_t>(opcode)).known) write_frame(file, build(static_cast<uint8_t>(opcode)));
    write_frame(file, build(opcode(Service::kRc, Op::kSendOnly)));  // one that Wireshark knows
    for (const uint8_t opcode : {uint8_t{0xE0}, uint8_t{0xF1}, kOpcodeHello}) {
        std::vector<uint8_t> cut = build(opcode);
        constexpr size_t kUpToBth = 14 + 20 + 8 + 12;
        cut.resize(kUpToBth + 4);
        // IPv4 and UDP lengths: no snapshot, a short packet
        cut[14 + 3] = static_cast<uint8_t>(cut.size() - 14);
        cut[14 + 2] = 0;
        cut[14 + 20 + 4] = 0;
        cut[14 + 20 + 5] = static_cast<uint8_t>(cut.size() - 14 - 20);
        write_frame(file, cut);
    }
    return std::fclose(file) == 0 ? 0 : 1;
}
