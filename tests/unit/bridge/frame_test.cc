// SPDX-License-Identifier: Apache-2.0
// Tests how a bridge parses and edits frames, including frames whose length fields are wrong.
#include "bridge/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "link/neighbour_packets.h"
#include "packets.h"

namespace rove::bridge {
namespace {

using Kind = Frame::Kind;

const wire::MacAddress kA = mac("02:00:00:00:00:0a"), kB = mac("02:00:00:00:00:0b"), kC = mac("02:00:00:00:00:0c");

TEST(FrameTest, RoceOfBothFamiliesAndWithATag) {
    for (const auto& [dst, src] : {std::pair("10.0.0.2", "10.0.0.1"), std::pair("fd00::2", "fd00::1")}) {
        for (const std::optional<uint16_t> vlan : {std::optional<uint16_t>(), std::optional<uint16_t>(0x6007)}) {
            std::vector<uint8_t> bytes = roce(kA, kB, dst, src, 1000, vlan);
            const size_t l3_bytes = bytes.size() - (vlan ? 18 : 14);
            bytes.resize(bytes.size() + 9);  // padding by Ethernet
            const Frame frame = parsed(bytes);
            EXPECT_EQ(frame.kind, Kind::kRoce);
            EXPECT_EQ(frame.dst_mac, kA);
            EXPECT_EQ(frame.src_mac, kB);
            EXPECT_EQ(frame.vlan, vlan);
            EXPECT_EQ(frame.dst, gid(dst));
            EXPECT_EQ(frame.src, gid(src));
            EXPECT_EQ(frame.l3_bytes, l3_bytes);
        }
    }
}

TEST(FrameTest, KindsByProtocol) {
    const auto kind = [](std::string_view dst, uint8_t protocol, std::vector<uint8_t> payload) {
        return parsed(other(kA, kB, dst, wire::is_ipv4_mapped(gid(dst)) ? "10.0.0.1" : "fe80::1", protocol, payload))
            .kind;
    };
    EXPECT_EQ(kind("10.0.0.2", 1, {8}), Kind::kEcho);
    EXPECT_EQ(kind("10.0.0.2", 1, {0}), Kind::kEcho);
    EXPECT_EQ(kind("10.0.0.2", 1, {5}), Kind::kOther) << "a redirect";
    EXPECT_EQ(kind("224.0.0.22", 2, {0x22}), Kind::kReport);
    EXPECT_EQ(kind("224.0.0.1", 2, {0x11}), Kind::kQuery);
    EXPECT_EQ(kind("224.0.0.1", 2, {0x14}), Kind::kOther);
    EXPECT_EQ(kind("10.0.0.2", 6, {}), Kind::kOther) << "TCP";
    EXPECT_EQ(kind("10.0.0.2", 17, {0x12, 0xB7, 0, 53}), Kind::kOther) << "UDP to another port, from RoCE's";
    EXPECT_EQ(kind("fd00::2", 58, {128}), Kind::kEcho);
    EXPECT_EQ(kind("fd00::2", 58, {135}), Kind::kDiscovery);
    EXPECT_EQ(kind("fd00::2", 58, {137}), Kind::kOther) << "a redirect";
    EXPECT_EQ(kind("ff02::1", 58, {134}), Kind::kOther) << "a router's advertisement";
    EXPECT_EQ(kind("ff02::16", 58, {143}), Kind::kOther) << "a report without Router Alert";
    EXPECT_EQ(kind("ff02::16", 0, {58, 0, 5, 2, 0, 0, 1, 0, 143}), Kind::kReport);
    EXPECT_EQ(kind("ff02::1", 0, {58, 0, 5, 2, 0, 0, 1, 0, 130}), Kind::kQuery);
    EXPECT_EQ(kind("ff02::1", 0, {58, 0, 5, 2, 0, 0, 1, 0, 136}), Kind::kOther) << "an advertisement behind options";
    EXPECT_EQ(kind("ff02::1", 0, {17, 0, 5, 2, 0, 0, 1, 0, 0}), Kind::kOther);
    EXPECT_EQ(kind("fd00::2", 44, {}), Kind::kOther) << "a fragment";
    std::vector<uint8_t> fragment = roce(kA, kB, "10.0.0.2", "10.0.0.1");
    fragment[14 + 6] = 0x20;  // the flag MF (more fragments)
    EXPECT_EQ(parsed(fragment).kind, Kind::kOther);
    std::array<uint8_t, datapath::kMaxDiscoveryBytes> arp;
    const size_t bytes = datapath::build_solicit(arp.data(), {kB, gid("10.0.0.1"), {}}, gid("10.0.0.2"));
    EXPECT_EQ(parse({arp.data(), bytes}, bytes).kind, Kind::kDiscovery);
}

TEST(FrameTest, LengthsThatAreNotTrueAreMalformed) {
    for (const auto& [dst, src, at] : {std::tuple("10.0.0.2", "10.0.0.1", 2), std::tuple("fd00::2", "fd00::1", 4)}) {
        std::vector<uint8_t> longer = roce(kA, kB, dst, src, 1000), none = longer;
        longer[14 + static_cast<size_t>(at)] += 4;
        EXPECT_EQ(parsed(longer).kind, Kind::kMalformed);
        none[14 + static_cast<size_t>(at)] = none[15 + static_cast<size_t>(at)] = 0;
        EXPECT_EQ(parsed(none).kind, Kind::kMalformed);
        const std::vector<uint8_t> whole = roce(kA, kB, dst, src, 8);
        for (size_t bytes = 0; bytes < whole.size(); ++bytes)
            EXPECT_EQ(parsed({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes)}).kind, Kind::kMalformed)
                << bytes;
    }
    std::vector<uint8_t> short_header = roce(kA, kB, "10.0.0.2", "10.0.0.1");
    short_header[14] = 0x44;
    EXPECT_EQ(parsed(short_header).kind, Kind::kMalformed);
    std::vector<uint8_t> long_header = roce(kA, kB, "10.0.0.2", "10.0.0.1");
    long_header[14] = 0x4F;  // 60 bytes of header, so the bytes after it are no UDP header with RoCE's port
    EXPECT_NE(parsed(long_header).kind, Kind::kRoce);
}

// Parses random bytes. ASan reports any read beyond the head, and the lengths in the result must fit the frame.
TEST(FrameTest, AnyBytes) {
    std::mt19937_64 random(29);
    for (int n = 0; n < 200'000; ++n) {
        const size_t frame_bytes = random() % 200;
        std::vector<uint8_t> head(std::min(frame_bytes, kHeadBytes));
        for (uint8_t& byte : head) byte = static_cast<uint8_t>(random());
        if (head.size() > 14) {
            constexpr uint8_t kTypes[][2] = {{0x08, 0x00}, {0x86, 0xDD}, {0x81, 0x00}, {0x08, 0x06}};
            std::copy_n(kTypes[random() % 4], 2, &head[12]);
            if (random() % 2 == 0) head[14] = random() % 2 == 0 ? 0x45 : 0x60;
        }
        const Frame frame = parse(head, frame_bytes);
        if (frame.kind == Kind::kMalformed || frame.kind == Kind::kOther || frame.kind == Kind::kDiscovery) continue;
        EXPECT_LE(frame.l3_offset + frame.l3_bytes, frame_bytes);
        EXPECT_GT(frame.l3_bytes, 20u);
    }
}

TEST(FrameTest, TheHeaderOfTheLinkIsReplaced) {
    for (const uint32_t payload : {0u, 8u, 1000u, 4096u}) {
        for (const bool tagged : {false, true}) {
            const std::optional<uint16_t> came = tagged ? std::optional<uint16_t>(7) : std::nullopt,
                                          goes = tagged ? std::nullopt : std::optional<uint16_t>(9);
            std::vector<uint8_t> bytes = roce(kA, kB, "10.0.0.2", "10.0.0.1", payload, came);
            const std::vector<uint8_t> head(bytes.begin(),
                                            bytes.begin() + static_cast<ptrdiff_t>(std::min(bytes.size(), kHeadBytes)));
            const Frame frame = parse(head, bytes.size());
            // The owner of the memory changes the source address after the frame was parsed.
            bytes[frame.l3_offset + 12] ^= 0xFF;
            std::vector<uint8_t> out(kLinkBytes + frame.l3_bytes);
            out.resize(edit(out.data(), frame, {.dst = kC, .src = kA, .vlan = goes}, head, bytes.data()));
            EXPECT_EQ(out, roce(kC, kA, "10.0.0.2", "10.0.0.1", payload, goes)) << payload;
            wire::ParsedFrame whole;
            EXPECT_EQ(wire::parse_frame(out, whole), wire::ParseError::kNone) << "the ICRC is still right";
        }
    }
}

}  // namespace
}  // namespace rove::bridge
