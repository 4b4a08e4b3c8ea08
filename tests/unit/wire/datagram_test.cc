// SPDX-License-Identifier: Apache-2.0
// Tests packets without the headers that a kernel writes, and the identification that a socket does not show.
#include "wire/datagram.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/pcap.h"
#include "support/random.h"
#include "wire/samples.h"

namespace rove::wire {
namespace {

constexpr size_t kEthernet = 14, kId = 4, kL3Checksum = 10;

// A frame as rove builds it, and its packet up to the ICRC.
struct Made {
    samples::Frame frame;
    uint8_t* l3;
    size_t bytes;
};
constexpr uint8_t kOpcode = opcode(Service::kRc, Op::kSendOnly);

Made made(uint32_t payload_bytes, bool v6 = false) {
    Flow flow = samples::flow(v6, false);
    flow.flow_label = 0;
    const FlowTemplate lower = make_template(flow);
    const samples::Frame payload = samples::random_bytes(payload_bytes, payload_bytes + 1);
    const Headers headers = samples::headers(kOpcode);
    Made made{samples::Frame(frame_bytes(lower, kOpcode, payload_bytes)), nullptr, 0};
    const Segment segment[] = {{payload.data(), payload_bytes}};
    build_frame(made.frame.data(), lower, headers, segment);
    made.l3 = made.frame.data() + kEthernet;
    made.bytes = made.frame.size() - kEthernet - kIcrcBytes;
    return made;
}

// Returns the same packet as a host that numbers its packets would send it.
Made numbered(uint32_t payload_bytes, uint16_t identification) {
    Made packet = made(payload_bytes);
    store_be16(packet.l3 + kId, identification);
    store(packet.l3 + packet.bytes, icrc(packet.l3, packet.bytes));
    return packet;
}

TEST(Datagram, AnIcrcFollowsTheIdentification) {
    Identifications identifications;
    for (const uint32_t bytes : {0, 1, 28, 1024, 4096, 1025, 64}) {
        Made packet = made(bytes);
        for (const uint16_t identification : {1, 0x8000, 0xFFFF, 0x1234, 0}) {
            SCOPED_TRACE(testing::Message() << bytes << " " << identification);
            identifications.change(packet.l3, packet.bytes, identification);
            const Made wanted = numbered(bytes, identification);
            EXPECT_EQ(load<uint32_t>(packet.l3 + packet.bytes), load<uint32_t>(wanted.l3 + wanted.bytes));
            EXPECT_EQ(load_be16(packet.l3 + kId), identification);
            ParsedFrame parsed;
            EXPECT_EQ(parse_frame(packet.frame, parsed), ParseError::kNone);
        }
    }
}

TEST(Datagram, EveryIdentificationIsFound) {
    Identifications identifications;
    for (uint32_t identification = 0; identification < 0x10000; identification += 7) {
        Made packet = numbered(identification % 3 * 500, static_cast<uint16_t>(identification));
        store_be16(packet.l3 + kId, static_cast<uint16_t>(identification ^ 0x55));
        ASSERT_EQ(identifications.find(packet.l3, packet.bytes), identification);
    }
}

// The ICRCs of two identifications always differ, so 2^16 of the 2^32 possible values match some identification.
TEST(Datagram, ADamagedPacketFindsAnIdentificationByAChanceOf2ToThe16) {
    constexpr uint32_t kPackets = 2'000'000;  // 30.5 are expected; 10 to 60 with a probability of 1 - 10^-5
    const Identification identification(made(64).bytes);
    test::Random random(1);
    uint32_t found = 0;
    for (uint32_t i = 0; i < kPackets; ++i)
        found += identification.bits_of(static_cast<uint32_t>(random.next())).has_value();
    EXPECT_GT(found, 10u);
    EXPECT_LT(found, 60u);
}

TEST(Datagram, DamageIsFound) {
    constexpr uint32_t kTries = 200'000;  // 3 of them are expected to match an identification
    Identifications identifications;
    Made packet = numbered(256, 4711);
    const samples::Frame intact = packet.frame;
    test::Random random(3);
    uint32_t taken = 0;
    for (uint32_t i = 0; i < kTries; ++i) {
        for (uint64_t damaged = random.between(1, 8); damaged != 0; --damaged)
            packet.l3[random.between(40, packet.bytes + kIcrcBytes - 1)] ^= static_cast<uint8_t>(1 + random.below(255));
        taken += packet.frame != intact && identifications.find(packet.l3, packet.bytes).has_value();
        std::ranges::copy(intact, packet.frame.begin());
    }
    EXPECT_LT(taken, 15u);
    EXPECT_EQ(identifications.find(packet.l3, packet.bytes), 4711);
}

// rdma_rxe numbers its packets.
TEST(Datagram, SoftRoceIsReadWithoutItsIdentifications) {
    Identifications identifications;
    uint32_t changing = 0;
    for (const char* name : {"rc_ipv4_mtu1024", "rc_ipv4_mtu4096", "ud_ipv4", "cm_rping_ipv4", "rc_loss"}) {
        for (test::Frame frame : test::read_pcap(std::string(ROVE_TEST_DATA) + "/" + name + ".pcap")) {
            ParsedFrame whole;
            ASSERT_EQ(parse_frame(frame, whole), ParseError::kNone);
            const uint16_t sent = whole.flow.ipv4_id;
            uint8_t* const l3 = frame.data() + kEthernet;
            store_be16(l3 + kId, 0);
            EXPECT_EQ(identifications.find(l3, frame.size() - kEthernet - kIcrcBytes), sent);
            changing += sent != 0;
        }
    }
    EXPECT_GT(changing, 200u);
}

TEST(Datagram, HeadersComeBackAsTheyWere) {
    for (const bool v6 : {false, true}) {
        Made sent = made(100, v6);
        const auto found = find_datagram(sent.frame);
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->ipv4, !v6);
        EXPECT_EQ(found->udp_src, 0xC123);
        EXPECT_EQ(found->traffic_class, 26 << 2 | kEcnEct0);
        EXPECT_EQ(found->hop_limit, 63);
        const Flow flow = samples::flow(v6, false);
        EXPECT_TRUE(std::ranges::equal(found->dst(), std::span(flow.dst).last(found->dst().size())));
        Flow known = flow;
        known.flow_label = 0;
        known.udp_src = 0, known.traffic_class = 0, known.hop_limit = 0;
        const FlowTemplate lower = make_template(known);
        samples::Frame back(lower.size);
        back.insert(back.end(), found->datagram.begin(), found->datagram.end());
        write_lower_headers(back.data(), lower,
                            {.udp_src = 0xC123, .traffic_class = found->traffic_class, .hop_limit = 63},
                            found->datagram.size());
        EXPECT_EQ(back, sent.frame);
    }
}

TEST(Datagram, LengthsAreWrittenAnew) {
    for (const bool v6 : {false, true})
        for (const uint32_t bytes : {0, 1, 1024, 4096}) {
            SCOPED_TRACE(testing::Message() << v6 << " " << bytes);
            Made packet = made(bytes, v6);
            const size_t datagram = find_datagram(packet.frame)->datagram.size();
            set_datagram_bytes(packet.l3, 60'000);
            set_udp_checksum(packet.l3, 0x1234);
            EXPECT_NE(packet.frame, made(bytes, v6).frame);
            set_datagram_bytes(packet.l3, datagram);
            EXPECT_EQ(packet.frame, made(bytes, v6).frame);
        }
}

// Completes the checksum as a NIC does, or the kernel in its place.
TEST(Datagram, AUdpChecksumIsCompletedFromTheSumOfThePseudoHeader) {
    for (const bool v6 : {false, true})
        for (const uint32_t bytes : {0, 28, 1024, 4096}) {
            SCOPED_TRACE(testing::Message() << v6 << " " << bytes);
            Made packet = made(bytes, v6);
            uint8_t* const l4 = packet.l3 + (v6 ? 40 : 20);
            const auto complete = [&](uint16_t begun) {
                set_udp_checksum(packet.l3, begun);
                uint64_t sum = 0;
                for (const uint8_t* at = l4; at != packet.frame.data() + packet.frame.size(); at += 2)
                    sum += load<uint16_t>(at);
                while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
                set_udp_checksum(packet.l3, static_cast<uint16_t>(~sum));
                ParsedFrame parsed;
                return parse_frame(packet.frame, parsed);
            };
            EXPECT_EQ(complete(sum_pseudo_header(packet.l3)), ParseError::kNone);
            EXPECT_EQ(complete(static_cast<uint16_t>(sum_pseudo_header(packet.l3) + 1)), ParseError::kUdp);
        }
}

TEST(Datagram, WhatIsNoRoceHasNone) {
    Made packet = made(100);
    packet.frame[12] = 0x08, packet.frame[13] = 0x06;  // ARP
    EXPECT_FALSE(find_datagram(packet.frame).has_value());
    packet = made(100);
    packet.l3[9] = 2;  // IGMP
    EXPECT_FALSE(find_datagram(packet.frame).has_value());
    packet = made(100);
    packet.l3[22] ^= 1;  // another port
    EXPECT_FALSE(find_datagram(packet.frame).has_value());
    packet = made(0);
    for (size_t bytes = 0; bytes < packet.frame.size() - 1; ++bytes)
        EXPECT_FALSE(find_datagram(std::span(packet.frame).first(bytes)).has_value());
}

}  // namespace
}  // namespace rove::wire
