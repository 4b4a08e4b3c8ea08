// SPDX-License-Identifier: Apache-2.0
// Tests CONGA: the estimator against its closed form, the feedback between leaves, and the paths that flowlets take as
// a result.
#include "fabric/conga.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "fabric/audit.h"
#include "fabric/flow.h"
#include "fabric/probe.h"
#include "fabric/topology.h"

namespace rove::fabric {
namespace {

TEST(RateEstimatorTest, HasRateTimesItsTimeConstant) {
    // One byte per nanosecond arrives. After n intervals T, the estimate is T (1 - (1 - alpha)^n) / alpha bytes, minus
    // the bytes since the last interval.
    const CongaConfig config;
    RateEstimator estimator;
    constexpr uint64_t kBitsPerS = 8'000'000'000;
    Time now = 0;
    for (uint32_t n = 1; n <= 60; ++n) {
        while (now < n * config.dre_interval) {
            estimator.add(1000, now, config);
            now += kMicrosecond;
        }
        const double left = std::pow(1 - config.alpha, n);
        EXPECT_NEAR(estimator.bytes(now - 1, config), 50'000 * (1 - left) / config.alpha, 1) << n;
    }
    EXPECT_EQ(estimator.level(now - 1, kBitsPerS, config), 7) << "full";
    EXPECT_EQ(estimator.level(now - 1, 2 * kBitsPerS, config), 3) << "at half, just below 4";
    EXPECT_EQ(estimator.level(now - 1, kBitsPerS * 3 / 4, config), 7) << "no more than 3 bits";
    EXPECT_EQ(estimator.level(now - 1, 100 * kBitsPerS, config), 0);
    // Each interval removes a fifth of the value, and a long time removes all of it.
    const double before = estimator.bytes(now - 1, config);
    EXPECT_NEAR(estimator.bytes(now - 1 + 10 * config.dre_interval, config), before * std::pow(0.8, 10), 1);
    EXPECT_EQ(estimator.bytes(now + 1000 * config.dre_interval, config), 0);
}

// Two leaves with one host each, and two spines between them.
struct Diamond {
    static constexpr Time kGap = 100 * kMicrosecond;
    explicit Diamond(Balancer balancer, uint64_t seed = 1) : network(seed) {
        SwitchConfig config{.balancer = balancer, .flowlet_gap = kGap};
        left = &network.add_switch(config);
        right = &network.add_switch(config);
        network.connect(a, *left, {.bits_per_s = kRate});
        network.connect(b, *right, {.bits_per_s = kRate});
        for (uint32_t i = 0; i < 2; ++i) {
            Switch& spine = network.add_switch(config);
            up.push_back(&network.connect(*left, spine, {.bits_per_s = kRate}).forward);
            down.push_back(&network.connect(*right, spine, {.bits_per_s = kRate}).backward);
        }
        network.route();
    }
    std::array<uint64_t, 2> sent() const { return {up[0]->stats().enqueued_packets, up[1]->stats().enqueued_packets}; }
    uint8_t remote_congestion(uint32_t uplink) const {
        // Port 0 of a leaf belongs to its host.
        return left->conga()->remote_congestion(right->index(), uplink + 1, network.now());
    }

    Network network;
    Probe& a = network.add<Probe>();
    Probe& b = network.add<Probe>();
    Switch *left, *right;
    std::vector<Link*> up, down;
};

TEST(CongaTest, LeavesTellWhatTheyHaveSeen) {
    Diamond net(Balancer::kConga);
    // A flow at half of the rate. Its uplink and the spine's downlink are then at level 3.
    constexpr Time kEach = 2 * wire_time(kFrameBytes, kRate);
    for (uint32_t i = 0; i < 1000; ++i) net.network.at(i * kEach, [&] { net.a.send(net.b, kFrameBytes, 5); });
    net.network.run_until(1000 * kEach);
    EXPECT_EQ(net.remote_congestion(0), 0) << "nothing has come back";
    EXPECT_EQ(net.remote_congestion(1), 0);
    const bool used = net.sent()[1] != 0;
    EXPECT_EQ(net.sent()[!used], 0u) << "there was no gap";
    net.b.send_control(net.a);
    net.network.run_for(10 * kMicrosecond);
    EXPECT_EQ(net.remote_congestion(used), 3);
    EXPECT_EQ(net.remote_congestion(!used), 0);
    net.network.run_for(CongaConfig{}.aging);
    EXPECT_EQ(net.remote_congestion(used), 0) << "it is old";
    check_conservation(net.network);
}

TEST(CongaTest, FeedbackTakesTurnsAndWhatHasChangedGoesFirst) {
    std::vector<uint32_t> leaf_of{10, 20};  // node 0 is a host of leaf 10, node 1 of leaf 20
    leaf_of.resize(30, UINT32_MAX);
    Conga conga(10, {});
    conga.set_leaves(leaf_of);
    const auto arrives = [&](uint16_t uplink, uint8_t level) {
        Packet packet;
        packet.begin(1000, 0, 0);
        packet.tagged = true;
        packet.conga = {.leaf = 20, .uplink = uplink, .congestion = level};
        conga.take(packet, kMicrosecond);
        EXPECT_FALSE(packet.tagged);
    };
    const auto goes = [&] {
        Packet packet;
        packet.begin(1000, 1, 0);
        packet.egress = 4;
        conga.give(packet, 2 * kMicrosecond);
        EXPECT_TRUE(packet.tagged);
        EXPECT_EQ(packet.conga.leaf, 10u);
        EXPECT_EQ(packet.conga.uplink, 4);
        return std::pair<int, int>(packet.conga.feedback_uplink, packet.conga.feedback);
    };
    EXPECT_EQ(goes().first, CongaTag::kNone);
    for (const uint16_t uplink : {1, 2, 3}) arrives(uplink, static_cast<uint8_t>(uplink + 2));
    EXPECT_EQ(goes(), std::pair(1, 3));
    EXPECT_EQ(goes(), std::pair(2, 4));
    EXPECT_EQ(goes(), std::pair(3, 5));
    EXPECT_EQ(goes(), std::pair(1, 3)) << "again, in turn";
    arrives(1, 7);
    arrives(2, 4);
    EXPECT_EQ(goes(), std::pair(1, 7)) << "it has changed, the others have not";
    EXPECT_EQ(goes(), std::pair(2, 4));
    // A packet to a host of the same leaf has no tag. A packet from another leaf keeps its tag.
    Packet packet;
    packet.begin(1000, 0, 0);
    conga.give(packet, 0);
    EXPECT_FALSE(packet.tagged);
}

// Sends bursts of four flows, with pauses longer than the gap, and acknowledgements. One of the two paths has a tenth
// of its rate behind the spine. Returns the number of packets that took that path, except in the first 20 bursts.
uint64_t into_the_slow_way(Balancer balancer) {
    Diamond net(balancer);
    net.down[1]->set_rate(kRate / 10);
    constexpr uint32_t kBurst = 100;
    uint64_t before = 0;
    for (uint32_t burst = 0; burst < 200; ++burst) {
        if (burst == 20) before = net.sent()[1];
        for (uint32_t flow = 0; flow < 4; ++flow) {
            for (uint32_t i = 0; i < kBurst / 4; ++i) net.a.send(net.b, kFrameBytes, flow + 1);
        }
        net.network.run_for(kBurst * wire_time(kFrameBytes, kRate));
        for (uint64_t i = 0; i < 8; ++i) net.b.send_control(net.a, i);
        net.network.run_for(Diamond::kGap + 5 * kMicrosecond);
    }
    return net.sent()[1] - before;
}

TEST(CongaTest, AvoidsWhatIsFullBeyondTheNextSwitch) {
    constexpr uint64_t kAll = 180 * 100;
    const uint64_t slow = into_the_slow_way(Balancer::kConga);
    EXPECT_LT(slow, kAll / 5) << "it can carry a tenth, and is tried again when what came back is old";
    EXPECT_GT(into_the_slow_way(Balancer::kLetFlow), kAll * 4 / 10) << "which draws one of the two";
}

TEST(CongaTest, AFlowMovesOnlyAfterAGapAndNotWithoutReason) {
    Diamond net(Balancer::kConga);
    net.a.send(net.b, kFrameBytes, 1);
    net.network.run_for(10 * kMicrosecond);
    const bool way = net.sent()[1] != 0;
    // Light traffic leaves all paths equal. LetFlow would choose again each time.
    for (uint32_t i = 0; i < 50; ++i) {
        net.network.run_for(2 * Diamond::kGap);
        net.a.send(net.b, kFrameBytes, 1);
    }
    net.network.run_for(10 * kMicrosecond);
    EXPECT_EQ(net.sent()[way], 51u);
    // The flow congests its path. Without a gap it stays there. After a gap it moves to the empty path.
    for (uint32_t i = 0; i < 500; ++i) net.a.send(net.b, kFrameBytes, 1);
    net.network.run_for(500 * wire_time(kFrameBytes, kRate) + 3 * kMicrosecond);
    EXPECT_EQ(net.sent()[way], 551u);
    net.network.run_for(Diamond::kGap);
    net.a.send(net.b, kFrameBytes, 1);
    net.network.run_for(10 * kMicrosecond);
    EXPECT_EQ(net.sent()[!way], 1u);
    for (size_t i = 1; i < net.b.arrivals.size(); ++i) EXPECT_GE(net.b.arrivals[i].time, net.b.arrivals[i - 1].time);
}

TEST(CongaTest, CarriesRealEnginesOverAFullFabric) {
    const auto run = [](Balancer balancer, uint64_t seed) {
        Network network(seed);
        LeafSpineConfig config{.leaves = 4, .spines = 4, .rack = {.hosts = 4}};
        config.rack.tor.pfc = config.spine.pfc = Pfc{};
        config.rack.tor.balancer = config.spine.balancer = balancer;
        config.rack.tor.flowlet_gap = config.spine.flowlet_gap = 20 * kMicrosecond;
        config.uplink.bits_per_s = 10 * kGbps;
        config.rack.access.bits_per_s = 10 * kGbps;
        const LeafSpine clos = leaf_spine(network, config);
        // One uplink has a fifth of its rate.
        clos.uplinks[0][0].set_rate(2 * kGbps);
        std::deque<Flow> flows;
        for (const auto& [from, to] : permutation(clos, network.world().new_stream())) {
            // Messages of 64 KB, with pauses between them.
            flows.emplace_back(network, *from, *to, FlowConfig{.in_flight = 1, .bits_per_s = 5e9}).start();
        }
        network.run_until(10 * kMillisecond);
        uint64_t bytes = 0;
        for (const Flow& flow : flows) bytes += flow.completed_bytes();
        check_conservation(network);
        return bytes;
    };
    double conga = 0, ecmp = 0;
    for (const uint64_t seed : {1, 2}) {
        conga += static_cast<double>(run(Balancer::kConga, seed));
        ecmp += static_cast<double>(run(Balancer::kEcmp, seed));
    }
    EXPECT_GT(conga, 1.02 * ecmp);
}

}  // namespace
}  // namespace rove::fabric
