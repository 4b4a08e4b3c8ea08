// SPDX-License-Identifier: Apache-2.0
// Tests congestion controls and path selections other than MP-RDMA's (BX-5) over the modelled network.
#include <gtest/gtest.h>

#include <deque>

#include "fabric/flow.h"
#include "fabric/topology.h"

namespace rove::fabric {
namespace {

using Control = transport::PathsConfig::Control;
using Choice = transport::PathsConfig::Choice;

// Four flows share one link of 40 Gb/s.
class ControlOfWindows : public ::testing::TestWithParam<Control> {};

TEST_P(ControlOfWindows, flows_share_a_bottleneck_and_keep_it_busy) {
    constexpr uint32_t kFlows = 4;
    Network network(1);
    RackConfig config;
    config.hosts = kFlows + 1;
    config.tor.red = {0.2, 20'000, 100'000};
    config.tor.pfc = Pfc{};
    config.host.transport.paths = {.control = GetParam(), .first_vp = 0, .vps = 1, .initial_window = 32};
    const Rack rack = single_switch(network, config);
    Link& bottleneck = rack.access[0].backward;
    std::deque<Flow> all;
    for (uint32_t i = 1; i <= kFlows; ++i)
        all.emplace_back(network, *rack.hosts[i], *rack.hosts[0], FlowConfig{.qp = {.multipath = true}}).start();
    network.run_for(10 * kMillisecond);
    std::vector<uint64_t> before;
    for (const Flow& flow : all) before.push_back(flow.completed_bytes());
    const uint64_t sent_before = bottleneck.stats().sent_bytes, waited = bottleneck.queued_bytes();
    constexpr Time kRun = 20 * kMillisecond;
    network.run_for(kRun);
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < kFlows; ++i) {
        const double rate = static_cast<double>(all[i].completed_bytes() - before[i]);
        sum += rate;
        squares += rate * rate;
    }
    const auto sent = static_cast<double>(bottleneck.stats().sent_bytes - sent_before);
    const double busy = sent * 8 / (40e9 * static_cast<double>(kRun) / kSecond);
    EXPECT_GT(busy, 0.9);
    EXPECT_GT(sum * sum / (kFlows * squares), 0.95) << "Jain's index";
    EXPECT_EQ(network.total(&LinkStats::dropped_packets), 0u);
    EXPECT_LT(waited, 200'000u);
}

INSTANTIATE_TEST_SUITE_P(All, ControlOfWindows, ::testing::Values(Control::kDcqcn, Control::kNscc));

// Four paths of 10 Gb/s for a host with 40 Gb/s. One path may be slow, or die.
struct Unequal : testing::Test {
    double goodput(Control control, Choice choice, uint64_t slow_rate, bool dies) {
        Network network(1);
        std::vector<PathConfig> cables(4, {{.bits_per_s = 10 * kGbps}, Red{1.0, 20'000, 20'000}});
        cables[0].link.bits_per_s = slow_rate;
        RackConfig rack;
        rack.host.transport.paths = {.control = control, .choice = choice, .initial_window = 64};
        const TwoRacks racks = parallel_paths(network, rack, cables);
        Flow flow(network, *racks.left.hosts[0], *racks.right.hosts[0], {.qp = {.multipath = true}});
        flow.start();
        network.run_until(5 * kMillisecond);
        if (dies) racks.paths[0].set_up(false);
        const uint64_t before = flow.completed_bytes();
        network.run_for(20 * kMillisecond);
        EXPECT_EQ(flow.status(), IBV_WC_SUCCESS);
        freezes = racks.left.hosts[0]->multipath()->paths.counters().freezes;
        return static_cast<double>(flow.completed_bytes() - before) * 8 / 20e6;  // Gb/s
    }
    uint64_t freezes = 0;
};

TEST_F(Unequal, BX7_recycled_paths_leave_a_slow_one_alone) {
    const double reps = goodput(Control::kFixed, Choice::kReps, kGbps, false);
    const double random = goodput(Control::kFixed, Choice::kRandom, kGbps, false);
    EXPECT_GT(reps, 1.5 * random) << reps << " and " << random;
}

TEST_F(Unequal, BX8_a_dead_path_is_left_alone_at_once) {
    const double random = goodput(Control::kNscc, Choice::kRandom, 10 * kGbps, true);
    const double reps = goodput(Control::kNscc, Choice::kReps, 10 * kGbps, true);
    EXPECT_GT(freezes, 0u);
    EXPECT_GT(reps, 1.2 * random) << reps << " and " << random;
    EXPECT_GT(reps, 15) << "of 30 Gb/s";
}

// Eight hosts send to one host, through a queue of 50 KB and without PFC.
TEST(Trimming, BX10_what_is_trimmed_comes_again_without_a_timer) {
    Network network(1);
    RackConfig config;
    config.hosts = 9;
    config.tor.queue_bytes = 50'000;
    config.tor.red = {1.0, 20'000, 20'000};
    config.tor.trim = Trim{};
    config.host.control_class = true;
    config.host.transport.paths = {.control = Control::kNscc, .choice = Choice::kReps, .initial_window = 64};
    const Rack rack = single_switch(network, config);
    std::deque<Flow> all;
    for (uint32_t i = 1; i < config.hosts; ++i) {
        all.emplace_back(network, *rack.hosts[i], *rack.hosts[0],
                         FlowConfig{.message_bytes = 1 << 20, .messages = 1, .qp = {.multipath = true}})
            .start();
    }
    network.run_until(10 * kMillisecond);
    uint64_t timeouts = 0;
    for (uint32_t i = 1; i < config.hosts; ++i) timeouts += rack.hosts[i]->multipath()->paths.counters().resent_timeout;
    for (const Flow& flow : all) {
        EXPECT_TRUE(flow.ended());
        EXPECT_EQ(flow.status(), IBV_WC_SUCCESS);
    }
    EXPECT_GT(rack.hosts[0]->trimmed_frames(), 100u);
    EXPECT_EQ(timeouts, 0u);
}

// With one packet in flight per sender, there are five times as many packets as the path and the queue hold.
TEST(LargeIncast, BX11_less_is_refused_than_arrives) {
    constexpr uint32_t kSenders = 256, kPackets = 20, kMtu = 1024;
    Network network(1);
    RackConfig config;
    config.hosts = kSenders + 1;
    config.tor.queue_bytes = 40'000;
    config.tor.red = {1.0, 8'000, 32'000};
    config.tor.trim = Trim{.queue_bytes = 600'000};
    config.host.control_class = true;
    config.host.transport.paths = {.control = Control::kNscc, .choice = Choice::kReps, .initial_window = 16};
    const Rack rack = single_switch(network, config);
    std::deque<Flow> all;
    for (uint32_t i = 1; i <= kSenders; ++i) {
        all.emplace_back(
               network, *rack.hosts[i], *rack.hosts[0],
               FlowConfig{.message_bytes = kPackets * kMtu, .messages = 1, .qp = {.multipath = true, .mtu = kMtu}})
            .start();
    }
    network.run_until(2 * kMillisecond);  // the packets alone take 1.2 ms
    for (const Flow& flow : all) EXPECT_TRUE(flow.ended());
    EXPECT_LT(rack.hosts[0]->trimmed_frames(), kSenders * kPackets);
}

}  // namespace
}  // namespace rove::fabric
