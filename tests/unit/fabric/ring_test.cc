// SPDX-License-Identifier: Apache-2.0
// Tests the ring all-reduce: its time in an otherwise empty network, and the dependencies of each step.
#include "fabric/ring.h"

#include <gtest/gtest.h>

#include "fabric/audit.h"
#include "fabric/topology.h"

namespace rove::fabric {
namespace {

constexpr Time kDelay = kMicrosecond;

RackConfig rack_of(uint32_t hosts) {
    RackConfig config{.hosts = hosts, .access = {.bits_per_s = 100 * kGbps, .delay = kDelay}};
    config.host.transport.paths.initial_window = 256;
    config.host.control_class = true;
    return config;
}

// Returns the time of `packets` packets of 1024 bytes over two links, with another formula than one_way_time()'s.
Time chunk_time(uint32_t packets, uint32_t header) {
    const Time each = (1024 + header + 20) * 8 * kSecond / (100 * kGbps);
    return (packets + 1) * each + 2 * kDelay;
}

TEST(RingTest, TakesAsLongAsItsStepsAtOneSwitch) {
    // Acknowledgements are sent before data, and each takes the time of a frame. rc sends one for several packets, mp
    // at most one per packet.
    struct Case {
        uint32_t hosts, packets;
        bool multipath;
    };
    for (const Case& with : {Case{2, 1, false}, Case{2, 100, false}, Case{8, 16, false}, Case{8, 64, true},
                             Case{32, 8, false}, Case{32, 8, true}}) {
        Network network;
        const Rack rack = single_switch(network, rack_of(with.hosts));
        Ring ring(network, rack.hosts,
                  {.bytes = uint64_t{with.hosts} * with.packets * 1024, .qp = {.multipath = with.multipath}});
        EXPECT_EQ(ring.chunk_bytes(), with.packets * 1024u);
        ring.start();
        network.run_until(100 * kMillisecond);
        ASSERT_TRUE(ring.done());
        const Time theory = 2 * (with.hosts - 1) * chunk_time(with.packets, with.multipath ? 86 : 62);
        const double ratio = static_cast<double>(ring.took()) / static_cast<double>(theory);
        // The model's clock counts picoseconds, the engine's nanoseconds, so a step may wait for the next nanosecond.
        EXPECT_GT(ratio, 0.995) << with.hosts << ' ' << with.packets << ' ' << with.multipath;
        EXPECT_LT(ratio, with.multipath ? 1.09 : 1.08) << with.hosts << ' ' << with.packets << ' ' << with.multipath;
        EXPECT_NEAR(static_cast<double>(ring.ideal()), static_cast<double>(theory), 0.01 * static_cast<double>(theory));
        check_conservation(network);
    }
}

TEST(RingTest, TheSlowestWayAroundCounts) {
    // Steps between racks take longer than steps within a rack. Each chunk travels around the ring twice, except for
    // two hops.
    Network network;
    LeafSpineConfig config{.leaves = 4, .spines = 4, .rack = rack_of(4)};
    config.uplink = {.bits_per_s = 100 * kGbps, .delay = 5 * kMicrosecond};
    const LeafSpine clos = leaf_spine(network, config);
    Ring ring(network, clos.hosts(), {.bytes = 16 * 8 * 1024});
    const Time each = (1024 + 62 + 20) * 8 * kSecond / (100 * kGbps);
    const Time within = 9 * each + 2 * kDelay, between = 11 * each + 2 * kDelay + 10 * kMicrosecond;
    // Eight of the 30 steps are between racks, because the two missing hops can both be within a rack.
    const Time theory = 8 * between + 22 * within;
    EXPECT_NEAR(static_cast<double>(ring.ideal()), static_cast<double>(theory), 100);
    ring.start();
    network.run_until(100 * kMillisecond);
    ASSERT_TRUE(ring.done());
    EXPECT_GT(static_cast<double>(ring.took()), 0.995 * static_cast<double>(theory));
    EXPECT_LT(static_cast<double>(ring.took()), 1.06 * static_cast<double>(theory));
}

TEST(RingTest, AStepBeginsWhenTheOneBeforeHasArrived) {
    constexpr uint32_t kHosts = 5;
    Network network;
    const Rack rack = single_switch(network, rack_of(kHosts));
    rack.access[2].set_rate(10 * kGbps);
    Ring ring(network, rack.hosts, {.bytes = kHosts * 3'000'000ull});  // in two pieces each
    EXPECT_EQ(ring.chunk_bytes(), 3'000'000u);
    std::array<std::vector<FlowRecord>, kHosts> of;
    ring.on_record = [&](const FlowRecord& record) { of[record.flow.from].push_back(record); };
    ring.start();
    network.run_until(kSecond);
    ASSERT_TRUE(ring.done());
    EXPECT_FALSE(ring.failed());
    for (uint32_t i = 0; i < kHosts; ++i) {
        ASSERT_EQ(of[i].size(), ring.steps());
        EXPECT_EQ(of[i][0].flow.start, 0u);
        for (uint32_t step = 1; step < ring.steps(); ++step) {
            const FlowRecord& before = of[(i + kHosts - 1) % kHosts][step - 1];
            const Time known = before.flow.start + before.took;
            EXPECT_LT(of[i][step].flow.start, known);
            EXPECT_GT(of[i][step].flow.start + 8 * kMicrosecond, known) << "an acknowledgement's way";
            EXPECT_EQ(before.flow.to, i);
        }
    }
    // The slow host receives and sends one chunk after the other: eight in each direction, at a tenth of the rate.
    EXPECT_GT(ring.took(), 8 * 2400 * kMicrosecond);
}

TEST(RingTest, SurvivesLossesAndItsSeedDecides) {
    const auto took = [](uint64_t seed) {
        Network network(seed);
        RackConfig config = rack_of(4);
        config.access.loss = 0.01;
        const Rack rack = single_switch(network, config);
        Ring ring(network, rack.hosts, {.bytes = 400'000, .qp = {.multipath = true}});
        ring.start();
        network.run_until(kSecond);
        EXPECT_TRUE(ring.done());
        check_conservation(network);
        return ring.took();
    };
    EXPECT_EQ(took(1), took(1));
    EXPECT_NE(took(1), took(2));
    Network network;
    EXPECT_THROW(Ring(network, {&network.add_host()}, {}), std::invalid_argument);
}

}  // namespace
}  // namespace rove::fabric
