// SPDX-License-Identifier: Apache-2.0
// Tests switches: path selection, buffer space, marks and pauses.
#include <algorithm>
#include <set>

#include "fabric/probe.h"
#include "fabric/topology.h"

namespace rove::fabric {
namespace {

constexpr uint32_t kBytes = 1000;

// An incast: several senders, one switch and one receiver, with equal links.
struct Incast {
    Incast(const SwitchConfig& config, uint32_t senders, Carry carry = Carry::kHeaders) : network(7, carry) {
        middle = &network.add_switch(config);
        receiver = &network.add<Probe>();
        out = &network.connect(*receiver, *middle, link).backward;
        for (uint32_t i = 0; i < senders; ++i) {
            from.push_back(&network.add<Probe>());
            in.push_back(&network.connect(*from.back(), *middle, link).forward);
        }
        network.route();
    }
    void send(uint32_t each) {
        for (uint32_t i = 0; i < each; ++i) {
            for (Probe* probe : from) probe->send(*receiver, kBytes, i);
        }
    }
    uint64_t drops() const { return network.total(&LinkStats::dropped_packets); }

    LinkConfig link{.bits_per_s = 10 * kGbps, .delay = kMicrosecond};
    Network network;
    Switch* middle;
    Probe* receiver;
    Link* out;
    std::vector<Probe*> from;
    std::vector<Link*> in;
};

TEST(Ecmp, a_flow_stays_on_its_path_and_flows_spread) {
    Network network;
    Probe& a = network.add<Probe>();
    Probe& b = network.add<Probe>();
    Switch& left = network.add_switch();
    Switch& right = network.add_switch();
    network.connect(a, left, {});
    network.connect(b, right, {});
    std::vector<Link*> paths;
    for (int i = 0; i < 4; ++i) paths.push_back(&network.connect(left, right, {}).forward);
    network.route();
    constexpr uint32_t kFlows = 4000, kPackets = 3;
    for (uint64_t flow = 0; flow < kFlows; ++flow) {
        std::vector<uint64_t> before;
        for (Link* path : paths) before.push_back(path->stats().sent_packets);
        for (uint32_t i = 0; i < kPackets; ++i) a.send(b, kBytes, flow);
        network.run_for(10 * kMicrosecond);
        for (size_t i = 0; i < 4; ++i) {
            const uint64_t sent = paths[i]->stats().sent_packets - before[i];
            ASSERT_TRUE(sent == 0 || sent == kPackets) << "flow " << flow << " is split";
        }
    }
    for (Link* path : paths) {
        EXPECT_NEAR(static_cast<double>(path->stats().sent_packets) / kPackets, 1000,
                    5 * 28);  // binomial, five standard deviations
    }
}

TEST(Ecmp, the_next_tier_uses_all_its_links) {
    // There are two tiers with 4 choices each. Without its own salt, each switch of the second tier would use only one
    // link.
    Network network;
    Probe& a = network.add<Probe>();
    Probe& b = network.add<Probe>();
    Switch& first = network.add_switch();
    Switch& last = network.add_switch();
    network.connect(a, first, {});
    network.connect(b, last, {});
    std::vector<Link*> second;
    for (int i = 0; i < 4; ++i) {
        Switch& middle = network.add_switch();
        network.connect(first, middle, {});
        for (int j = 0; j < 4; ++j) second.push_back(&network.connect(middle, last, {}).forward);
    }
    network.route();
    for (uint64_t flow = 0; flow < 1600; ++flow) a.send(b, kBytes, mix(flow));
    network.run_until(10 * kMillisecond);
    EXPECT_EQ(b.arrivals.size(), 1600u);
    for (Link* link : second) EXPECT_NEAR(static_cast<double>(link->stats().sent_packets), 100, 50);
}

TEST(Ecmp, the_source_port_is_the_path) {
    Network network(3);
    const std::array<PathConfig, 4> paths{};
    const TwoRacks racks = parallel_paths(network, {.hosts = 2}, paths);
    std::set<uint16_t> ports;
    for (const Cable& path : racks.paths) {
        const uint16_t port = network.source_port_via(path.forward, *racks.left.hosts[0], *racks.right.hosts[1]);
        EXPECT_EQ(port, network.source_port_via(path.forward, *racks.left.hosts[0], *racks.right.hosts[1]));
        ports.insert(port);
    }
    EXPECT_EQ(ports.size(), 4u);
    EXPECT_GE(*ports.begin(), 0xC000);
}

TEST(RedTest, marks_by_the_length_of_the_queue) {
    Random random(1, 1);
    const Red red{0.8, 20'000, 200'000};
    const auto ratio = [&](uint64_t queued) {
        constexpr int kDraws = 100'000;
        int marks = 0;
        for (int i = 0; i < kDraws; ++i) marks += red.marks(queued, random);
        return static_cast<double>(marks) / kDraws;
    };
    EXPECT_EQ(ratio(0), 0);
    EXPECT_EQ(ratio(20'000), 0);
    EXPECT_NEAR(ratio(65'000), 0.2, 0.0065);  // five standard deviations
    EXPECT_NEAR(ratio(110'000), 0.4, 0.0078);
    EXPECT_NEAR(ratio(200'000), 0.8, 0.0064);
    EXPECT_EQ(ratio(200'001), 1);
    const Red dctcp{1.0, 20'000, 20'000};
    EXPECT_FALSE(dctcp.marks(20'000, random));
    EXPECT_TRUE(dctcp.marks(20'001, random));
    EXPECT_FALSE(Red{}.marks(UINT64_MAX, random)) << "off unless it is configured";
}

TEST(RedTest, a_standing_queue_is_marked_and_only_what_is_ect) {
    for (const uint8_t ecn : {wire::kEcnEct0, wire::kEcnNotEct}) {
        Incast incast({.red = {0.8, 0, 100'000}}, 2);
        constexpr uint32_t kPackets = 20'000, kStanding = 50;
        for (uint32_t i = 0; i < kStanding; ++i) incast.from[1]->send(*incast.receiver, kBytes, i, ecn);
        for (uint32_t i = 0; i < kPackets; ++i) incast.from[0]->send(*incast.receiver, kBytes, i, ecn);
        incast.network.run_until(kSecond);
        const LinkStats& stats = incast.out->stats();
        EXPECT_NEAR(static_cast<double>(stats.max_queued_bytes), (kStanding + 0.5) * kBytes, kBytes / 2);
        EXPECT_EQ(stats.enqueued_packets, kPackets + kStanding);
        const double expected = ecn == wire::kEcnEct0 ? 0.8 * 0.5 * kPackets : 0;
        // The tolerance is 2 %, for 49 or 51 packets in the queue.
        EXPECT_NEAR(static_cast<double>(stats.marked_packets), expected, 0.025 * expected);
        EXPECT_EQ(std::ranges::count_if(incast.receiver->arrivals, &Probe::Arrival::ce),
                  static_cast<ptrdiff_t>(stats.marked_packets));
    }
}

TEST(Buffer, static_threshold_is_exact) {
    Incast incast({.queue_bytes = 10 * kBytes}, 8);
    incast.send(100);
    incast.network.run_until(kMillisecond);
    EXPECT_EQ(incast.out->stats().max_queued_bytes, 10u * kBytes);
    EXPECT_EQ(incast.out->stats().dropped_packets + incast.receiver->arrivals.size(), 800u);
    EXPECT_GT(incast.drops(), 600u) << "eight times what leaves comes in";
}

TEST(Buffer, dynamic_threshold_leaves_room_for_others) {
    // With alpha 1, one full queue takes half of the buffer, and two take a third each.
    for (const size_t queues : {1, 2}) {
        Network network;
        Switch& middle = network.add_switch({.buffer_bytes = 300 * kBytes, .alpha = 1});
        std::vector<Probe*> from, to;
        std::vector<Link*> out;
        for (size_t i = 0; i < queues; ++i) {
            from.push_back(&network.add<Probe>());
            to.push_back(&network.add<Probe>());
            network.connect(*from[i], middle, {.bits_per_s = 100 * kGbps});
            out.push_back(&network.connect(*to[i], middle, {.bits_per_s = kGbps / 1000}).backward);
        }
        network.route();
        for (int i = 0; i < 400; ++i) {
            for (size_t j = 0; j < queues; ++j) from[j]->send(*to[j], kBytes);
        }
        network.run_for(100 * kMicrosecond);  // only the first packet of each sender has left
        for (const Link* link : out) EXPECT_EQ(link->queued_bytes(), (queues == 1 ? 150 : 100) * kBytes);
    }
}

TEST(Buffer, is_never_exceeded_and_empty_at_the_end) {
    for (const bool pfc : {false, true}) {
        SwitchConfig config{.buffer_bytes = 50 * kBytes, .alpha = 1000};
        if (pfc) config.pfc = Pfc{1 << 20, 1 << 19};  // the pause comes too late
        Incast incast(config, 8);
        incast.send(100);
        incast.network.run_until(kMillisecond);
        EXPECT_LE(incast.middle->max_used_bytes(), 50u * kBytes);
        EXPECT_GT(incast.middle->max_used_bytes(), 48u * kBytes);
        EXPECT_GT(incast.drops(), 0u);
        EXPECT_EQ(incast.middle->used_bytes(), 0u);
        EXPECT_EQ(incast.drops() + incast.receiver->arrivals.size(), 800u);
        const size_t pool = incast.network.world().packets.size();
        incast.send(100);
        incast.network.run_for(kMillisecond);
        EXPECT_EQ(incast.network.world().packets.size(), pool) << "what is dropped goes back to the pool";
    }
}

TEST(PfcTest, an_incast_loses_nothing_with_it_and_much_without) {
    // The headroom at 10 Gb/s and 1 us is 2 us * 1.25 GB/s and two frames: 4.6 KB.
    SwitchConfig config{.buffer_bytes = 8 * (20'000 + 4'600), .alpha = 1};
    Incast lossy(config, 8);
    config.pfc = Pfc{20'000, 10'000};
    Incast lossless(config, 8);
    for (Incast* incast : {&lossy, &lossless}) {
        incast->send(1000);
        incast->network.run_until(100 * kMillisecond);
    }
    EXPECT_GT(lossy.drops(), 1000u);
    EXPECT_EQ(lossy.network.total(&LinkStats::pauses), 0u);
    EXPECT_EQ(lossless.drops(), 0u);
    EXPECT_EQ(lossless.receiver->arrivals.size(), 8000u);
    for (Link* link : lossless.in) {
        EXPECT_GT(link->stats().pauses, 10u);
        EXPECT_GT(link->paused_time(), 5 * kMillisecond) << "each gets an eighth of 6.5 ms of packets";
    }
    EXPECT_EQ(lossless.out->stats().pauses, 0u);
    // The bottleneck was never idle: the last packet arrives after exactly 8000 transmission times.
    const Time first = 2 * (wire_time(kBytes, 10 * kGbps) + kMicrosecond);
    EXPECT_EQ(lossless.receiver->arrivals.back().time, first + 7999 * wire_time(kBytes, 10 * kGbps));
}

TEST(PfcTest, an_input_that_is_not_the_cause_is_not_paused) {
    Incast incast({.pfc = Pfc{20'000, 10'000}}, 4);
    Probe& bystander = *incast.from[3];
    for (int i = 0; i < 1000; ++i) {
        for (int j = 0; j < 3; ++j) incast.from[static_cast<size_t>(j)]->send(*incast.receiver, kBytes);
        bystander.send(*incast.from[0], kBytes);
    }
    incast.network.run_until(100 * kMillisecond);
    EXPECT_GT(incast.in[0]->stats().pauses, 0u);
    EXPECT_EQ(incast.in[3]->stats().pauses, 0u);
    EXPECT_EQ(incast.from[0]->arrivals.size(), 1000u);
}

}  // namespace
}  // namespace rove::fabric
