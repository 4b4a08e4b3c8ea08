// SPDX-License-Identifier: Apache-2.0
// Tests the mp engines over the modelled network: verified data over many paths, the paths that they use, and IRN with
// its single path. (Traces: rc_test.cc.)
#include <gtest/gtest.h>

#include <deque>

#include "fabric/flow.h"
#include "fabric/topology.h"
#include "transfer.h"

namespace rove::fabric {
namespace {

using transport::Counter;

TEST(Mp, verified_data_through_a_lossy_leaf_spine) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
        Network network(seed, Carry::kBytes);
        LeafSpineConfig config{.leaves = 2, .spines = 4, .rack = {.hosts = 2}};
        config.uplink = {.loss = 0.005, .corruption = 0.005};
        const LeafSpine clos = leaf_spine(network, config);
        std::deque<Transfer> transfers;
        uint64_t flow = 0;
        for (const auto& [from, to] : permutation(clos, network.world().new_stream())) {
            transfers.emplace_back(network, *from, *to, seed * 10 + flow++, 1 << 20, true).start();
            transfers.emplace_back(network, *to, *from, seed * 10 + flow++, 1 << 20, true).start();
        }
        network.run_until(10 * kSecond);
        for (const Transfer& transfer : transfers) {
            EXPECT_TRUE(transfer.done());
            EXPECT_TRUE(transfer.icrc_matches());
        }
        EXPECT_GT(network.total(&LinkStats::lost_packets), 20u);
    }
}

// A flow over four paths of 10 Gb/s. Records the packets that each path carried, in both directions.
struct FourPaths : testing::Test {
    static constexpr Time kRun = 20 * kMillisecond;
    Network network{1};
    TwoRacks racks;

    double goodput(const transport::PathsConfig& paths, const std::vector<double>& loss = {0, 0, 0, 0}) {
        std::vector<PathConfig> cables;
        const Red red{1.0, 20'000, 20'000};
        for (const double each : loss) cables.push_back({{.bits_per_s = 10 * kGbps, .loss = each}, red});
        RackConfig rack;
        rack.host.transport.paths = paths;
        racks = parallel_paths(network, rack, cables);
        Flow flow(network, *racks.left.hosts[0], *racks.right.hosts[0], {.qp = {.multipath = true}});
        flow.start();
        network.run_until(kRun);
        EXPECT_EQ(flow.status(), IBV_WC_SUCCESS);
        return static_cast<double>(flow.completed_bytes()) * 8 / (static_cast<double>(kRun) / kSecond) / kGbps;
    }
};

TEST_F(FourPaths, all_are_used_both_ways) {
    EXPECT_GT(goodput({}), 0.8 * 40 * 1024 / 1130);
    for (const Cable& path : racks.paths) {
        EXPECT_GT(path.forward.stats().sent_packets, 10'000u);
        EXPECT_GT(path.backward.stats().sent_packets, 1000u);
    }
    EXPECT_NE(racks.left.hosts[0]->multipath(), nullptr);
}

transport::PathsConfig irn() {
    return {.control = transport::PathsConfig::Control::kFixed, .first_vp = 0, .vps = 1, .initial_window = 32};
}

TEST_F(FourPaths, irn_keeps_to_one) {
    EXPECT_GT(goodput(irn()), 0.95 * 10 * 1024 / 1130);
    uint32_t forward = 0, backward = 0;
    for (const Cable& path : racks.paths) {
        forward += path.forward.stats().sent_packets != 0;
        backward += path.backward.stats().sent_packets != 0;
    }
    EXPECT_EQ(forward, 1u);
    EXPECT_EQ(backward, 1u);
}

TEST_F(FourPaths, irn_repeats_what_was_lost_and_no_more) {
    EXPECT_GT(goodput(irn(), {0.01, 0.01, 0.01, 0.01}), 0.9 * 10 * 1024 / 1130);
    const uint64_t lost = network.total(&LinkStats::lost_packets);
    EXPECT_GT(lost, 100u);
    EXPECT_LE(racks.left.hosts[0]->counters()[Counter::kRetransmittedPackets], lost * 21 / 20);
}

}  // namespace
}  // namespace rove::fabric
