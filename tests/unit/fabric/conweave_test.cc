// SPDX-License-Identifier: Apache-2.0
// ConWeave: flows leave ways that have become slow, and arrive in order all the same.
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

// Two leaves with one host each, and two ways between them, by a spine each. Packets have numbers.
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
        network.world().trace = [this](Happening what, const Link& link, const Packet& packet) {
            if (what == Happening::kDelivered && &link == last && packet.flow_hash == 1)
                numbers.push_back(packet.remaining);
        };
    }
    // One of flow 1 each two microseconds: 40 % of the rate.
    void send(uint32_t packets) {
        const Time start = network.now();
        for (uint32_t i = 0; i < packets; ++i)
            network.at(start + i * 2 * kMicrosecond, [this] { a.send_remaining(b, kFrameBytes, 1, ++sent); });
        network.run_until(start + packets * 2 * kMicrosecond);
    }
    // That it has taken since they were counted last.
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
    // A reply for each round trip of some 6 us, and each has come.
    EXPECT_NEAR(static_cast<double>(net.at(net.right).made_packets), 1000.0 / 7, 40);
    EXPECT_EQ(net.at(net.left).consumed_packets, net.at(net.right).made_packets);
    check_conservation(net.network);
}

TEST(ConWeaveTest, AFlowLeavesASlowWayAndArrivesInOrder) {
    TwoWays net;
    net.send(100);
    const uint32_t before = net.way();
    net.down[before]->set_rate(kRate / 10);  // a quarter of what the flow has: its queue grows
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
    net.down[before]->set_up(false);  // without new routes: what goes there is lost, replies do not come
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
    // Another flow that has the other way, four packets at a time: those that leave some behind them are marked.
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

TEST(ConWeaveTest, RealEnginesSeeNoPacketOutOfOrder) {
    struct Outcome {
        uint64_t bytes = 0, nacks = 0, reroutes = 0, held = 0, late = 0;
    };
    const auto run = [](Balancer balancer, uint64_t seed) {
        Network network(seed);
        LeafSpineConfig config{.leaves = 4, .spines = 4, .rack = {.hosts = 4}};
        config.rack.tor.pfc = config.spine.pfc = Pfc{};
        config.rack.tor.red = config.spine.red = {0.2, 30'000, 120'000};
        config.rack.tor.balancer = config.spine.balancer = balancer;
        config.rack.host.control_class = true;
        const LeafSpine clos = leaf_spine(network, config);
        std::deque<Flow> flows;
        for (const auto& [from, to] : permutation(clos, network.world().new_stream()))
            flows.emplace_back(network, *from, *to).start();
        network.run_until(2 * kMillisecond);
        Outcome outcome;
        for (const Flow& flow : flows) outcome.bytes += flow.completed_bytes();
        for (const Host* host : clos.hosts()) outcome.nacks += host->counters()[transport::Counter::kTxNakSequence];
        for (const Rack& rack : clos.racks) {
            if (rack.tor->conweave() == nullptr) continue;
            outcome.reroutes += rack.tor->conweave()->stats().reroutes;
            outcome.held += rack.tor->conweave()->stats().held_packets;
            outcome.late += rack.tor->conweave()->stats().late_tails;
        }
        check_conservation(network);
        return outcome;
    };
    double conweave = 0, ecmp = 0;
    uint64_t reroutes = 0, held = 0;
    for (const uint64_t seed : {1, 2}) {
        const Outcome with = run(Balancer::kConWeave, seed);
        EXPECT_EQ(with.bytes, run(Balancer::kConWeave, seed).bytes);
        EXPECT_EQ(with.nacks, 0u) << with.late << " tails were late";
        conweave += static_cast<double>(with.bytes);
        ecmp += static_cast<double>(run(Balancer::kEcmp, seed).bytes);
        reroutes += with.reroutes;
        held += with.held;
    }
    EXPECT_GT(reroutes, 0u);
    EXPECT_GT(held, 0u);
    EXPECT_GT(conweave, 1.1 * ecmp);
}

}  // namespace
}  // namespace rove::fabric
