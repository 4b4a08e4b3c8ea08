// SPDX-License-Identifier: Apache-2.0
// Tests which frames a bridge forwards, and to which destination: frames that members send, and frames from the uplink.
#include "bridge/forwarding.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "link/neighbour_packets.h"
#include "packets.h"

namespace rove::bridge {
namespace {

using To = Forwarding::To;

const wire::MacAddress kBridge = mac("02:00:00:00:00:0b"), kMember = mac("02:00:00:00:01:01"),
                       kOutside = mac("02:00:00:00:02:02"), kBroadcast{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
constexpr const char *kMine = "10.0.0.11", *kMine6 = "fd00::11", *kOther = "10.0.0.12", *kFar = "10.0.0.50",
                     *kFar6 = "fd00::50", *kGroup = "239.1.2.3", *kGroup6 = "ff12::7";

Forwarding::Settings settings(std::optional<uint16_t> vlan = std::nullopt) {
    return {.mac = kBridge, .vlan = vlan, .most_bytes = 1200, .gateways = {}};
}

class ForwardingTest : public testing::Test {
  protected:
    ForwardingTest() {
        bridge_.add(0, {gid(kMine), gid(kMine6), datapath::link_local_gid(kMember)});
        bridge_.add(1, {gid(kOther)});
    }
    static Forwarding::Way up(const Forwarding& bridge, const std::vector<uint8_t>& frame) {
        return bridge.from_member(0, parsed(frame));
    }
    static std::vector<uint8_t> to_group(const char* group, const char* from, const wire::MacAddress& src) {
        return roce(datapath::multicast_mac(gid(group)), src, group, from);
    }
    void expect_up_dropped(const std::vector<uint8_t>& frame, Counter why) {
        const Forwarding::Way way = up(bridge_, frame);
        EXPECT_EQ(way.to, To::kNobody);
        EXPECT_STREQ(to_string(way.drop), to_string(why));
    }
    void expect_down_dropped(const std::vector<uint8_t>& frame, Counter why) {
        const Forwarding::Way way = bridge_.from_uplink(parsed(frame));
        EXPECT_EQ(way.to, To::kNobody);
        EXPECT_STREQ(to_string(way.drop), to_string(why));
    }

    Forwarding bridge_{settings()};
};

TEST_F(ForwardingTest, AMembersFramesGoToTheUplink) {
    for (const auto& [dst, src] : {std::pair(kFar, kMine), std::pair(kFar6, kMine6)}) {
        const Forwarding::Way way = up(bridge_, roce(kBridge, kMember, dst, src));
        EXPECT_EQ(way.to, To::kUplink);
        EXPECT_EQ(way.next_hop, gid(dst));
    }
    for (const auto& [dst, src] : {std::pair(kGroup, kMine), std::pair(kGroup6, kMine6)}) {
        const Forwarding::Way way = up(bridge_, to_group(dst, src, kMember));
        EXPECT_EQ(way.to, To::kUplink);
        EXPECT_EQ(way.next_hop, gid(dst));
    }
    EXPECT_EQ(up(bridge_, other(kBridge, kMember, kFar, kMine, 1, {8})).to, To::kUplink);
    EXPECT_EQ(
        up(bridge_, other(datapath::multicast_mac(gid("224.0.0.22")), kMember, "224.0.0.22", "0.0.0.0", 2, {0x22})).to,
        To::kUplink)
        << "a report of a host without an address";
}

TEST_F(ForwardingTest, AMemberSendsFromItsOwnAddressesOnly) {
    expect_up_dropped(roce(kBridge, kMember, kFar, kOther), Counter::kSpoofed);
    expect_up_dropped(roce(kBridge, kMember, kFar, "10.0.0.77"), Counter::kSpoofed);
    expect_up_dropped(roce(kBridge, kMember, kFar6, "fd00::77"), Counter::kSpoofed);
    expect_up_dropped(roce(kBridge, kMember, kFar, "0.0.0.0"), Counter::kSpoofed);
    expect_up_dropped(to_group(kGroup, kOther, kMember), Counter::kSpoofed);
    bridge_.add(1, {gid(kMine)});
    EXPECT_EQ(up(bridge_, roce(kBridge, kMember, kFar, kMine)).to, To::kUplink) << "who had it first has it";
}

TEST_F(ForwardingTest, AMemberSendsNothingButWhatRoveSpeaks) {
    std::vector<uint8_t> arp(datapath::kMaxDiscoveryBytes);
    arp.resize(datapath::build_announce(arp.data(), {kMember, gid(kFar), {}}));
    expect_up_dropped(arp, Counter::kProtocol);
    expect_up_dropped(other(kBridge, kMember, kFar, kMine, 6, {}), Counter::kProtocol);
    expect_up_dropped(other(kBridge, kMember, kFar, kMine, 1, {5}), Counter::kProtocol);
    expect_up_dropped(other(kBridge, kMember, kFar6, kMine6, 58, {136}), Counter::kProtocol);
    expect_up_dropped(other(kBridge, kMember, "ff02::1", kMine6, 0, {58, 0, 5, 2, 0, 0, 1, 0, 130}),
                      Counter::kProtocol);
    expect_up_dropped({}, Counter::kMalformed);
    expect_up_dropped(roce(kBridge, kMember, kFar, kMine, 64, 7), Counter::kVlan);
}

TEST_F(ForwardingTest, WhatTheUplinkDoesNotCarryIsDropped) {
    EXPECT_EQ(up(bridge_, roce(kBridge, kMember, kFar, kMine, 1024)).to, To::kUplink);
    expect_up_dropped(roce(kBridge, kMember, kFar, kMine, 2048), Counter::kTooLong);
}

TEST_F(ForwardingTest, MacsAndAddressesFitEachOther) {
    expect_up_dropped(roce(kOutside, kMember, kFar, kMine), Counter::kNotOurs);
    expect_up_dropped(roce(kBroadcast, kMember, kFar, kMine), Counter::kNotOurs);
    expect_up_dropped(roce(kBridge, kMember, kGroup, kMine), Counter::kNotOurs);
    expect_up_dropped(roce(kBridge, kMember, "0.0.0.0", kMine), Counter::kNotOurs);
    expect_up_dropped(roce(kBridge, kMember, kMine, kMine), Counter::kNotOurs);
    expect_down_dropped(roce(kOutside, kMember, kMine, kFar), Counter::kNotOurs);
    expect_down_dropped(roce(kBroadcast, kOutside, kMine, kFar), Counter::kNotOurs);
    expect_down_dropped(roce(kBridge, kOutside, "10.0.0.99", kFar), Counter::kNotOurs);
    expect_down_dropped(roce(kBridge, kOutside, kGroup, kFar), Counter::kNotOurs);
}

TEST_F(ForwardingTest, AMemberThatCameLaterIsReachedThroughTheBridge) {
    const Forwarding::Way way = up(bridge_, roce(kBridge, kMember, kOther, kMine));
    EXPECT_EQ(way.to, To::kMember);
    EXPECT_EQ(way.member, 1);
    bridge_.remove(1);
    EXPECT_EQ(up(bridge_, roce(kBridge, kMember, kOther, kMine)).to, To::kUplink);
}

TEST_F(ForwardingTest, BeyondItsSubnetAGatewayIsAsked) {
    Forwarding::Settings with = settings();
    with.gateways = {{gid("10.0.0.254"), *datapath::parse_subnet("10.0.0.254/24")},
                     {gid("fd00::fe"), *datapath::parse_subnet("fd00::fe/64")}};
    Forwarding bridge(with);
    bridge.add(0, {gid(kMine), gid(kMine6), datapath::link_local_gid(kMember)});
    EXPECT_EQ(up(bridge, roce(kBridge, kMember, "192.0.2.1", kMine)).next_hop, gid("10.0.0.254"));
    EXPECT_EQ(up(bridge, roce(kBridge, kMember, kFar, kMine)).next_hop, gid(kFar));
    EXPECT_EQ(up(bridge, roce(kBridge, kMember, "2001:db8::1", kMine6)).next_hop, gid("fd00::fe"));
    EXPECT_EQ(up(bridge, roce(kBridge, kMember, kFar6, kMine6)).next_hop, gid(kFar6));
    const std::string own = datapath::to_string(datapath::link_local_gid(kMember));
    EXPECT_EQ(up(bridge, roce(kBridge, kMember, "fe80::7", own.c_str())).next_hop, gid("fe80::7"));
}

TEST_F(ForwardingTest, FromTheUplinkEachMemberGetsItsOwn) {
    for (const auto& [dst, src, member] :
         {std::tuple(kMine, kFar, 0), std::tuple(kMine6, kFar6, 0), std::tuple(kOther, kFar, 1)}) {
        const Forwarding::Way way = bridge_.from_uplink(parsed(roce(kBridge, kOutside, dst, src)));
        EXPECT_EQ(way.to, To::kMember);
        EXPECT_EQ(way.member, member);
    }
    EXPECT_EQ(bridge_.from_uplink(parsed(other(kBridge, kOutside, kMine, kFar, 1, {8}))).to, To::kMember);
    EXPECT_EQ(bridge_.from_uplink(parsed(other(kBridge, kOutside, "fe80::b", kFar6, 58, {128}))).to, To::kNeighbours);
    for (const auto& [group, from] : {std::pair(kGroup, kFar), std::pair(kGroup6, kFar6)})
        EXPECT_EQ(bridge_.from_uplink(parsed(to_group(group, from, kOutside))).to, To::kAllMembers);
    EXPECT_EQ(bridge_
                  .from_uplink(
                      parsed(other(datapath::multicast_mac(gid("224.0.0.1")), kOutside, "224.0.0.1", kFar, 2, {0x11})))
                  .to,
              To::kAllMembers);
    std::vector<uint8_t> arp(datapath::kMaxDiscoveryBytes);
    arp.resize(datapath::build_solicit(arp.data(), {kOutside, gid(kFar), {}}, gid(kMine)));
    EXPECT_EQ(bridge_.from_uplink(parsed(arp)).to, To::kNeighbours);
}

TEST_F(ForwardingTest, WhoUsesAMembersAddressAtTheUplinkForgesIt) {
    expect_down_dropped(roce(kBridge, kOutside, kMine, kOther), Counter::kSpoofed);
    expect_down_dropped(roce(kBridge, kBridge, kMine, kFar), Counter::kNotOurs);
    expect_down_dropped(to_group(kGroup, kMine, kOutside), Counter::kSpoofed);
    expect_down_dropped(roce(kBridge, kOutside, kMine, kGroup), Counter::kSpoofed);
    expect_down_dropped(other(kBridge, kOutside, kMine, kFar, 6, {}), Counter::kProtocol);
    expect_down_dropped(other(datapath::multicast_mac(gid("224.0.0.22")), kOutside, "224.0.0.22", kFar, 2, {0x22}),
                        Counter::kProtocol);
}

TEST_F(ForwardingTest, TheUplinksVlan) {
    expect_down_dropped(roce(kBridge, kOutside, kMine, kFar, 64, 7), Counter::kVlan);
    EXPECT_EQ(bridge_.from_uplink(parsed(roce(kBridge, kOutside, kMine, kFar, 64, 0xA000))).to, To::kMember)
        << "a priority alone";
    Forwarding tagged(settings(7));
    tagged.add(0, {gid(kMine)});
    EXPECT_EQ(tagged.from_uplink(parsed(roce(kBridge, kOutside, kMine, kFar, 64, 0xA007))).to, To::kMember);
    EXPECT_EQ(tagged.from_uplink(parsed(roce(kBridge, kOutside, kMine, kFar))).drop, Counter::kVlan);
    EXPECT_EQ(tagged.from_uplink(parsed(roce(kBridge, kOutside, kMine, kFar, 64, 8))).drop, Counter::kVlan);
    EXPECT_EQ(up(tagged, roce(kBridge, kMember, kFar, kMine)).to, To::kUplink);
}

TEST(BridgeCounterTest, EachHasANameOfItsOwn) {
    std::set<std::string> names;
    for (size_t i = 0; i < static_cast<size_t>(Counter::kCount); ++i)
        EXPECT_TRUE(names.insert(to_string(static_cast<Counter>(i))).second);
}

}  // namespace
}  // namespace rove::bridge
