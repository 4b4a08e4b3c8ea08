// SPDX-License-Identifier: Apache-2.0
// Tests how switches spread packets: equally, by queue length, or by the pauses of a flow.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>

#include "fabric/probe.h"
#include "fabric/topology.h"

namespace rove::fabric {
namespace {

constexpr uint32_t kBytes = 1000, kPaths = 4;

// One sender, one receiver, and four paths between two switches. The first switch chooses the path.
struct Fan {
    explicit Fan(Balancer balancer, uint64_t slow_bits_per_s = 0, uint64_t seed = 1) : network(seed) {
        left = &network.add_switch({.balancer = balancer, .flowlet_gap = 50 * kMicrosecond});
        right = &network.add_switch({.balancer = balancer});
        network.connect(a, *left, {.bits_per_s = 100 * kGbps});
        network.connect(b, *right, {.bits_per_s = 100 * kGbps});
        for (uint32_t i = 0; i < kPaths; ++i) {
            const bool slow = slow_bits_per_s != 0 && i + 1 < kPaths;
            paths.push_back(
                &network.connect(*left, *right, {.bits_per_s = slow ? slow_bits_per_s : 100 * kGbps}).forward);
        }
        network.route();
    }
    // Sends `packets` packets of one flow, one per microsecond, and runs until the last has reached the switch.
    void send(uint32_t packets, uint64_t flow = 1) {
        const Time start = network.now();
        for (uint32_t i = 0; i < packets; ++i)
            network.at(start + (i + 1) * kMicrosecond, [this, flow] { a.send(b, kBytes, flow); });
        network.run_for((packets + 3) * kMicrosecond);
    }
    std::array<uint64_t, kPaths> enqueued() const {
        std::array<uint64_t, kPaths> counts{};
        for (uint32_t i = 0; i < kPaths; ++i) counts[i] = paths[i]->stats().enqueued_packets;
        return counts;
    }

    Network network;
    Probe& a = network.add<Probe>();
    Probe& b = network.add<Probe>();
    Switch *left, *right;
    std::vector<Link*> paths;
};

double chi_square(std::span<const uint64_t> counts) {
    double sum = 0;
    for (const uint64_t count : counts) sum += static_cast<double>(count);
    const double expected = sum / static_cast<double>(counts.size());
    double chi = 0;
    for (const uint64_t count : counts) {
        const double off = static_cast<double>(count) - expected;
        chi += off * off / expected;
    }
    return chi;
}
constexpr double kChi3 = 16.3;  // three degrees of freedom: chance exceeds it once in a thousand cases

TEST(Balancers, two_of_draws_all_pairs_alike) {
    Random random(1, 2);
    std::array<uint64_t, 16> counts{};
    for (int i = 0; i < 12'000; ++i) {
        const auto [one, other] = two_of(4, random);
        ASSERT_NE(one, other);
        ASSERT_LT(std::max(one, other), 4u);
        ++counts[one * 4 + other];
    }
    std::vector<uint64_t> pairs;
    for (uint32_t i = 0; i < 16; ++i) {
        if (i / 4 != i % 4) pairs.push_back(counts[i]);
    }
    EXPECT_LT(chi_square(pairs), 31.3) << "eleven degrees of freedom, once in a thousand";
}

TEST(Balancers, ecmp_keeps_a_flow_together) {
    Fan fan(Balancer::kEcmp);
    fan.send(100);
    const auto counts = fan.enqueued();
    EXPECT_EQ(std::ranges::count(counts, 0u), 3);
    EXPECT_EQ(std::ranges::count(counts, 100u), 1);
}

TEST(Balancers, spray_takes_turns) {
    Fan fan(Balancer::kSpray);
    for (uint32_t round = 1; round <= 25; ++round) {
        fan.send(4);
        EXPECT_EQ(std::ranges::count(fan.enqueued(), round), 4) << "each path once in every round";
    }
}

TEST(Balancers, random_is_uniform_and_not_in_turn) {
    Fan fan(Balancer::kRandom);
    fan.send(8000);
    EXPECT_LT(chi_square(fan.enqueued()), kChi3);
    EXPECT_GT(chi_square(fan.enqueued()), 0.1) << "more even than chance";
}

TEST(Balancers, power_of_two_takes_the_shorter_queue) {
    // Three paths are almost stopped, with packets in their queues. Of the 6 pairs that may be drawn, 3 contain the
    // fourth path.
    Fan fan(Balancer::kPowerOfTwo, kGbps / 1000);
    fan.send(50);
    const auto before = fan.enqueued();
    constexpr uint32_t kPackets = 4000;
    fan.send(kPackets);
    const double free = static_cast<double>(fan.enqueued()[3] - before[3]);
    EXPECT_NEAR(free, kPackets / 2, 4 * 31.6) << "binomial, four deviations";
}

TEST(Balancers, power_of_two_is_uniform_when_all_are_alike) {
    Fan fan(Balancer::kPowerOfTwo);
    fan.send(8000);
    EXPECT_LT(chi_square(fan.enqueued()), kChi3);
}

TEST(Balancers, drill_remembers_the_best) {
    Fan fan(Balancer::kDrill, kGbps / 1000);
    fan.send(50);
    const auto before = fan.enqueued();
    fan.send(1000);
    EXPECT_EQ(fan.enqueued()[3] - before[3], 1000u) << "no queue is shorter than the one that is empty";
}

TEST(Balancers, drill_remembers_the_best_by_destination) {
    // This works as in ConWeave's simulator: where no queue is shorter, each of many destinations keeps its path.
    Network network(11);
    Switch& left = network.add_switch({.balancer = Balancer::kDrillByDestination});
    Switch& right = network.add_switch({.balancer = Balancer::kDrillByDestination});
    Probe& from = network.add<Probe>();
    network.connect(from, left, {.bits_per_s = 10 * kGbps});
    std::vector<Probe*> to;
    for (uint32_t i = 0; i < 32; ++i) {
        to.push_back(&network.add<Probe>());
        network.connect(right, *to.back(), {.bits_per_s = 10 * kGbps});
    }
    std::vector<Link*> paths;
    for (uint32_t i = 0; i < kPaths; ++i) paths.push_back(&network.connect(left, right, {}).forward);
    network.route();
    const auto enqueued = [&] {
        std::vector<uint64_t> packets;
        for (const Link* path : paths) packets.push_back(path->stats().enqueued_packets);
        return packets;
    };
    std::set<size_t> used;
    for (Probe* each : to) {
        const auto before = enqueued();
        for (uint32_t i = 0; i < 10; ++i) {
            from.send(*each, kBytes, i);
            network.run_for(100 * kMicrosecond);
        }
        for (size_t path = 0; path < kPaths; ++path) {
            if (enqueued()[path] == before[path]) continue;
            EXPECT_EQ(enqueued()[path] - before[path], 10u);
            used.insert(path);
        }
    }
    EXPECT_EQ(used.size(), kPaths);
}

// Returns the longest queue that a balancer leaves, with four senders at the rate of the four paths.
uint64_t longest_queue(Balancer balancer) {
    Network network(5);
    Switch& left = network.add_switch({.balancer = balancer});
    Switch& right = network.add_switch({.balancer = balancer});
    std::vector<Probe*> from, to;
    std::vector<Link*> paths;
    Random random(3, 3);
    for (uint32_t i = 0; i < kPaths; ++i) {
        from.push_back(&network.add<Probe>());
        to.push_back(&network.add<Probe>());
        network.connect(*from[i], left, {.bits_per_s = 10 * kGbps});
        network.connect(*to[i], right, {.bits_per_s = 10 * kGbps});
        paths.push_back(&network.connect(left, right, {.bits_per_s = 10 * kGbps}).forward);
    }
    network.route();
    for (uint32_t i = 0; i < 3000; ++i) {
        for (uint32_t j = 0; j < kPaths; ++j) from[j]->send(*to[j], kBytes, random.below(1000));
    }
    network.run_until(10 * kMillisecond);
    uint64_t longest = 0;
    for (const Link* path : paths) longest = std::max(longest, path->stats().max_queued_bytes);
    return longest / kBytes;
}

TEST(Balancers, what_looks_at_queues_keeps_them_short) {
    // At full load, a random choice makes each queue a random walk. Choices by queue length keep all four queues equal.
    const uint64_t at_random = longest_queue(Balancer::kRandom);
    EXPECT_GT(at_random, 40u);
    EXPECT_LE(longest_queue(Balancer::kSpray), 4u);
    EXPECT_LE(longest_queue(Balancer::kPowerOfTwo), 8u);
    EXPECT_LE(longest_queue(Balancer::kDrill), 8u);
    EXPECT_LE(longest_queue(Balancer::kDrillByDestination), 40u);
    EXPECT_GT(longest_queue(Balancer::kEcmp), at_random / 4);
}

TEST(Balancers, letflow_moves_a_flow_only_after_a_gap) {
    Fan fan(Balancer::kLetFlow);
    std::vector<uint32_t> ways;
    constexpr uint32_t kFlowletsSent = 400, kPackets = 5;
    auto before = fan.enqueued();
    for (uint32_t i = 0; i < kFlowletsSent; ++i) {
        fan.send(kPackets);
        fan.network.run_for(60 * kMicrosecond);  // longer than the flowlet gap
        const auto after = fan.enqueued();
        uint32_t used = 0;
        for (uint32_t path = 0; path < kPaths; ++path) {
            if (after[path] == before[path]) continue;
            ++used;
            EXPECT_EQ(after[path] - before[path], kPackets);
            ways.push_back(path);
        }
        EXPECT_EQ(used, 1u);
        before = after;
    }
    EXPECT_LT(chi_square(before), kChi3 * kPackets) << "flowlets of five packets each";
    uint32_t moved = 0;
    for (size_t i = 1; i < ways.size(); ++i) moved += ways[i] != ways[i - 1];
    EXPECT_NEAR(moved, 0.75 * kFlowletsSent, 4 * 8.7) << "binomial, four deviations";
    // With pauses just below the gap, the flow stays on its path.
    for (uint32_t i = 0; i < 50; ++i) {
        fan.send(1);
        fan.network.run_for(45 * kMicrosecond);
    }
    const auto last = fan.enqueued();
    uint32_t used = 0;
    for (uint32_t path = 0; path < kPaths; ++path) used += last[path] != before[path];
    EXPECT_EQ(used, 1u);
}

TEST(Balancers, acknowledgements_keep_to_their_flow) {
    for (const Balancer balancer :
         {Balancer::kSpray, Balancer::kRandom, Balancer::kPowerOfTwo, Balancer::kDrill, Balancer::kDrillByDestination,
          Balancer::kLetFlow, Balancer::kConga, Balancer::kConWeave}) {
        Fan fan(balancer);
        const uint32_t expected = fan.left->next_hop(77, fan.b.index());
        for (uint32_t i = 0; i < 20; ++i) {
            fan.a.send_control(fan.b, 77, i % 2 == 0);
            fan.network.run_for(100 * kMicrosecond);
        }
        EXPECT_EQ(fan.left->links()[expected]->stats().enqueued_packets, 20u);
    }
}

TEST(Balancers, the_same_seed_is_the_same_run) {
    const auto trace = [](Balancer balancer, uint64_t seed) {
        Fan fan(balancer, 5 * kGbps, seed);
        std::vector<std::pair<Time, const void*>> seen;
        fan.network.world().trace = [&](TraceEvent, const Link& link, const Packet&) {
            const auto path = std::ranges::find(fan.paths, &link) - fan.paths.begin();
            seen.emplace_back(fan.network.now(), reinterpret_cast<const void*>(path));
        };
        fan.send(500);
        return seen;
    };
    for (const Balancer balancer :
         {Balancer::kSpray, Balancer::kRandom, Balancer::kPowerOfTwo, Balancer::kDrill, Balancer::kDrillByDestination,
          Balancer::kLetFlow, Balancer::kConga, Balancer::kConWeave}) {
        EXPECT_EQ(trace(balancer, 1), trace(balancer, 1));
    }
    EXPECT_NE(trace(Balancer::kRandom, 1), trace(Balancer::kRandom, 2));
}

// Balls in bins: five flows use 4 (1 - (3/4)^5) = 3.05 of four paths.
TEST(Balancers, ecmp_collisions_are_balls_in_bins) {
    Fan fan(Balancer::kEcmp);
    Random random(9, 9);
    constexpr int kDraws = 20'000;
    double used = 0;
    for (int i = 0; i < kDraws; ++i) {
        std::set<uint32_t> ways;
        for (int flow = 0; flow < 5; ++flow) ways.insert(fan.left->next_hop(random.next(), fan.b.index()));
        used += static_cast<double>(ways.size());
    }
    EXPECT_NEAR(used / kDraws, 3.0508, 4 * 0.64 / std::sqrt(kDraws));  // four standard deviations of the mean
}

}  // namespace
}  // namespace rove::fabric
