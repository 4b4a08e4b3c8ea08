// SPDX-License-Identifier: Apache-2.0
// Tests real bytes: a frame stays valid with a congestion mark, and every flipped bit is detected. Also tests the order
// in which packets leave a shortest-first queue.
#include "fabric/packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "fabric/random.h"

namespace rove::fabric {
namespace {

struct PacketTest : ::testing::Test {
    // Builds a WRITE of 40 bytes.
    PacketTest() {
        wire::Flow flow;
        flow.src = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 1, 2, 3};
        flow.dst = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 3, 2, 1};
        flow.traffic_class = wire::kEcnEct0 | 26 << 2;
        flow.udp_src = 0xC123;
        const wire::FlowTemplate made = wire::make_template(flow);
        wire::Headers headers;
        headers.bth.opcode = wire::opcode(wire::Service::kRc, wire::Op::kWriteOnly);
        headers.reth = {0x123456789AB, 77, 40};
        const std::vector<uint8_t> payload(40, 0x5A);
        const wire::Segment segment{payload.data(), 40};
        packet.content.resize(wire::frame_bytes(made, headers.bth.opcode, 40));
        wire::build_frame(packet.content.data(), made, headers, {&segment, 1});
        EXPECT_EQ(wire::parse_frame(packet.content, packet.frame), wire::ParseError::kNone);
    }
    wire::ParseError check() {
        wire::ParsedFrame frame;
        return wire::parse_frame(packet.content, frame);
    }
    Packet packet;
};

TEST_F(PacketTest, a_mark_changes_the_ecn_bits_and_nothing_else) {
    mark_ce(packet);
    wire::ParsedFrame frame;
    ASSERT_EQ(wire::parse_frame(packet.content, frame), wire::ParseError::kNone);
    EXPECT_TRUE(frame.ce());
    EXPECT_EQ(frame.flow.traffic_class, wire::kEcnCe | 26 << 2);
    EXPECT_EQ(packet.frame.flow.traffic_class, frame.flow.traffic_class);
    const std::vector<uint8_t> once = packet.content;
    mark_ce(packet);
    EXPECT_EQ(packet.content, once);
}

TEST_F(PacketTest, every_flipped_bit_is_found_marked_or_not) {
    const std::vector<uint8_t> intact = packet.content;
    const uint64_t bits = (intact.size() - 14) * 8;
    for (uint64_t bit = 0; bit < bits; ++bit) {
        packet.content = intact;
        damage(packet, bit);
        EXPECT_NE(packet.content, intact);
        // The ICRC covers all bytes but one in the BTH, which has FECN, BECN and reserved bits (annex A17.3.3).
        const bool covered = bit / 8 != 20 + 8 + 4;
        EXPECT_EQ(check() != wire::ParseError::kNone, covered) << "bit " << bit;
        mark_ce(packet);
        EXPECT_EQ(check() != wire::ParseError::kNone, covered) << "bit " << bit << ", marked";
    }
}

TEST_F(PacketTest, the_hash_is_of_the_five_tuple_and_nothing_else) {
    wire::Flow flow = packet.frame.flow;
    const uint64_t hash = flow_hash(flow);
    flow.traffic_class = 3;
    flow.hop_limit = 7;
    flow.src_mac[5] = 9;
    EXPECT_EQ(flow_hash(flow), hash);
    for (const auto change : {+[](wire::Flow& f) { ++f.udp_src; }, +[](wire::Flow& f) { ++f.src[15]; },
                              +[](wire::Flow& f) { ++f.dst[15]; }, +[](wire::Flow& f) { std::swap(f.src, f.dst); }}) {
        wire::Flow other = flow;
        change(other);
        EXPECT_NE(flow_hash(other), hash);
    }
}

// A reference queue that is searched from its first packet, as the comment on ShortestFirst describes.
Packet* pop_by_search(std::deque<Packet*>& queue, ShortestFirst order) {
    auto least = queue.begin();
    for (auto at = queue.begin(); at != queue.end(); ++at) {
        if ((*at)->remaining < (*least)->remaining) least = at;
    }
    if (order == ShortestFirst::kOfFlow) {
        const uint64_t flow = (*least)->flow_hash;
        least = std::ranges::find_if(queue, [&](const Packet* packet) { return packet->flow_hash == flow; });
    }
    Packet* const packet = *least;
    queue.erase(least);
    return packet;
}

TEST(ShortestFirstQueue, packets_leave_as_a_search_finds_them) {
    for (const ShortestFirst order : {ShortestFirst::kOfFlow, ShortestFirst::kPacket}) {
        Random random(7, 0);
        ShortestFirstQueue queue(order);
        std::deque<Packet*> searched;
        std::deque<Packet> packets(2000);
        for (Packet& packet : packets) {
            packet.begin(1000, 0, random.below(8));
            packet.remaining = static_cast<uint32_t>(random.below(20)) * 1000;
            queue.push(packet);
            searched.push_back(&packet);
            while (!searched.empty() && random.below(packets.size()) > searched.size() * 40)
                ASSERT_EQ(&queue.pop(), pop_by_search(searched, order));
        }
        while (!searched.empty()) ASSERT_EQ(&queue.pop(), pop_by_search(searched, order));
    }
}

}  // namespace
}  // namespace rove::fabric
