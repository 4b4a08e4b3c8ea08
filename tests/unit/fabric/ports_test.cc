// SPDX-License-Identifier: Apache-2.0
// Tests hosts with several ports: rails, each with its own address, and bonds, which share one address.
#include <gtest/gtest.h>

#include <set>

#include "fabric/audit.h"
#include "fabric/flow.h"
#include "fabric/topology.h"
#include "fabric/transfer.h"
#include "fabric/workload.h"

namespace rove::fabric {
namespace {

LeafSpineConfig with_ports(const Ports& ports, uint32_t hosts = 2) {
    LeafSpineConfig config{.leaves = 2, .spines = 4, .rack = {.hosts = hosts, .ports = ports}};
    config.rack.access = {.bits_per_s = 40 * kGbps, .delay = kMicrosecond};
    config.uplink = {.bits_per_s = 100 * kGbps, .delay = kMicrosecond};
    config.rack.tor.pfc = config.spine.pfc = Pfc{};
    config.rack.host.transport.paths.initial_window = 128;
    config.rack.host.transport.paths.vps = 64;
    return config;
}

uint64_t sent_by(const Host& host, uint32_t port) {
    uint64_t packets = 0;
    for (const Link* link : host.port(port).links()) packets += link->stats().sent_packets;
    return packets;
}

// Returns the goodput of `flows` in Gb/s during one millisecond, after a millisecond that is not counted.
double goodput(Network& network, std::deque<Flow>& flows) {
    network.run_for(kMillisecond);
    uint64_t before = 0, after = 0;
    for (const Flow& flow : flows) before += flow.completed_bytes();
    network.run_for(kMillisecond);
    for (const Flow& flow : flows) after += flow.completed_bytes();
    return static_cast<double>(after - before) * 8 / 1e-3 / 1e9;
}

TEST(PortsTest, EveryRailHasItsAddressAndItsSwitch) {
    Network network;
    const LeafSpine clos = leaf_spine(network, with_ports({.count = 3, .separate = true}));
    ASSERT_EQ(clos.racks.size(), 6u);
    ASSERT_EQ(clos.hosts().size(), 4u);
    std::set<uint32_t> addresses;
    for (const Host* const host : clos.hosts()) {
        ASSERT_EQ(host->ports(), 3u);
        for (uint32_t port = 0; port < 3; ++port) {
            ASSERT_EQ(host->port(port).links().size(), 1u);
            addresses.insert(host->port(port).index());
        }
    }
    EXPECT_EQ(addresses.size(), 12u);
    for (size_t rack = 0; rack < 6; ++rack) {
        EXPECT_EQ(clos.racks[rack].hosts.size(), rack % 3 == 0 ? 2u : 0u);
        EXPECT_EQ(clos.racks[rack].access.size(), 2u);
    }
    EXPECT_EQ(&clos.hosts()[3]->port(2).links().front()->to(), clos.racks[5].tor);
}

TEST(PortsTest, EveryRailIsFilledByItsFlows) {
    for (const bool separate : {false, true}) {
        for (const bool multipath : {false, true}) {
            Network network;
            const LeafSpine clos = leaf_spine(network, with_ports({.count = 2, .separate = separate}));
            const std::vector<Host*> hosts = clos.hosts();
            std::deque<Flow> flows;
            for (uint32_t port = 0; port < 2; ++port)
                flows
                    .emplace_back(network, *hosts[0], *hosts[3],
                                  FlowConfig{.qp = {.multipath = multipath, .port = port}})
                    .start();
            // With the two headers of mp, 1024 of 1126 bytes on the wire are payload.
            EXPECT_GT(goodput(network, flows), 2 * 40 * 0.9) << separate << multipath;
            EXPECT_LT(goodput(network, flows), 2 * 40.0);
            EXPECT_NEAR(static_cast<double>(sent_by(*hosts[0], 0)), static_cast<double>(sent_by(*hosts[0], 1)),
                        0.02 * static_cast<double>(sent_by(*hosts[0], 0)));
            EXPECT_EQ(sent_by(*hosts[1], 0) + sent_by(*hosts[1], 1), 0u);
            check_conservation(network);
        }
    }
}

TEST(PortsTest, ARailThatIsHeldBackDoesNotHoldTheOther) {
    Network network;
    const LeafSpine clos = leaf_spine(network, with_ports({.count = 2}));
    const std::vector<Host*> hosts = clos.hosts();
    std::deque<Flow> flows;
    for (uint32_t port = 0; port < 2; ++port)
        flows.emplace_back(network, *hosts[0], *hosts[3], FlowConfig{.qp = {.port = port}}).start();
    network.run_for(100 * kMicrosecond);
    hosts[0]->port(0).links().front()->reverse().send_pfc(true);
    network.run_for(20 * kMicrosecond);
    const uint64_t paused = sent_by(*hosts[0], 0), open = sent_by(*hosts[0], 1);
    network.run_for(kMillisecond);
    EXPECT_LE(sent_by(*hosts[0], 0), paused + 1);
    EXPECT_GT(static_cast<double>(sent_by(*hosts[0], 1) - open), 0.95 * 40e9 * 1e-3 / 8 / 1106);
}

TEST(PortsTest, ABondCarriesManyPathsOverAllItsCables) {
    for (const bool separate : {false, true}) {
        Network network;
        const Ports ports{.count = 2, .separate = separate, .bonded = true};
        const LeafSpine clos = leaf_spine(network, with_ports(ports));
        const std::vector<Host*> hosts = clos.hosts();
        ASSERT_EQ(hosts[0]->ports(), 1u);
        ASSERT_EQ(hosts[0]->links().size(), 2u);
        std::deque<Flow> flows;
        flows.emplace_back(network, *hosts[0], *hosts[3], FlowConfig{.qp = {.multipath = true}}).start();
        EXPECT_GT(goodput(network, flows), 1.7 * 40 * 0.9) << separate;
        check_conservation(network);
    }
}

TEST(PortsTest, AFlowWithOnePathUsesOneCableOfABond) {
    Network network;
    const LeafSpine clos = leaf_spine(network, with_ports({.count = 2, .bonded = true}));
    const std::vector<Host*> hosts = clos.hosts();
    std::deque<Flow> flows;
    flows.emplace_back(network, *hosts[0], *hosts[3]).start();
    EXPECT_LT(goodput(network, flows), 40.0);
    const auto& links = hosts[0]->links();
    EXPECT_EQ(std::min(links[0]->stats().sent_packets, links[1]->stats().sent_packets), 0u);
}

TEST(PortsTest, ABondLivesOnWithOneCable) {
    Network network;
    const LeafSpine clos = leaf_spine(network, with_ports({.count = 2, .separate = true, .bonded = true}));
    const std::vector<Host*> hosts = clos.hosts();
    std::deque<Flow> flows;
    flows.emplace_back(network, *hosts[0], *hosts[3]).start();
    network.run_for(100 * kMicrosecond);
    const bool second = hosts[0]->links()[0]->stats().sent_packets == 0;
    const Cable used{*hosts[0]->links()[second], hosts[0]->links()[second]->reverse()};
    used.set_up(false);
    network.reroute();
    network.run_for(20 * kMillisecond);  // time for timeouts
    const uint64_t before = flows.front().completed_bytes();
    network.run_for(kMillisecond);
    EXPECT_GT(static_cast<double>(flows.front().completed_bytes() - before) * 8 / 1e-3, 0.85 * 40e9);
    check_conservation(network);
}

TEST(PortsTest, EveryByteArrivesOverRailsAndBonds) {
    for (const bool bonded : {false, true}) {
        Network network(3, Carry::kBytes);
        const LeafSpine clos = leaf_spine(network, with_ports({.count = 2, .separate = true, .bonded = bonded}));
        const std::vector<Host*> hosts = clos.hosts();
        std::deque<Transfer> transfers;
        for (uint32_t port = 0; port < hosts[0]->ports(); ++port) {
            for (const bool multipath : {false, true})
                transfers.emplace_back(network, *hosts[0], *hosts[2], port + 7, 500'000, multipath, port).start();
        }
        network.run_until(50 * kMillisecond);
        for (const Transfer& transfer : transfers) EXPECT_TRUE(transfer.done() && transfer.icrc_matches());
        EXPECT_EQ(hosts[2]->frames(wire::ParseError::kIcrc), 0u);
        check_conservation(network);
    }
}

// Runs four flows one after the other, and returns the time of each as a multiple of the ideal time. If there is a
// second port, appends to `by_second` the number of packets that it has sent after each flow.
std::vector<double> times_of_four_flows(uint64_t seed, bool bonded, std::vector<uint64_t>& by_second) {
    Network network(seed);
    const LeafSpine clos = leaf_spine(network, with_ports({.count = 2, .bonded = bonded}));
    std::vector<FlowSpec> flows;
    for (uint32_t i = 0; i < 4; ++i)
        flows.push_back({.from = 0, .to = 3, .bytes = 4'000'000, .start = i * 10 * kMillisecond});
    Workload workload(network, clos.hosts(), flows, {.qp = {.multipath = true}});
    std::vector<double> ratios;
    workload.on_record = [&](const FlowRecord& record) {
        ratios.push_back(static_cast<double>(record.took) / static_cast<double>(record.ideal));
        if (!bonded) by_second.push_back(sent_by(*clos.hosts()[0], 1));
    };
    network.run_until(kSecond);
    return ratios;
}

TEST(PortsTest, FlowsTakeRailsInTurn) {
    std::vector<uint64_t> by_second{0};
    const std::vector<double> ratios = times_of_four_flows(1, false, by_second);
    ASSERT_EQ(ratios.size(), 4u);
    for (const double ratio : ratios) {
        EXPECT_GT(ratio, 0.98);
        EXPECT_LT(ratio, 1.06);
    }
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(by_second[i + 1] > by_second[i], i % 2 == 1) << i;
}

// Neither marks nor losses tell a sender that the cables are loaded unevenly, so a flow is slower by the chance of its
// first paths.
TEST(PortsTest, TheIdealTimeOfABondIsThatOfAllItsCables) {
    constexpr uint64_t kSeeds = 10;
    double sum = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        std::vector<uint64_t> by_second;
        const std::vector<double> ratios = times_of_four_flows(seed, true, by_second);
        ASSERT_EQ(ratios.size(), 4u);
        for (const double ratio : ratios) {
            EXPECT_GT(ratio, 0.98) << seed;
            EXPECT_LT(ratio, 1.5) << seed;
            sum += ratio;
        }
    }
    EXPECT_LT(sum / (4 * kSeeds), 1.1);
}

TEST(PortsTest, WhatIsRefused) {
    Network network;
    EXPECT_THROW(single_switch(network, {.hosts = 2, .ports = {.count = 2, .separate = true}}), std::invalid_argument);
    Network other;
    Host& host = other.add_host();
    Switch &one = other.add_switch(), &two = other.add_switch();
    other.connect(one, two, {});
    other.connect(host, one, {});
    other.connect(host, two, {});
    EXPECT_THROW(other.route_by_paths(2), std::invalid_argument);
}

}  // namespace
}  // namespace rove::fabric
