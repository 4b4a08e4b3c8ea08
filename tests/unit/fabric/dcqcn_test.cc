// SPDX-License-Identifier: Apache-2.0
// Tests rc over RED and PFC, with DCQCN and with the default control: flows share a bottleneck, and keep it busy.
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <tuple>

#include "fabric/flow.h"
#include "fabric/topology.h"

namespace rove::fabric {
namespace {

class Bottleneck : public ::testing::TestWithParam<std::tuple<uint32_t, bool>> {};

TEST_P(Bottleneck, flows_use_it_and_nobody_starves) {
    const auto [flows, adaptive] = GetParam();
    Network network(flows);
    RackConfig config;
    config.host.transport.adapts_window = adaptive;
    config.hosts = flows + 1;
    config.tor.red = {0.01, 5'000, 200'000};  // the DCQCN paper, section 5
    config.tor.pfc = Pfc{};
    const Rack rack = single_switch(network, config);
    Link& bottleneck = rack.access[0].backward;
    std::deque<Flow> all;
    for (uint32_t i = 1; i <= flows; ++i) all.emplace_back(network, *rack.hosts[i], *rack.hosts[0]).start();
    constexpr Time kWarm = 10 * kMillisecond, kRun = 40 * kMillisecond;
    network.run_for(kWarm);
    std::vector<uint64_t> before;
    for (const Flow& flow : all) before.push_back(flow.completed_bytes());
    const uint64_t sent_before = bottleneck.stats().sent_packets;
    network.run_for(kRun);
    double sum = 0, squares = 0, least = 1e18;
    for (uint32_t i = 0; i < flows; ++i) {
        const double rate = static_cast<double>(all[i].completed_bytes() - before[i]);
        sum += rate;
        squares += rate * rate;
        least = std::min(least, rate);
    }
    const double jain = sum * sum / (flows * squares);
    const double busy =
        static_cast<double>((bottleneck.stats().sent_packets - sent_before) * bottleneck.duration(1086)) / kRun;
    EXPECT_GT(busy, 0.95);
    EXPECT_LT(busy, 1.001);
    EXPECT_GT(jain, adaptive ? 0.95 : 0.98);
    EXPECT_GT(least * flows / sum, 0.8) << "of a fair share";
    EXPECT_EQ(network.total(&LinkStats::dropped_packets), 0u);
    EXPECT_GT(bottleneck.stats().marked_packets, 0u);
    EXPECT_GT(rack.hosts[1]->counters()[transport::Counter::kRxCnp], 0u);
}

INSTANTIATE_TEST_SUITE_P(Flows, Bottleneck, ::testing::Combine(::testing::Values(2, 3, 4, 6, 8), ::testing::Bool()),
                         [](const auto& info) {
                             return std::to_string(std::get<0>(info.param)) +
                                    (std::get<1>(info.param) ? "_adaptive" : "_dcqcn");
                         });

// Without marks, PFC alone slows the same flows.
TEST(Bottleneck, marks_keep_the_queue_short_and_pauses_rare) {
    uint64_t pauses[2], queue[2];
    for (const bool ecn : {false, true}) {
        Network network;
        RackConfig config;
        config.hosts = 5;
        config.host.transport.adapts_window = false;
        if (ecn) config.tor.red = {0.01, 5'000, 200'000};
        config.tor.pfc = Pfc{};
        const Rack rack = single_switch(network, config);
        std::deque<Flow> all;
        for (uint32_t i = 1; i < 5; ++i) all.emplace_back(network, *rack.hosts[i], *rack.hosts[0]).start();
        network.run_for(20 * kMillisecond);
        const uint64_t before = network.total(&LinkStats::pauses);
        uint64_t longest = 0;
        for (int i = 0; i < 1000; ++i) {
            network.run_for(20 * kMicrosecond);
            longest = std::max(longest, rack.access[0].backward.queued_bytes());
        }
        pauses[ecn] = network.total(&LinkStats::pauses) - before;
        queue[ecn] = longest;
    }
    EXPECT_GT(pauses[false], 100u);
    EXPECT_LT(pauses[true], pauses[false] / 10);
    EXPECT_LT(queue[true], queue[false]);
}

}  // namespace
}  // namespace rove::fabric
