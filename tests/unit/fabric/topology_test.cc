// SPDX-License-Identifier: Apache-2.0
// Tests the topologies of MP-RDMA's evaluation, as rove-sim builds them, with rc flows.
#include "fabric/topology.h"

#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "fabric/flow.h"
#include "fabric/sampler.h"

namespace rove::fabric {
namespace {

// Figure 5: ten hosts at 40 Gb/s, four paths with different rates and marking, base RTT 16 us.
TEST(Figures, four_unequal_paths) {
    Network network;
    std::vector<PathConfig> paths;
    for (uint64_t i = 1; i <= 4; ++i) {
        paths.push_back({.link = {.bits_per_s = 20 * i * kGbps, .delay = 2 * kMicrosecond},
                         .red = Red{0.2 * static_cast<double>(i), 20'000, 200'000}});
    }
    RackConfig rack{.hosts = 10, .access = {.delay = 3 * kMicrosecond}};
    const TwoRacks racks = parallel_paths(network, rack, paths);
    ASSERT_EQ(racks.paths.size(), 4u);
    EXPECT_EQ(racks.paths[2].forward.config().bits_per_s, 60 * kGbps);
    // Places one flow on each path by its source port.
    std::deque<Flow> flows;
    for (size_t i = 0; i < 4; ++i) {
        const uint16_t port =
            network.source_port_via(racks.paths[i].forward, *racks.left.hosts[i], *racks.right.hosts[i]);
        flows.emplace_back(network, *racks.left.hosts[i], *racks.right.hosts[i], FlowConfig{.qp = {.udp_src = port}})
            .start();
    }
    network.run_for(2 * kMillisecond);
    for (size_t i = 0; i < 4; ++i) {
        const uint64_t data = racks.paths[i].forward.stats().sent_bytes;
        EXPECT_GT(data, flows[i].completed_bytes());
        EXPECT_LT(data, flows[i].completed_bytes() * 3 / 2 + (1 << 20)) << "and nothing else is on it";
    }
    const LinkStats& slow = racks.paths[0].forward.stats();
    EXPECT_GT(slow.marked_packets, 0u) << "40 Gb/s into 20";
    EXPECT_LT(slow.marked_packets, slow.enqueued_packets);
    EXPECT_EQ(racks.paths[3].forward.stats().marked_packets, 0u) << "40 Gb/s into 80";
}

// Figure 12b: 4 spines, 32 leaves, 320 hosts, and a permutation across leaves.
TEST(Figures, leaf_spine_with_320_hosts) {
    Network network;
    LeafSpineConfig config;
    config.leaves = 32;
    config.spines = 4;
    config.uplink.bits_per_s = 100 * kGbps;
    config.rack.hosts = 10;
    const LeafSpine clos = leaf_spine(network, config);
    EXPECT_EQ(clos.hosts().size(), 320u);
    EXPECT_EQ(clos.spines.size(), 4u);
    EXPECT_EQ(network.links().size(), 2u * (320 + 128));
    const auto pairs = permutation(clos, network.world().new_stream());
    EXPECT_EQ(pairs.size(), 160u);
    std::set<Host*> seen;
    std::deque<Flow> flows;
    for (const auto& [from, to] : pairs) {
        EXPECT_TRUE(seen.insert(from).second && seen.insert(to).second);
        EXPECT_NE(&from->link().to(), &to->link().to()) << "within a rack";
        flows.emplace_back(network, *from, *to, FlowConfig{.message_bytes = 16 << 10, .messages = 2}).start();
    }
    network.run_for(10 * kMillisecond);
    for (const Flow& flow : flows) EXPECT_TRUE(flow.ended());
    EXPECT_EQ(network.total(&LinkStats::dropped_packets), 0u);
    for (size_t spine = 0; spine < 4; ++spine) {
        uint64_t packets = 0;
        for (const auto& uplinks : clos.uplinks) packets += uplinks[spine].forward.stats().sent_packets;
        EXPECT_GT(packets, 160u * 2 * 16 / 8) << "half of its share";
    }
}

TEST(Figures, permutations_differ_and_stay_across_racks) {
    for (const uint32_t leaves : {2u, 3u, 8u}) {
        Network network;
        LeafSpineConfig config;
        config.leaves = leaves;
        config.rack.hosts = 6;
        const LeafSpine clos = leaf_spine(network, config);
        std::set<std::vector<std::pair<Host*, Host*>>> drawn;
        for (uint64_t seed = 0; seed < 50; ++seed) {
            const auto pairs = permutation(clos, Random(seed, 0));
            EXPECT_EQ(pairs.size(), leaves * 3u);
            std::set<Host*> seen;
            for (const auto& [from, to] : pairs) {
                EXPECT_TRUE(seen.insert(from).second && seen.insert(to).second);
                EXPECT_NE(&from->link().to(), &to->link().to());
            }
            drawn.insert(pairs);
        }
        EXPECT_EQ(drawn.size(), 50u);
    }
}

// Figures 11b, 14 and 15: rates, marks and cuts change while the network runs, and a sampler observes them.
TEST(Figures, a_path_degrades_is_cut_and_comes_back) {
    Network network;
    const std::vector<PathConfig> paths(4, {.link = {.bits_per_s = 10 * kGbps}});
    const TwoRacks racks = parallel_paths(network, {}, paths);
    Host &a = *racks.left.hosts[0], &b = *racks.right.hosts[0];
    Flow flow(network, a, b, {.qp = {.udp_src = network.source_port_via(racks.paths[3].forward, a, b)}});
    Sampler sampler(network, 10 * kMillisecond);
    std::vector<size_t> columns;
    for (const Cable& path : racks.paths) {
        columns.push_back(sampler.watch([&] { return path.forward.stats().sent_bytes; }));
    }
    flow.start();
    network.at(20 * kMillisecond, [&] { racks.paths[3].set_rate(kGbps); });
    network.at(40 * kMillisecond, [&] { racks.paths[3].set_up(false); });
    network.at(60 * kMillisecond, [&] {
        racks.paths[3].set_up(true);
        racks.paths[3].set_rate(10 * kGbps);
    });
    network.run_until(150 * kMillisecond);
    ASSERT_EQ(sampler.rows(), 16u);
    EXPECT_NEAR(sampler.bits_per_s(1, columns[3]), 9.8e9, 0.3e9);
    EXPECT_NEAR(sampler.bits_per_s(4, columns[3]), 0.98e9, 0.03e9);
    EXPECT_LT(sampler.bits_per_s(6, columns[3]), 0.1e9) << "probes only";
    EXPECT_NEAR(sampler.bits_per_s(15, columns[3]), 9.8e9, 0.3e9);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(sampler.value(15, columns[i]), 0u);
}

TEST(Routes, what_cannot_be_reached_is_said_at_once) {
    Network network;
    Host& a = network.add_host();
    Host& b = network.add_host();
    Switch& left = network.add_switch();
    Switch& right = network.add_switch();
    network.connect(a, left, {});
    network.connect(b, right, {});
    EXPECT_THROW(network.route(), std::invalid_argument);
    const Cable direct = network.connect(left, right, {});
    network.route();
    EXPECT_EQ(network.source_port_via(direct.forward, a, b), 0xC000) << "there is but one way";
    EXPECT_THROW(network.source_port_via(direct.backward, a, b), std::invalid_argument);
}

TEST(Routes, only_shortest_ways) {
    // Three switches in a ring. A neighbour at the same distance from the destination is no next hop.
    Network network;
    std::vector<Switch*> ring;
    std::vector<Host*> hosts;
    for (int i = 0; i < 3; ++i) {
        ring.push_back(&network.add_switch());
        hosts.push_back(&network.add_host());
        network.connect(*hosts.back(), *ring.back(), {});
    }
    for (size_t i = 0; i < 3; ++i) network.connect(*ring[i], *ring[(i + 1) % 3], {});
    network.route();
    for (uint64_t flow = 0; flow < 100; ++flow) {
        for (size_t i = 0; i < 3; ++i) {
            for (size_t j = 0; j < 3; ++j) {
                const uint32_t port = ring[i]->next_hop(mix(flow), hosts[j]->index());
                const Node& next = ring[i]->links()[port]->to();
                EXPECT_EQ(&next, i == j ? static_cast<Node*>(hosts[j]) : ring[j]);
            }
        }
    }
}

// Figure 17: N senders in other racks and one receiver, lossless.
TEST(Figures, incast) {
    Network network;
    const std::vector<PathConfig> paths(4);
    RackConfig rack{.hosts = 5};
    rack.tor.pfc = Pfc{};
    rack.tor.red = {1.0, 20'000, 20'000};
    const TwoRacks racks = parallel_paths(network, rack, paths);
    Host& receiver = *racks.right.hosts[0];
    std::deque<Flow> flows;
    uint32_t running = 0;
    for (Host* sender : racks.left.hosts) {
        ++running;
        flows.emplace_back(network, *sender, receiver, FlowConfig{.messages = 20});
        flows.back().on_end = [&](Flow&) {
            if (--running == 0) network.stop();
        };
        flows.back().start();
    }
    EXPECT_TRUE(network.run_until(kSecond));
    for (const Flow& flow : flows) EXPECT_EQ(flow.status(), IBV_WC_SUCCESS);
    EXPECT_EQ(network.total(&LinkStats::dropped_packets), 0u);
    EXPECT_GT(racks.right.access[0].backward.stats().marked_packets, 0u);
}

}  // namespace
}  // namespace rove::fabric
