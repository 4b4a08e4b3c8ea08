// SPDX-License-Identifier: Apache-2.0
// Tests ConWeave: flows leave paths that have become slow, and still arrive in order.
#include "fabric/conweave.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "fabric/audit.h"
#include "fabric/flow.h"
#include "fabric/probe.h"
#include "fabric/topology.h"

namespace rove::fabric {
namespace {

// Two leaves with one host each, and two paths between them, each over its own spine. Packets are numbered.
struct TwoWays {
    explicit TwoWays(uint64_t seed = 1) : network(seed) {
        const SwitchConfig config{.balancer = Balancer::kConWeave};
        left = &network.add_switch(config);
        right = &network.add_switch(config);
        network.connect(a, *left, {.bits_per_s = kRate});
        last = &network.connect(b, *right, {.bits_per_s = kRate}).backward;
        for (uint32_t i = 0; i < 2; ++i) {
            spines.push_back(&network.add_switch(config));
            up.push_back(&network.connect(*left, *spines[i], {.bits_per_s = kRate}).forward);
            down.push_back(&network.connect(*right, *spines[i], {.bits_per_s = kRate}).backward);
        }
        network.route();
        network.world().trace = [this](TraceEvent what, const Link& link, const Packet& packet) {
            if (what == TraceEvent::kDelivered && &link == last && packet.flow_hash == 1)
                numbers.push_back(packet.remaining);
        };
    }
    // Sends packets of flow 1, one per two microseconds, which is 40 % of the rate.
    void send(uint32_t packets) {
        const Time start = network.now();
        for (uint32_t i = 0; i < packets; ++i)
            network.at(start + i * 2 * kMicrosecond, [this] { a.send_remaining(b, kFrameBytes, 1, ++sent); });
        network.run_until(start + packets * 2 * kMicrosecond);
    }
    // Returns the path that the flow has used since the last call.
    uint32_t way() {
        const uint64_t on_second = up[1]->stats().enqueued_packets;
        const bool second = on_second != seen;
        seen = on_second;
        return second;
    }
    const ConWeave::Stats& at(const Switch* leaf) const { return leaf->conweave()->stats(); }
    bool in_order() const { return std::ranges::is_sorted(numbers); }

    Network network;
    Probe& a = network.add<Probe>();
    Probe& b = network.add<Probe>();
    Switch *left, *right;
    std::vector<Switch*> spines;
    std::vector<Link*> up, down;
    Link* last;
    uint32_t sent = 0;
    uint64_t seen = 0;
    std::vector<uint32_t> numbers;
};

TEST(ConWeaveTest, AFlowStaysWhileRepliesAreInTime) {
    TwoWays net;
    net.send(500);
    net.network.run_for(50 * kMicrosecond);
    EXPECT_EQ(net.at(net.left).reroutes, 0u);
    EXPECT_EQ(net.at(net.right).held_packets, 0u);
    EXPECT_EQ(net.numbers.size(), 500u);
    EXPECT_TRUE(net.in_order());
    // There is one reply per round trip of about 6 us, and all replies arrive.
    EXPECT_NEAR(static_cast<double>(net.at(net.right).made_packets), 1000.0 / 7, 40);
    EXPECT_EQ(net.at(net.left).consumed_packets, net.at(net.right).made_packets);
    check_conservation(net.network);
}

TEST(ConWeaveTest, AFlowLeavesASlowWayAndArrivesInOrder) {
    TwoWays net;
    net.send(100);
    const uint32_t before = net.way();
    net.down[before]->set_rate(kRate / 10);  // a quarter of the flow's rate, so its queue grows
    net.send(100);
    EXPECT_EQ(net.at(net.left).reroutes, 1u);
    EXPECT_GT(net.at(net.right).held_packets, 0u);
    EXPECT_EQ(net.at(net.right).late_tails, 0u);
    const uint64_t on_slow = net.up[before]->stats().enqueued_packets;
    net.send(100);
    EXPECT_EQ(net.up[before]->stats().enqueued_packets, on_slow) << "it has gone for good";
    net.network.run_for(50 * kMicrosecond);
    EXPECT_EQ(net.numbers.size(), 300u);
    EXPECT_TRUE(net.in_order());
    EXPECT_EQ(net.right->conweave()->held(), 0u);
    check_conservation(net.network);
}

TEST(ConWeaveTest, WhatWaitsForALostTailIsSentOnInTime) {
    TwoWays net;
    net.send(100);
    const uint32_t before = net.way();
    net.down[before]->set_up(false);  // routes stay, so packets on this path are lost and replies do not come
    net.send(200);
    EXPECT_EQ(net.at(net.left).reroutes, 1u);
    EXPECT_EQ(net.at(net.right).late_tails, 1u);
    net.network.run_for(50 * kMicrosecond);
    EXPECT_TRUE(net.in_order());
    EXPECT_EQ(net.numbers.back(), net.sent);
    EXPECT_GT(net.numbers.size(), 280u) << "lost were those until the reply was late";
    EXPECT_EQ(net.right->conweave()->held(), 0u);
    check_conservation(net.network);
}

TEST(ConWeaveTest, NobodyMovesToAWayThatIsMarked) {
    TwoWays net;
    net.send(50);
    const uint32_t before = net.way();
    // Another flow uses the other path, four packets at a time. A packet that leaves others behind it in the queue is
    // marked.
    uint64_t id = 2;
    for (;; ++id) {
        const uint64_t there = net.up[!before]->stats().enqueued_packets;
        net.a.send(net.b, kFrameBytes, id);
        net.network.run_for(5 * kMicrosecond);
        if (net.up[!before]->stats().enqueued_packets != there) break;
    }
    net.down[!before]->set_rate(kRate / 2);
    net.spines[!before]->set_red(*net.down[!before], {1.0, 0, 0});
    for (uint32_t i = 0; i < 20; ++i) {
        net.network.at(net.network.now() + i * 9 * kMicrosecond, [&net, id] {
            for (int packet = 0; packet < 4; ++packet) net.a.send(net.b, kFrameBytes, id);
        });
    }
    net.network.run_for(20 * kMicrosecond);
    net.down[before]->set_rate(kRate / 10);
    net.send(60);
    EXPECT_EQ(net.at(net.left).reroutes, 0u) << "replies are late, but there is nowhere to go";
    net.network.run_for(60 * kMicrosecond);
    net.send(100);
    EXPECT_EQ(net.at(net.left).reroutes, 1u) << "no marks any more";
    net.network.run_for(3 * kMillisecond);
    EXPECT_EQ(net.numbers.size(), net.sent);
    EXPECT_TRUE(net.in_order());
    check_conservation(net.network);
}

TEST(ConWeaveTest, FlowsThatWereForgottenBeginAnew) {
    TwoWays net;
    net.send(50);
    for (uint64_t id = 2; id < 6000; ++id) {
        net.a.send(net.b, 500, id);
        net.network.run_for(kMicrosecond);
    }
    const uint64_t before = net.at(net.left).reroutes;
    net.way();
    net.send(50);
    const uint32_t way = net.way();
    net.down[way]->set_rate(kRate / 10);
    net.send(100);
    EXPECT_EQ(net.at(net.left).reroutes, before + 1);
    net.network.run_for(kMillisecond);
    EXPECT_EQ(net.numbers.size(), 200u);
    EXPECT_TRUE(net.in_order());
    check_conservation(net.network);
}

// Two leaves with `hosts` hosts each. Each host sends to one host of the other leaf.
struct Engines {
    Engines(Balancer balancer, uint64_t seed, uint32_t hosts, const Red& red) : network(seed) {
        LeafSpineConfig config{.leaves = 2, .spines = 4, .rack = {.hosts = hosts}};
        config.rack.tor.pfc = config.spine.pfc = Pfc{};
        config.rack.tor.red = config.spine.red = red;
        config.rack.tor.balancer = config.spine.balancer = balancer;
        config.rack.host.control_class = true;
        config.rack.host.transport.adapts_window = false;  // DCQCN, as in its paper
        clos = leaf_spine(network, config);
        for (uint32_t i = 0; i < hosts; ++i) {
            const auto port = static_cast<uint16_t>(0xC000 + network.world().new_stream().below(1000));
            flows
                .emplace_back(network, *clos.racks[0].hosts[i], *clos.racks[1].hosts[i],
                              FlowConfig{.qp = {.udp_src = port}})
                .start();
        }
    }
    double gbps(Time time) {
        network.run_until(time);
        check_conservation(network);
        uint64_t bytes = 0;
        for (const Flow& flow : flows) bytes += flow.completed_bytes();
        return static_cast<double>(bytes) * 8 / (static_cast<double>(time) / kSecond) / 1e9;
    }

    Network network;
    LeafSpine clos;
    std::deque<Flow> flows;
};

TEST(ConWeaveTest, RealEnginesSeeNoPacketOutOfOrder) {
    for (const uint64_t seed : {1, 2}) {
        Engines with(Balancer::kConWeave, seed, 4, {0.2, 30'000, 120'000});
        const double gbps = with.gbps(kMillisecond);
        uint64_t nacks = 0;
        for (const Host* host : with.clos.hosts()) nacks += host->counters()[transport::Counter::kTxNakSequence];
        EXPECT_EQ(nacks, 0u);
        EXPECT_GT(with.clos.racks[0].tor->conweave()->stats().reroutes, 0u);
        EXPECT_GT(with.clos.racks[1].tor->conweave()->stats().held_packets, 0u);
        EXPECT_EQ(with.clos.racks[1].tor->conweave()->stats().late_tails, 0u);
        EXPECT_EQ(gbps, Engines(Balancer::kConWeave, seed, 4, {0.2, 30'000, 120'000}).gbps(kMillisecond));
    }
}

// Two flows and four paths. With every fourth seed, ECMP puts both flows on the same path forever.
TEST(ConWeaveTest, FlowsThatMeetPartAgain) {
    double least = 1e9, least_of_ecmp = 1e9;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        least = std::min(least, Engines(Balancer::kConWeave, seed, 2, {}).gbps(kMillisecond));
        least_of_ecmp = std::min(least_of_ecmp, Engines(Balancer::kEcmp, seed, 2, {}).gbps(kMillisecond));
    }
    EXPECT_LT(least_of_ecmp, 40);
    EXPECT_GT(least, 1.25 * least_of_ecmp) << "of a millisecond, in which they meet first";
}

}  // namespace
}  // namespace rove::fabric
