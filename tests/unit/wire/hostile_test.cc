// SPDX-License-Identifier: Apache-2.0
// Tests frames that parse_frame must refuse, each with its own error, and frames that are truncated and changed at
// random. Inputs are heap copies of the exact size, so that AddressSanitizer detects a read beyond them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>

#include "samples.h"
#include "support/pcap.h"

namespace rove::wire {
namespace {

using samples::Frame;

ParseError parse_exact(std::span<const uint8_t> frame) {
    const auto copy = std::make_unique<uint8_t[]>(frame.size());
    std::ranges::copy(frame, copy.get());
    ParsedFrame parsed;
    const ParseError error = parse_frame({copy.get(), frame.size()}, parsed);
    if (error == ParseError::kNone) {
        EXPECT_GE(parsed.payload, copy.get());
        EXPECT_LE(parsed.payload + parsed.payload_bytes + kIcrcBytes, copy.get() + frame.size());
    }
    return error;
}

void fix_ipv4_checksum(Frame& frame) {
    uint8_t* const l3 = frame.data() + 14;
    store<uint16_t>(l3 + 10, 0);
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2) sum += load_be16(l3 + i);
    store_be16(l3 + 10, static_cast<uint16_t>(~((sum & 0xFFFF) + (sum >> 16))));
}

// Parses a valid packet of `payload` bytes after `change`. Checksum and ICRC are made right again.
ParseError changed(bool v6, const std::function<void(Frame&)>& change, Op op = Op::kSendOnly, size_t payload = 8) {
    auto frame = samples::frame(samples::flow(v6, false), samples::headers(opcode(Service::kRc, op)),
                                samples::random_bytes(payload));
    change(frame);
    if (!v6) fix_ipv4_checksum(frame);
    samples::seal(frame, 14);
    return parse_exact(frame);
}

constexpr size_t kIp = 14, kUdp4 = 34, kUdp6 = 54, kBth4 = 42, kBth6 = 62;

TEST(Refuses, NotRoce) {
    EXPECT_EQ(changed(false, [](Frame& f) { store_be16(&f[12], 0x0806); }), ParseError::kNotRoce);
    EXPECT_EQ(changed(false, [](Frame& f) { f[kIp + 9] = 6; }), ParseError::kNotRoce);
    EXPECT_EQ(changed(true, [](Frame& f) { f[kIp + 6] = 58; }), ParseError::kNotRoce);
    EXPECT_EQ(changed(false, [](Frame& f) { store_be16(&f[kUdp4 + 2], 53); }), ParseError::kNotRoce);
    EXPECT_EQ(changed(true, [](Frame& f) { store_be16(&f[kUdp6 + 2], 53); }), ParseError::kNotRoce);
    EXPECT_EQ(changed(false, [](Frame& f) { store_be16(&f[kIp + 6], 100); }), ParseError::kNotRoce);  // later fragment
}

TEST(Refuses, Truncated) {
    EXPECT_EQ(parse_exact({}), ParseError::kTruncated);
    EXPECT_EQ(changed(false, [](Frame& f) { store_be16(&f[kIp + 2], 500); }), ParseError::kTruncated);
    EXPECT_EQ(changed(true, [](Frame& f) { store_be16(&f[kIp + 4], 500); }), ParseError::kTruncated);
    EXPECT_EQ(changed(false, [](Frame& f) { store_be16(&f[kIp + 2], 43), store_be16(&f[kUdp4 + 4], 23); }),
              ParseError::kTruncated);
    EXPECT_EQ(changed(false, [](Frame& f) { f[kBth4] = opcode(Service::kRc, Op::kWriteOnly); }),
              ParseError::kTruncated);
    EXPECT_EQ(changed(true, [](Frame& f) { f[kBth6] = opcode(Service::kRc, Op::kFetchAdd); }), ParseError::kTruncated);
}

TEST(Refuses, IpHeader) {
    EXPECT_EQ(changed(false, [](Frame& f) { f[kIp] = 0x55; }), ParseError::kIpHeader);
    EXPECT_EQ(changed(false, [](Frame& f) { f[kIp] = 0x44; }), ParseError::kIpHeader);
    EXPECT_EQ(changed(true, [](Frame& f) { f[kIp] = 0x40; }), ParseError::kIpHeader);
    EXPECT_EQ(changed(true,
                      [](Frame& f) {  // IPv4-mapped source in an IPv6 header
                          std::fill_n(&f[kIp + 8], 10, uint8_t{0});
                          f[kIp + 18] = f[kIp + 19] = 0xFF;
                      }),
              ParseError::kIpHeader);
    EXPECT_EQ(changed(false, [](Frame& f) { store_be16(&f[kIp + 6], 0x2000); }), ParseError::kIpHeader);  // fragment
    // An IP header with 4 bytes of options.
    EXPECT_EQ(changed(false,
                      [](Frame& f) {
                          f.insert(f.begin() + kUdp4, {1, 1, 1, 0});
                          f[kIp] = 0x46;
                          store_be16(&f[kIp + 2], static_cast<uint16_t>(f.size() - kIp));
                      }),
              ParseError::kIpHeader);
    auto frame = samples::frame(samples::flow(false, false), samples::headers(0x04), {});
    frame[kIp + 10] ^= 1;
    EXPECT_EQ(parse_exact(frame), ParseError::kIpHeader);
}

TEST(Refuses, Udp) {
    EXPECT_EQ(changed(false, [](Frame& f) { f[kUdp4 + 5] -= 4; }), ParseError::kUdp);
    EXPECT_EQ(changed(true, [](Frame& f) { f[kUdp6 + 5] += 4; }), ParseError::kUdp);
    EXPECT_EQ(changed(false, [](Frame& f) { f[kUdp4 + 7] = 1; }), ParseError::kUdp);
    EXPECT_EQ(changed(true, [](Frame& f) { f[kUdp6 + 7] = 1; }), ParseError::kUdp);
}

TEST(Refuses, BthVersion) {
    EXPECT_EQ(changed(false, [](Frame& f) { f[kBth4 + 1] |= 1; }), ParseError::kBthVersion);
    EXPECT_EQ(changed(true, [](Frame& f) { f[kBth6 + 1] |= 8; }), ParseError::kBthVersion);
}

TEST(Refuses, Opcode) {
    for (const uint8_t bad : {0x15, 0x18, 0x1F, 0x2C, 0x44, 0x60, 0x80, 0xB5, 0xC0, 0xC6, 0xD1, 0xDF})
        EXPECT_EQ(changed(false, [bad](Frame& f) { f[kBth4] = bad; }), ParseError::kOpcode) << int{bad};
}

TEST(Refuses, Padding) {
    EXPECT_EQ(changed(
                  false, [](Frame& f) { f[kBth4 + 1] |= 0x10; }, Op::kSendOnly, 0),
              ParseError::kPadding);
    EXPECT_EQ(changed(
                  false, [](Frame& f) { f[kBth4 + 1] |= 0x10; }, Op::kAck, 0),
              ParseError::kPadding);
    EXPECT_EQ(changed(false, [](Frame& f) { f[kBth4] = opcode(Service::kRc, Op::kAck); }), ParseError::kPadding);
    EXPECT_EQ(changed(false,
                      [](Frame& f) {
                          f.push_back(0);
                          store_be16(&f[kIp + 2], static_cast<uint16_t>(f.size() - kIp));
                          store_be16(&f[kUdp4 + 4], static_cast<uint16_t>(f.size() - kUdp4));
                      }),
              ParseError::kPadding);
}

TEST(Refuses, Icrc) {
    const auto frame = samples::frame(samples::flow(false, false), samples::headers(0x04), samples::random_bytes(70));
    for (size_t at = kBth4 + 5; at < frame.size(); ++at) {
        auto bad = frame;
        bad[at] ^= 0x40;
        EXPECT_EQ(parse_exact(bad), ParseError::kIcrc) << at;
    }
}

TEST(Accepts, RightUdpChecksum) {
    for (const bool v6 : {false, true}) {
        for (const size_t payload : {size_t{0}, size_t{8}, size_t{1021}}) {
            EXPECT_EQ(changed(
                          v6,
                          [v6](Frame& f) {
                              // The checksum covers the ICRC. The ICRC treats the checksum as ones, so it can be
                              // computed first.
                              samples::seal(f, 14);
                              const size_t udp = v6 ? kUdp6 : kUdp4, address = v6 ? kIp + 8 : kIp + 12;
                              uint64_t sum = 17 + f.size() - udp;
                              for (size_t at = address; at < udp; at += 2) sum += load_be16(&f[at]);
                              for (size_t at = udp; at < f.size(); at += 2) sum += load_be16(&f[at]);
                              while (sum >> 16) sum = (sum & 0xFFFF) + (sum >> 16);
                              store_be16(&f[udp + 6], static_cast<uint16_t>(~sum));
                          },
                          Op::kSendOnly, payload),
                      ParseError::kNone);
        }
    }
}

class Mutations : public testing::TestWithParam<const char*> {};

TEST_P(Mutations, NeverReadOutside) {
    const auto frames = test::read_pcap(std::string(ROVE_TEST_DATA) + "/" + GetParam() + ".pcap");
    std::mt19937 random(7);
    size_t accepted = 0;
    for (int round = 0; round < 200; ++round) {
        for (const Frame& original : frames) {
            Frame frame(original);
            if (round % 2 == 0) frame.resize(random() % frame.size());
            for (unsigned change = random() % 4; change && !frame.empty(); --change) {
                const size_t within = random() % 4 ? std::min<size_t>(frame.size(), 90) : frame.size();
                frame[random() % within] = static_cast<uint8_t>(random());
            }
            if (round % 4 == 3 && frame.size() > 70) samples::seal(frame, 14);
            accepted += parse_exact(frame) == ParseError::kNone;
        }
    }
    EXPECT_GT(accepted, 0u);
}

Frame rebuilt(const ParsedFrame& parsed) {
    const FlowTemplate flow = make_template(parsed.flow);
    Frame frame(frame_bytes(flow, parsed.headers.bth.opcode, parsed.payload_bytes));
    const Segment segment{parsed.payload, parsed.payload_bytes};
    build_frame(frame.data(), flow, parsed.headers, {&segment, 1});
    return frame;
}

// A header prediction from the frame before, right or wrong, does not change how a frame is parsed.
TEST_P(Mutations, KnownFlowChangesNothing) {
    const auto frames = test::read_pcap(std::string(ROVE_TEST_DATA) + "/" + GetParam() + ".pcap");
    std::mt19937 random(11);
    ParsedFrame kept;
    HeaderPrediction flow;
    size_t again_count = 0;
    for (int round = 0; round < 400; ++round) {
        // Mostly repeats the same frame, with other bits changed.
        for (size_t next = 0; next < frames.size(); next += random() % 4 == 0) {
            Frame frame = frames[next];
            for (unsigned change = random() % 3; change; --change)
                frame[random() % std::min<size_t>(frame.size(), 66)] ^= static_cast<uint8_t>(1u << random() % 8);
            if (random() % 2 && frame[12] == 8) fix_ipv4_checksum(frame);
            if (random() % 4 == 0) frame.resize(random() % frame.size());
            const auto copy = std::make_unique<uint8_t[]>(frame.size());
            std::ranges::copy(frame, copy.get());
            const std::span<const uint8_t> exact(copy.get(), frame.size());
            ParsedFrame fresh;
            bool again;
            const ParseError error = parse_headers(exact, fresh);
            ASSERT_EQ(parse_headers(exact, kept, flow, &again), error);
            again_count += again;
            if (error != ParseError::kNone) continue;
            ASSERT_EQ(make_template(kept.flow).bytes, make_template(fresh.flow).bytes);
            ASSERT_EQ(kept.flow.vlan, fresh.flow.vlan);
            ASSERT_EQ(kept.payload, fresh.payload);
            ASSERT_EQ(kept.payload_bytes, fresh.payload_bytes);
            ASSERT_EQ(rebuilt(kept), rebuilt(fresh));
            ASSERT_EQ(kept.headers.vp, fresh.headers.vp);
            ASSERT_EQ(verify(kept), verify(fresh));
        }
    }
    const bool usual = frames.front()[12] == 0x08;
    EXPECT_EQ(again_count > 0, usual);  // only IPv4; the UDP checksums of the captures are 0
}

TEST_P(Mutations, EveryTruncationIsRefused) {
    for (const Frame& frame : test::read_pcap(std::string(ROVE_TEST_DATA) + "/" + GetParam() + ".pcap")) {
        for (size_t bytes = 0; bytes < frame.size(); bytes += bytes < 100 ? 1 : 97)
            EXPECT_EQ(parse_exact(std::span(frame).first(bytes)), ParseError::kTruncated) << bytes;
    }
}

INSTANTIATE_TEST_SUITE_P(Golden, Mutations,
                         testing::Values("cm_rping_ipv4", "rc_ipv4_mtu1024", "rc_ipv6_mtu1024", "rc_nak", "ud_ipv4"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ParseErrors, HaveNames) {
    EXPECT_STREQ(to_string(ParseError::kNone), "none");
    EXPECT_STREQ(to_string(ParseError::kIcrc), "icrc");
}

}  // namespace
}  // namespace rove::wire
