// SPDX-License-Identifier: Apache-2.0
// Tests that parse_frame reads what build_frame writes, for all opcodes, payload sizes, VLAN tags, IP versions and
// gather lists.
#include "wire/frame.h"

#include <gtest/gtest.h>

#include "reference.h"
#include "samples.h"
#include "wire/ack_entry.h"

namespace rove::wire {
namespace {

void expect_equal(const Flow& a, const Flow& b) {
    EXPECT_EQ(a.dst_mac, b.dst_mac);
    EXPECT_EQ(a.src_mac, b.src_mac);
    EXPECT_EQ(a.vlan, b.vlan);
    EXPECT_EQ(a.src, b.src);
    EXPECT_EQ(a.dst, b.dst);
    EXPECT_EQ(a.traffic_class, b.traffic_class);
    EXPECT_EQ(a.hop_limit, b.hop_limit);
    EXPECT_EQ(a.flow_label, b.flow_label);
    EXPECT_EQ(a.udp_src, b.udp_src);
    EXPECT_EQ(a.ipv4_id, b.ipv4_id);
    EXPECT_EQ(a.ipv4_df, b.ipv4_df);
}

void expect_equal(const Bth& a, const Bth& b) {
    EXPECT_EQ(a.opcode, b.opcode);
    EXPECT_EQ(a.flags & ~Bth::kPad, b.flags & ~Bth::kPad);
    EXPECT_EQ(a.pkey, b.pkey);
    EXPECT_EQ(a.ecn, b.ecn);
    EXPECT_EQ(a.dest_qpn, b.dest_qpn);
    EXPECT_EQ(a.ack_req, b.ack_req);
    EXPECT_EQ(a.psn, b.psn);
}

void expect_equal(const MpAckEntry& a, const MpAckEntry& b) {
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_EQ(a.ece, b.ece);
    EXPECT_EQ(a.retx, b.retx);
    EXPECT_EQ(a.response, b.response);
    EXPECT_EQ(a.psn, b.psn);
    EXPECT_EQ(a.vp, b.vp);
    EXPECT_EQ(a.trimmed, b.trimmed);
}

// Expects the extended headers of the opcode to be the same in `a` and `b`.
void expect_equal(const Headers& a, const Headers& b, uint16_t extensions) {
    expect_equal(a.bth, b.bth);
    if (extensions & kHasDeth) {
        EXPECT_EQ(a.deth.qkey, b.deth.qkey);
        EXPECT_EQ(a.deth.src_qpn, b.deth.src_qpn);
    }
    if (extensions & kHasReth) {
        EXPECT_EQ(a.reth.va, b.reth.va);
        EXPECT_EQ(a.reth.rkey, b.reth.rkey);
        EXPECT_EQ(a.reth.length, b.reth.length);
    }
    if (extensions & kHasAtomicEth) {
        EXPECT_EQ(a.atomic.va, b.atomic.va);
        EXPECT_EQ(a.atomic.rkey, b.atomic.rkey);
        EXPECT_EQ(a.atomic.swap_or_add, b.atomic.swap_or_add);
        EXPECT_EQ(a.atomic.compare, b.atomic.compare);
    }
    if (extensions & kHasXrceth) {
        EXPECT_EQ(a.xrc_srqn, b.xrc_srqn);
    }
    if (extensions & kHasFeth) {
        EXPECT_EQ(a.feth.placement, b.feth.placement);
        EXPECT_EQ(a.feth.selectivity, b.feth.selectivity);
    }
    if (extensions & kHasAeth) {
        EXPECT_EQ(a.aeth.syndrome, b.aeth.syndrome);
        EXPECT_EQ(a.aeth.msn, b.aeth.msn);
    }
    if (extensions & kHasAtomicAckEth) {
        EXPECT_EQ(a.atomic_original, b.atomic_original);
    }
    if (extensions & kHasImmediate) {
        EXPECT_EQ(a.immediate, b.immediate);
    }
    if (extensions & kHasIeth) {
        EXPECT_EQ(a.invalidate_rkey, b.invalidate_rkey);
    }
    if (extensions & kHasMpeth) {
        EXPECT_EQ(a.mp.flags, b.mp.flags);
        EXPECT_EQ(a.mp.msn, b.mp.msn);
        EXPECT_EQ(a.mp.ipsn, b.mp.ipsn);
    }
    if (extensions & kHasMpaeth) {
        expect_equal(a.mp_ack.entry, b.mp_ack.entry);
        EXPECT_EQ(a.mp_ack.syndrome, b.mp_ack.syndrome);
        EXPECT_EQ(a.mp_ack.aack_psn, b.mp_ack.aack_psn);
        EXPECT_EQ(a.mp_ack.room, b.mp_ack.room);
        EXPECT_EQ(a.mp_ack.more, b.mp_ack.more);
    }
    if (extensions & kHasHello) {
        EXPECT_EQ(a.hello.version, b.hello.version);
        EXPECT_EQ(a.hello.answer, b.hello.answer);
        EXPECT_EQ(a.hello.mp, b.hello.mp);
        EXPECT_EQ(a.hello.qpn, b.hello.qpn);
        EXPECT_EQ(a.hello.nonce, b.hello.nonce);
        EXPECT_EQ(a.hello.limits, b.hello.limits);
        EXPECT_EQ(a.hello.tick, b.hello.tick);
        EXPECT_EQ(a.hello.echo_tick, b.hello.echo_tick);
    }
}

class RoundTrip : public testing::TestWithParam<std::tuple<bool, bool>> {
  protected:
    const bool v6_ = std::get<0>(GetParam()), vlan_ = std::get<1>(GetParam());
    const Flow flow_ = samples::flow(v6_, vlan_);
};

TEST_P(RoundTrip, EveryOpcodeAndSize) {
    for (int opcode = 0; opcode < 256; ++opcode) {
        const OpcodeInfo& info = opcode_info(static_cast<uint8_t>(opcode));
        if (!info.known) continue;
        const Headers headers = samples::headers(static_cast<uint8_t>(opcode));
        std::vector<size_t> sizes{0};
        if (info.extensions & kHasPayload)
            sizes = {0, 1, 2, 3, 4, 5, 8, 63, 64, 127, 128, 129, 131, 256, 1023, 1024, 4096};
        for (const size_t size : sizes) {
            SCOPED_TRACE(testing::Message() << "opcode " << opcode << ", " << size << " bytes");
            const auto payload = samples::random_bytes(size);
            const auto frame = samples::frame(flow_, headers, payload);
            const size_t l3 = vlan_ ? 18 : 14;
            const size_t padded = (size + 3) / 4 * 4;
            ASSERT_EQ(frame.size(), l3 + (v6_ ? 40 : 20) + 8 + info.header_bytes + padded + 4);
            const std::span covered = std::span(frame).subspan(l3, frame.size() - l3 - 4);
            EXPECT_EQ(load<uint32_t>(frame.data() + frame.size() - 4), reference::icrc(covered));

            ParsedFrame parsed;
            ASSERT_EQ(parse_frame(frame, parsed), ParseError::kNone);
            Flow flow = flow_;
            // Multi-path packets contain the number of their path.
            if (info.extensions & (kHasMpeth | kHasMpaeth)) flow.udp_src = headers.vp;
            expect_equal(parsed.flow, flow);
            expect_equal(parsed.headers, headers, info.extensions);
            EXPECT_EQ(parsed.headers.bth.pad_count(), padded - size);
            EXPECT_EQ(parsed.l3, frame.data() + l3);
            EXPECT_EQ(samples::Frame(parsed.payload, parsed.payload + parsed.payload_bytes), payload);
        }
    }
}

// The frames of a series are the same as frames that are built one by one.
TEST_P(RoundTrip, Series) {
    const FlowTemplate flow = make_template(flow_);
    for (int opcode = 0; opcode < 256; ++opcode) {
        const OpcodeInfo& info = opcode_info(static_cast<uint8_t>(opcode));
        if (!info.known) continue;
        for (const uint32_t size : {0u, 1u, 8u, 64u, 127u, 128u, 129u, 1023u, 4096u}) {
            if (size != 0 && !(info.extensions & kHasPayload)) break;
            SCOPED_TRACE(testing::Message() << "opcode " << opcode << ", " << size << " bytes");
            Headers headers = samples::headers(static_cast<uint8_t>(opcode));
            const FrameSeries series(flow, headers, size);
            for (int i = 0; i < 3; ++i) {
                const auto payload = samples::random_bytes(size);
                samples::Frame made(frame_bytes(flow, static_cast<uint8_t>(opcode), size));
                const BuiltFrame built = series.build_unsealed(made.data(), headers, payload.data());
                EXPECT_EQ(built.bytes, made.size());
                if (built.l3_offset != 0) seal(made.data(), built);
                EXPECT_EQ(made, samples::frame(flow_, headers, payload));
                headers.bth.psn += 0x10203;
                headers.bth.ack_req = !headers.bth.ack_req;
                headers.vp ^= 0x1234;
                headers.mp.msn ^= 0x321;
                headers.mp.flags ^= Mpeth::kLast;
                headers.reth.va += 0x123456789;
                headers.reth.rkey += 77;
                headers.immediate = ~headers.immediate;
            }
        }
    }
}

TEST_P(RoundTrip, GathersSegments) {
    const auto payload = samples::random_bytes(1000);
    const Headers headers = samples::headers(opcode(Service::kRc, Op::kWriteLast));
    for (const size_t total : {size_t{100}, size_t{101}, size_t{999}, size_t{1000}}) {
        const auto whole = samples::frame(flow_, headers, {payload.begin(), payload.begin() + total});
        const std::vector<size_t> cuts{0, 0, 1, 4, 33, 50, 64, 99, total};
        std::vector<Segment> segments{{nullptr, 0}};
        for (size_t i = 1; i < cuts.size(); ++i)
            segments.push_back({payload.data() + cuts[i - 1], static_cast<uint32_t>(cuts[i] - cuts[i - 1])});
        samples::Frame gathered(whole.size());
        EXPECT_EQ(build_frame(gathered.data(), make_template(flow_), headers, segments), whole.size());
        EXPECT_EQ(gathered, whole);
    }
}

TEST_P(RoundTrip, EthernetPaddingIsIgnored) {
    auto frame = samples::frame(flow_, samples::headers(opcode(Service::kRc, Op::kSendOnly)), {1, 2, 3});
    frame.resize(frame.size() + 30, 0xEE);
    ParsedFrame parsed;
    ASSERT_EQ(parse_frame(frame, parsed), ParseError::kNone);
    EXPECT_EQ(parsed.payload_bytes, 3u);
}

TEST_P(RoundTrip, SwitchesMayChangeEcnAndHops) {
    auto frame = samples::frame(flow_, samples::headers(opcode(Service::kRc, Op::kSendOnly)), {1, 2, 3});
    uint8_t* const l3 = frame.data() + (vlan_ ? 18 : 14);
    if (v6_) {
        l3[1] |= kEcnCe << 4;
        l3[7] -= 3;
    } else {
        l3[1] |= kEcnCe;
        l3[8] -= 3;
        store<uint16_t>(l3 + 10, 0);
        uint32_t sum = 0;
        for (int i = 0; i < 20; i += 2) sum += load_be16(l3 + i);
        store_be16(l3 + 10, static_cast<uint16_t>(~(sum + (sum >> 16))));
    }
    ParsedFrame parsed;
    ASSERT_EQ(parse_frame(frame, parsed), ParseError::kNone);
    EXPECT_TRUE(parsed.ce());
    EXPECT_EQ(parsed.flow.hop_limit, flow_.hop_limit - 3);
}

INSTANTIATE_TEST_SUITE_P(Flows, RoundTrip, testing::Combine(testing::Bool(), testing::Bool()), [](const auto& info) {
    return std::string(std::get<0>(info.param) ? "ipv6" : "ipv4") + (std::get<1>(info.param) ? "_vlan" : "");
});

// ICRCs are computed in groups of four where frames have the same length and IP version. Each frame still gets its own
// verdict.
TEST(Bursts, AreSealedAndVerifiedAsOneByOne) {
    struct Kind {
        bool v6;
        uint32_t bytes;
    };
    const std::vector<Kind> kinds{{false, 8}, {false, 8}, {false, 8}, {false, 8},  {false, 8}, {false, 8},
                                  {true, 8},  {true, 8},  {true, 8},  {false, 28}, {true, 8},  {true, 8},
                                  {true, 8},  {true, 8},  {true, 8},  {false, 0}};
    std::vector<samples::Frame> frames, good;
    std::vector<PendingIcrc> unsealed;
    for (const auto& [v6, bytes] : kinds) {
        const Flow flow = samples::flow(v6, false);
        const Headers headers = samples::headers(opcode(Service::kRc, Op::kSendOnly));
        const auto payload = samples::random_bytes(bytes);
        const Segment segment{payload.data(), bytes};
        samples::Frame& frame = frames.emplace_back(frame_bytes(make_template(flow), headers.bth.opcode, bytes));
        const BuiltFrame built = build_unsealed(frame.data(), make_template(flow), headers, {&segment, 1});
        unsealed.push_back({frame.data() + built.l3_offset, uint32_t{built.bytes} - built.l3_offset - 4u});
        good.push_back(samples::frame(flow, headers, payload));
    }
    seal(unsealed);
    EXPECT_EQ(frames, good);
    for (size_t bad = 0; bad <= frames.size(); ++bad) {
        if (bad != frames.size()) frames[bad].back() ^= 1;
        std::vector<ParsedFrame> parsed(frames.size());
        std::vector<ParsedFrame*> all;
        for (size_t i = 0; i < frames.size(); ++i) {
            ASSERT_EQ(parse_headers(frames[i], parsed[i]), ParseError::kNone);
            all.push_back(&parsed[i]);
        }
        verify(all);
        for (size_t i = 0; i < frames.size(); ++i) EXPECT_EQ(parsed[i].verified, i != bad) << i << ", bad " << bad;
        if (bad != frames.size()) frames[bad].back() ^= 1;
    }
}

TEST(Opcodes, Known) {
    size_t known = 0;
    for (const OpcodeInfo& info : opcode_table()) known += info.known;
    EXPECT_EQ(known, 25u + 12u + 2u + 1u + 25u + 25u + 1u);  // RC, UC, UD, CNP, XRC, multi-path, HELLO
    EXPECT_FALSE(opcode_info(0x15).known);                   // reserved
    EXPECT_FALSE(opcode_info(0x2C).known);                   // UC has no READ
    EXPECT_FALSE(opcode_info(0x44).known);                   // RD
    EXPECT_FALSE(opcode_info(0xB5).known);                   // reserved
    EXPECT_EQ(opcode_info(opcode(Service::kRc, Op::kWriteOnlyImm)).header_bytes, 12 + 16 + 4);
    EXPECT_EQ(opcode_info(opcode(Service::kUd, Op::kSendOnlyImm)).header_bytes, 12 + 8 + 4);
    EXPECT_EQ(opcode_info(kOpcodeCnp).header_bytes, 12 + 16);
    EXPECT_EQ(opcode_info(opcode(Service::kXrc, Op::kWriteOnlyImm)).header_bytes, 12 + 4 + 16 + 4);
    EXPECT_EQ(opcode_info(opcode(Service::kXrc, Op::kSendMiddle)).header_bytes, 12 + 4);
    EXPECT_EQ(opcode_info(opcode(Service::kXrc, Op::kAck)).header_bytes, 12 + 4);  // AETH
    EXPECT_EQ(opcode_info(opcode(Service::kMp, Op::kWriteMiddle)).header_bytes, 12 + 8 + 16);
    EXPECT_EQ(opcode_info(opcode(Service::kMp, Op::kSendMiddle)).header_bytes, 12 + 8);
    EXPECT_EQ(opcode_info(opcode(Service::kMp, Op::kAck)).header_bytes, 12 + 12);
    EXPECT_EQ(opcode_info(kOpcodeHello).header_bytes, 12 + 24);
}

// The bytes as docs/protocol/multipath.md draws them. A round trip alone would not detect two fields that are swapped
// at both ends.
TEST(MultiPath, HeadersOnTheWire) {
    const Flow flow = samples::flow(false, false);
    constexpr size_t kBth = 14 + 20 + 8, kBehindBth = kBth + 12;
    Headers h = samples::headers(opcode(Service::kMp, Op::kSendMiddle));
    h.mp = {.flags = Mpeth::kRetx | Mpeth::kLast, .msn = 0x010203, .ipsn = 0x040506};
    samples::Frame frame = samples::frame(flow, h, {});
    EXPECT_EQ(samples::Frame(frame.begin() + kBehindBth, frame.begin() + kBehindBth + 8),
              (samples::Frame{0xA0, 1, 2, 3, 0, 4, 5, 6}));
    EXPECT_EQ(load_be16(frame.data() + kBth - 8), h.vp);

    h = samples::headers(opcode(Service::kMp, Op::kAck));
    h.mp_ack = {
        .entry = {.kind = MpAck::kSack, .ece = true, .retx = false, .response = true, .psn = 0x0A0B0C, .vp = 0xC456},
        .syndrome = 0x62,
        .aack_psn = 0x0D0E0F,
        .room = 0x2F,
        .more = 1};
    samples::Frame entry(kMpAckEntryBytes);
    emit_ack_entry(entry.data(),
                   {.kind = MpAck::kErr, .ece = false, .retx = true, .response = false, .psn = 7, .vp = 0xC789});
    EXPECT_EQ(entry, (samples::Frame{0xD0, 0, 0, 7, 0xC7, 0x89, 0, 0}));
    expect_equal(parse_ack_entry(entry.data()),
                 {.kind = MpAck::kErr, .ece = false, .retx = true, .response = false, .psn = 7, .vp = 0xC789});
    const MpAckEntry trimmed{
        .kind = MpAck::kNack, .ece = false, .retx = false, .response = false, .psn = 8, .vp = 0xC78A, .trimmed = true};
    emit_ack_entry(entry.data(), trimmed);
    EXPECT_EQ(entry, (samples::Frame{0x84, 0, 0, 8, 0xC7, 0x8A, 0, 0}));
    expect_equal(parse_ack_entry(entry.data()), trimmed);
    frame = samples::frame(flow, h, entry);
    EXPECT_EQ(samples::Frame(frame.begin() + kBehindBth, frame.begin() + kBehindBth + 12),
              (samples::Frame{0x68, 0x0A, 0x0B, 0x0C, 0x62, 0x0D, 0x0E, 0x0F, 0xC4, 0x56, 0x2F, 1}));
    EXPECT_EQ(load_be16(frame.data() + kBth - 8), h.vp);
}

// Returns a HELLO with `more` bytes after its fields. A negative number leaves out that many of its last bytes.
samples::Frame hello_frame(int more) {
    Headers h = samples::headers(kOpcodeHello);
    h.hello = {.version = kMpVersion,
               .answer = true,
               .mp = false,
               .qpn = 0x010203,
               .nonce = 0x04050607,
               .limits = {.reorder_packets = 0x0809, .early_kib = 0x0A0B},
               .tick = 0x0C0D0E0F,
               .echo_tick = 0x10111213};
    const Flow flow = samples::flow(false, false);
    samples::Frame frame = samples::frame(flow, h, samples::Frame(static_cast<size_t>(std::max(more, 0)), 0x77));
    if (more >= 0) return frame;
    frame.resize(frame.size() - static_cast<size_t>(-more));
    constexpr size_t kL3 = 14, kL4 = kL3 + 20;
    const auto ip_bytes = static_cast<uint16_t>(frame.size() - kL3);
    const uint32_t sum = load_be16(frame.data() + kL3 + 10) + static_cast<uint32_t>(-more);  // RFC 1624
    store_be16(frame.data() + kL3 + 10, static_cast<uint16_t>(sum + (sum >> 16)));
    store_be16(frame.data() + kL3 + 2, ip_bytes);
    store_be16(frame.data() + kL4 + 4, static_cast<uint16_t>(ip_bytes - 20));
    samples::seal(frame, kL3);
    return frame;
}

TEST(Hello, OnTheWire) {
    constexpr size_t kBehindBth = 14 + 20 + 8 + 12;
    const samples::Frame frame = hello_frame(0);
    EXPECT_EQ(samples::Frame(frame.begin() + kBehindBth, frame.end() - kIcrcBytes),
              (samples::Frame{2,    1,    0,    0,    0,    1,    2,    3,    4,    5,    6,    7,
                              0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12, 0x13}));
}

// A later version may append fields. A frame without all fields of this one is no HELLO.
TEST(Hello, LongerAndShorterFrames) {
    ParsedFrame parsed;
    for (const int more : {0, 4, 40}) {
        ASSERT_EQ(parse_frame(hello_frame(more), parsed), ParseError::kNone) << more;
        EXPECT_EQ(parsed.headers.hello.nonce, 0x04050607u);
        EXPECT_EQ(parsed.headers.hello.echo_tick, 0x10111213u);
    }
    for (const int more : {-1, -4, -12, -24})
        EXPECT_EQ(parse_frame(hello_frame(more), parsed), ParseError::kTruncated) << more;
}

TEST(MultiPath, RoomIsRoundedDownAndCapped) {
    EXPECT_EQ(encode_room(0), 1) << "0 makes no statement";
    EXPECT_EQ(encode_room(7), 1);
    EXPECT_EQ(encode_room(8), 2);
    EXPECT_EQ(encode_room(127), 16);
    EXPECT_EQ(encode_room(1023), 128);
    EXPECT_EQ(encode_room(1024), 129);
    EXPECT_EQ(encode_room(9087), 254);
    EXPECT_EQ(encode_room(9088), 255);
    EXPECT_EQ(encode_room(UINT32_MAX), 255);
    EXPECT_EQ(decode_room(1), 1u) << "the expected packet is always welcome";
    for (uint32_t packets = 8; packets <= 1024; packets += 8) EXPECT_EQ(decode_room(encode_room(packets)), packets);
    for (uint32_t packets = 1024; packets <= 9088; packets += 64) EXPECT_EQ(decode_room(encode_room(packets)), packets);
}

// MRC (OCP 1.0) uses opcodes from 0xC6 to 0xDE on RoCEv2's port, with other headers.
TEST(Opcodes, ThoseOfMrcAreUnknown) {
    const Flow flow = samples::flow(false, false);
    for (unsigned opcode = 0xC0; opcode <= 0xDF; ++opcode) {
        EXPECT_FALSE(opcode_info(static_cast<uint8_t>(opcode)).known) << opcode;
        samples::Frame frame = samples::frame(flow, samples::headers(kOpcodeHello), samples::Frame(64));
        frame[14 + 20 + 8] = static_cast<uint8_t>(opcode);
        samples::seal(frame, 14);
        ParsedFrame parsed;
        EXPECT_EQ(parse_frame(frame, parsed), ParseError::kOpcode) << opcode;
    }
    EXPECT_EQ(opcode(Service::kMp, Op::kSendFirst), 0xE0);
    EXPECT_EQ(opcode(Service::kMp, Op::kAck), 0xF1);
}

// Annex A14: the opcodes start at 0xA0, and XRCETH follows BTH, before all other extended headers.
TEST(Xrc, HeadersOnTheWire) {
    constexpr size_t kBth = 14 + 20 + 8, kBehindBth = kBth + 12;
    Headers h = samples::headers(opcode(Service::kXrc, Op::kReadRequest));
    h.reth = {.va = 0x0102030405060708, .rkey = 0x090A0B0C, .length = 0x0D0E0F10};
    h.xrc_srqn = 0xABCDEF;
    const samples::Frame frame = samples::frame(samples::flow(false, false), h, {});
    EXPECT_EQ(frame[kBth], 0xAC);
    EXPECT_EQ(samples::Frame(frame.begin() + kBehindBth, frame.begin() + kBehindBth + 20),
              (samples::Frame{0, 0xAB, 0xCD, 0xEF, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}));
}

TEST(Gids, Ipv4Mapped) {
    EXPECT_TRUE(is_ipv4_mapped({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1}));
    EXPECT_FALSE(is_ipv4_mapped({}));
    EXPECT_FALSE(is_ipv4_mapped({0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1}));
}

}  // namespace
}  // namespace rove::wire
