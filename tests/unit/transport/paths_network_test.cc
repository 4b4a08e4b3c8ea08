// SPDX-License-Identifier: Apache-2.0
// MP-RDMA's sender against the real reorder trackers, over random sets of paths in virtual time: every packet arrives,
// nothing gets stuck, and the sender's counts match its records. ROVE_SEED=N runs one, ROVE_SEEDS=N that many.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "support/random.h"
#include "transport/paths/paths.h"
#include "transport/reorder/reorder.h"

namespace rove::transport {
namespace {

using test::Random;

struct Route {
    uint64_t packet_ns = 1000, delay_ns = 5000;
    double loss = 0;
    uint32_t mark_at = 20, room = 200;  // packets queued
    uint64_t dead_from = UINT64_MAX, dead_until = UINT64_MAX;
    uint64_t free_ns = 0;  // the time at which its last packet has left
    uint64_t carried = 0;

    bool is_down(uint64_t now) const { return now >= dead_from && now < dead_until; }
};

struct PathsNetwork {
    Random random;
    Paths paths;
    Reorder reorder;
    SendStream stream;
    ReorderStream receiver;
    std::vector<Route> routes;
    double ack_loss = 0, duplicate = 0;
    uint32_t total;
    uint64_t now = 1'000'000;
    Psn first;
    struct Arrival_ {
        bool at_sender;
        wire::MpAckEntry entry;
        Psn aack;
    };
    std::multimap<uint64_t, Arrival_> events;
    uint64_t nacks = 0, duplicates = 0;

    PathsNetwork(uint64_t seed, const PathsConfig& config, const ReorderConfig& reorder_config, uint32_t packets)
        : random(seed),
          paths(config, seed),
          reorder(reorder_config),
          total(packets),
          first(static_cast<uint32_t>(random.below(2) ? 0xFFFF00 : random.below(1 << 24))) {
        paths.start(stream, first);
        reorder.start(receiver, first);
    }
    Route& route(uint16_t vp) { return routes[(vp * 2654435761u >> 16) % routes.size()]; }

    void leave(const Departure& d) {
        Route& way = route(d.vp);
        if (way.is_down(now) || random.chance(way.loss)) return;
        const uint64_t start = std::max(now, way.free_ns);
        const uint64_t queued = (start - now) / way.packet_ns;
        if (queued > way.room) return;
        way.free_ns = start + way.packet_ns;
        ++way.carried;
        const Arrival_ arrival{false,
                               {.kind = wire::MpAck::kAck,
                                .ece = queued > way.mark_at,
                                .retx = d.again,
                                .response = false,
                                .psn = d.psn.value(),
                                .vp = d.vp},
                               Psn()};
        for (int copies = random.chance(duplicate) ? 2 : 1; copies != 0; --copies)
            events.emplace(way.free_ns + way.delay_ns, arrival);
    }
    void arrive(wire::MpAckEntry entry) {
        const Psn psn(entry.psn);
        switch (reorder.classify(receiver, psn)) {
            case Arrival::kInOrder:
                reorder.advance(receiver, false, [](Psn, Slot) { return true; });
                entry.kind = wire::MpAck::kAck;
                break;
            case Arrival::kOutOfOrder:
                reorder.track(receiver, psn, Slot::kReceived, false);
                entry.kind = wire::MpAck::kSack;
                break;
            case Arrival::kDuplicate:
                ++duplicates;
                entry.kind = psn < receiver.expected ? wire::MpAck::kAck : wire::MpAck::kSack;
                break;
            default:
                ++nacks;
                entry.kind = wire::MpAck::kNack;
        }
        if (random.chance(ack_loss)) return;
        events.emplace(now + route(entry.vp).delay_ns, Arrival_{true, entry, receiver.expected});
    }
    void send() {
        Departure d;
        while (paths.next(stream, stream.nxt - first < static_cast<int32_t>(total), now, d)) {
            ASSERT_TRUE(d.again ? d.psn >= stream.una && d.psn < stream.nxt : d.psn == stream.nxt);
            paths.sent(stream, d, now);
            leave(d);
        }
    }
    void check() {
        uint32_t acked = 0, lost = 0;
        for (Psn at = stream.una; at < stream.nxt; ++at) {
            const PacketRecord& packet = stream.records[at.value() & (stream.ring - 1)];
            acked += packet.acked;
            lost += packet.lost;
            ASSERT_FALSE(packet.acked && packet.lost);
            ASSERT_TRUE(!packet.acked || reorder.is_received(receiver, at));
        }
        ASSERT_EQ(acked, stream.inflate);
        ASSERT_EQ(lost, stream.lost);
        ASSERT_LE(stream.una, receiver.expected);
        ASSERT_LE(stream.nxt - stream.una, static_cast<int32_t>(paths.config().max_window));
        ASSERT_GE(stream.cwnd_fixed, AdaptiveWindow::kLeast);
    }
    bool done() const { return stream.una - first == static_cast<int32_t>(total); }
    // Runs until all is acknowledged, or `horizon_ns` later. Returns the time that it took.
    uint64_t run(uint64_t horizon_ns) {
        const uint64_t start = now;
        uint32_t steps = 0;
        send();
        while (!done() && now - start < horizon_ns && !testing::Test::HasFatalFailure()) {
            const uint64_t timer = paths.next_timer(stream).at_ns;
            if (events.empty() && timer == UINT64_MAX) {
                ADD_FAILURE() << "stuck";
                break;
            }
            if (events.empty() || timer < events.begin()->first) {
                now = std::max(now, timer);
                paths.expire(stream, now);
            } else {
                const Arrival_ event = events.begin()->second;
                now = events.begin()->first;
                events.erase(events.begin());
                if (!event.at_sender) {
                    arrive(event.entry);
                    continue;
                }
                paths.acknowledge(stream, event.entry, now);
                paths.advance(stream, event.aack, now);
            }
            send();
            if (++steps % 64 == 0) check();
        }
        check();
        return now - start;
    }
};

void run_random(uint64_t seed) {
    Random random(seed);
    PathsConfig config;
    config.max_window = 1u << random.between(5, 11);
    config.initial_window = static_cast<uint32_t>(random.between(1, config.max_window / 2));
    config.delta = static_cast<uint32_t>(random.between(4, config.max_window));
    config.recovery = random.pick(PathsConfig::Recovery::kSelectiveRepeat, PathsConfig::Recovery::kGoBackN,
                                  PathsConfig::Recovery::kOfDisorder);
    config.infer_losses = random.chance(0.5);
    config.explore = random.chance(0.5);
    config.min_rto_ns = random.pick(20'000, 200'000, 1'000'000);
    using Control = PathsConfig::Control;
    using Choice = PathsConfig::Choice;
    if (random.chance(0.5)) {
        config.control = random.pick(Control::kMpRdma, Control::kDcqcn, Control::kNscc, Control::kFixed);
        config.choice = random.pick(Choice::kEcho, Choice::kReps, Choice::kRandom);
    }
    ReorderConfig reorder;
    reorder.kind = random.pick(ReorderConfig::Kind::kEunomia, ReorderConfig::Kind::kStatic);
    reorder.static_slots = 1u << random.between(4, 8);
    if (random.chance(0.2)) reorder.arena_blocks = 64;
    PathsNetwork net(seed, config, reorder, static_cast<uint32_t>(random.between(1, 3000)));
    net.ack_loss = random.pick(0.0, 0.0, 0.01, 0.2);
    net.duplicate = random.pick(0.0, 0.0, 0.02);
    const size_t count = random.between(1, 8);
    for (size_t i = 0; i < count; ++i) {
        Route route;
        route.packet_ns = random.between(100, 20'000);
        route.delay_ns = random.between(500, 50'000);
        route.loss = random.pick(0.0, 0.0, 0.01, 0.1, 0.4);
        route.mark_at = static_cast<uint32_t>(random.between(1, 100));
        route.room = static_cast<uint32_t>(random.between(2, 400));
        if (random.chance(0.2)) {
            route.dead_from = 1'000'000 + random.below(2'000'000);
            route.dead_until = route.dead_from + random.below(5'000'000);
        }
        net.routes.push_back(route);
    }
    net.run(600'000'000'000);
    EXPECT_TRUE(net.done());
    EXPECT_EQ(net.receiver.expected, net.stream.nxt);
    net.reorder.stop(net.receiver);
    EXPECT_EQ(net.reorder.usage().blocks, 0u);
}

TEST(PathsNetworkTest, RandomNetworks) {
    const char* one = std::getenv("ROVE_SEED");
    const char* many = std::getenv("ROVE_SEEDS");
    const uint64_t from = one != nullptr ? std::strtoull(one, nullptr, 10) : 1;
    const uint64_t count = one != nullptr ? 1 : many != nullptr ? std::strtoull(many, nullptr, 10) : 1000;
    std::printf("seeds %lu..%lu\n", from, from + count - 1);
    for (uint64_t seed = from; seed < from + count; ++seed) {
        run_random(seed);
        if (testing::Test::HasFailure()) {
            std::printf("failed: ROVE_SEED=%lu\n", seed);
            return;
        }
    }
}

// Four equal paths, and a sender that could fill more. Arrivals are counted in units of a path's capacity.
struct FourPaths : testing::Test {
    static constexpr uint32_t kPackets = 40'000;
    static constexpr uint64_t kPacketNs = 1000;
    PathsConfig config;
    FourPaths() { config.min_rto_ns = 200'000; }
    double paths_worth(PathsNetwork& net) {
        const uint64_t ns = net.run(100'000'000'000);
        EXPECT_TRUE(net.done());
        return static_cast<double>(kPackets) * kPacketNs / static_cast<double>(ns);
    }
};

TEST_F(FourPaths, CleanPathsAreAllFull) {
    PathsNetwork net(1, config, {}, kPackets);
    net.routes.resize(4);
    EXPECT_GT(paths_worth(net), 3.5);
}

TEST_F(FourPaths, LossyPathsCostNoMoreThanTheirLoss) {
    PathsNetwork net(1, config, {}, kPackets);
    net.routes.resize(4);
    for (int i = 0; i < 3; ++i) net.routes[i].loss = 0.1;
    EXPECT_GT(paths_worth(net), 3.4);  // out of 3.7: they still carry the packets that they do not lose
}

TEST_F(FourPaths, ADeadPathCostsItsOwnShareOnly) {
    PathsNetwork net(1, config, {}, kPackets);
    net.routes.resize(4);
    net.routes[2].dead_from = 3'000'000;
    EXPECT_GT(paths_worth(net), 2.8);
}

}  // namespace
}  // namespace rove::transport
