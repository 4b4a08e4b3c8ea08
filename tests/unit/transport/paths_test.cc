// SPDX-License-Identifier: Apache-2.0
// MP-RDMA's sender, rule by rule: window, ACK credits and paths. Losses are in paths_recovery_test.cc.
#include <algorithm>
#include <set>
#include <vector>

#include "paths_sender.h"
#include "wire/ack_entry.h"

namespace rove::transport {
namespace {

TEST_F(PathsTest, MP1_WindowGrowsByOneInAWindowAndShrinksByHalfAPacketPerMark) {
    auto left = send();
    now += kRtt;
    const uint32_t before = stream.cwnd_fixed;
    for (const Departure& d : left) ack(d);
    EXPECT_NEAR(stream.cwnd_fixed, before + kOne, kOne / 8);
    const uint32_t grown = stream.cwnd_fixed;
    left = send();
    now += kRtt;
    ack(left[0], left[0].psn + 1, true);
    EXPECT_EQ(stream.cwnd_fixed, grown - kOne / 2);
    EXPECT_EQ(paths.counters().marked_acks, 1u);
}

TEST_F(PathsTest, MP1_FloorIsOnePacketAndCeilingTheConfiguredWindow) {
    for (int round = 0; round < 100; ++round) {
        const auto left = send();
        ASSERT_FALSE(left.empty());
        now += kRtt;
        for (const Departure& d : left) ack(d, d.psn + 1, true);
    }
    EXPECT_EQ(stream.cwnd(), 1u);
    for (int round = 0; round < 1000; ++round) {
        const auto left = send();
        now += kRtt;
        for (const Departure& d : left) ack(d);
    }
    EXPECT_EQ(stream.cwnd(), paths.config().max_window);
}

TEST_F(PathsTest, MP2_AvailableWindowCountsSackedPackets) {
    const auto left = send();
    ASSERT_EQ(left.size(), 8u);
    EXPECT_EQ(stream.awnd(), 0);
    sack(left[3]);
    sack(left[5]);
    EXPECT_EQ(stream.inflate, 2u);
    EXPECT_EQ(stream.awnd(), 2);
    ack(left[0], left[4].psn);  // 1 and 2 arrived, their ACKs are lost
    EXPECT_EQ(stream.inflate, 1u);
    EXPECT_EQ(stream.awnd(), static_cast<int32_t>(stream.cwnd()) + 1 - 4);
    ack(left[7], left[7].psn + 1);
    EXPECT_EQ(stream.inflate, 0u);
    EXPECT_EQ(stream.awnd(), static_cast<int32_t>(stream.cwnd()));
    EXPECT_EQ(stream.una, stream.nxt);
}

struct ByTheLetter : PathsTest {
    ByTheLetter() : PathsTest(make_config()) {}
    static PathsConfig make_config() {
        PathsConfig config = PathsTest::make_config();
        config.count_acks = true;
        return config;
    }
};

TEST_F(ByTheLetter, MP2_EveryAckInflates) {
    const auto left = send();
    ack(left[4], left[4].psn + 1);  // the ACKs of four before it are late
    EXPECT_EQ(stream.awnd(), static_cast<int32_t>(stream.cwnd() - 4) - 3);
    for (int i = 0; i < 4; ++i) sack(left[i]);
    EXPECT_EQ(stream.awnd(), static_cast<int32_t>(stream.cwnd()) - 3);
    sack(left[0]);  // and once more, for a packet that was retransmitted needlessly
    EXPECT_EQ(stream.awnd(), static_cast<int32_t>(stream.cwnd()) - 2);
    ack(left[7], left[7].psn + 1);  // two were lost
    EXPECT_EQ(stream.awnd(), static_cast<int32_t>(stream.cwnd()) - 1);
}

TEST_F(PathsTest, MP3_InitialWindowOnRandomPathsThenAcksClock) {
    const auto left = send();
    std::set<uint16_t> vps;
    for (const Departure& d : left) {
        EXPECT_GE(d.vp, kFirstVp);
        vps.insert(d.vp);
    }
    EXPECT_EQ(left.size(), 8u);
    EXPECT_GE(vps.size(), 7u);
    EXPECT_EQ(paths.paths_in_use(stream), vps.size());
    now += kRtt;
    for (const int i : {4, 2}) {
        sack(left[i]);
        const auto next = send();
        ASSERT_EQ(next.size(), 1u);
        EXPECT_EQ(next[0].vp, left[i].vp);
        EXPECT_FALSE(next[0].again);
    }
}

struct OnePath : PathsTest {
    OnePath() : PathsTest(one_path()) {}
    static PathsConfig one_path() {
        PathsConfig config = make_config();
        config.first_vp = 0xC123;
        config.vps = 1;
        config.control = PathsConfig::Control::kFixed;
        return config;
    }
};

// IRN's configuration: one path, and at most a bandwidth-delay product in flight, whatever is marked.
TEST_F(OnePath, AFixedWindowStaysOnItsPath) {
    for (int round = 0; round < 20; ++round) {
        const auto left = send();
        ASSERT_EQ(left.size(), 8u);
        now += kRtt;
        for (const Departure& d : left) {
            EXPECT_EQ(d.vp, 0xC123);
            ack(d, d.psn + 1, round % 2 == 0);
        }
        EXPECT_EQ(stream.cwnd(), 8u);
    }
}

TEST_F(PathsTest, MP4_SlowPathLosesItsClockAndAPacketOfTheWindow) {
    std::vector<Departure> left = send();
    const Departure slow = left[0];
    // All others circulate until they are more than delta ahead.
    std::vector<Departure> ring(left.begin() + 1, left.end());
    while (stream.ooh - slow.psn <= static_cast<int32_t>(paths.config().delta)) {
        now += kRtt / 4;
        std::vector<Departure> again;
        for (const Departure& d : ring) {
            sack(d);
            for (const Departure& next : send()) again.push_back(next);
        }
        ring = again;
    }
    const uint32_t before = stream.cwnd_fixed;
    const uint64_t slow_acks = paths.counters().slow_acks;
    ack(slow, stream.una + 1);
    EXPECT_EQ(stream.cwnd_fixed, before - kOne);
    EXPECT_EQ(paths.counters().slow_acks, slow_acks + 1);
    for (const Departure& next : send()) EXPECT_NE(next.vp, slow.vp);
}

TEST_F(PathsTest, MP4_RetransmissionsAreNotSlow) {
    const auto left = send();
    stream.ooh = left[0].psn + 100;
    stream.nxt = stream.ooh;
    const uint32_t before = stream.cwnd_fixed;
    EXPECT_TRUE(
        paths.acknowledge(stream, {.kind = MpAck::kSack, .retx = true, .psn = left[0].psn.value(), .vp = 0xC001}, now));
    EXPECT_GE(stream.cwnd_fixed, before);
    stream.nxt = left.back().psn + 1;
}

// The receiver's out-of-order degree may be delta: a packet further behind came by a slow path.
TEST_F(PathsTest, MP4_APacketThatIsDeltaBehindIsNotSlow) {
    const auto left = send(8);
    const auto delta = static_cast<int32_t>(paths.config().delta);
    for (const int32_t behind : {delta, delta + 1}) {
        stream.ooh = left[0].psn + behind + 1;  // the highest acknowledged one is `behind` after it
        stream.nxt = stream.ooh;
        const uint64_t before = paths.counters().slow_acks;
        paths.acknowledge(stream, {.kind = MpAck::kSack, .psn = left[0].psn.value(), .vp = left[0].vp}, now);
        EXPECT_EQ(paths.counters().slow_acks - before, behind > delta) << behind;
    }
    stream.nxt = left.back().psn + 1;
}

struct Probing : PathsTest {
    static PathsConfig always() {
        PathsConfig config = make_config();
        config.probe_permille = 1000;
        return config;
    }
    Probing() : PathsTest(always()) {}
};

struct ProbingAsInThePaper : PathsTest {
    static PathsConfig one_percent() {
        PathsConfig config = make_config();
        config.probe_permille = PathsConfig{}.probe_permille;
        return config;
    }
    ProbingAsInThePaper() : PathsTest(one_percent()) {}
};

TEST_F(ProbingAsInThePaper, MP5_OneRoundTripInAHundred) {
    constexpr int kRounds = 20'000;
    for (int round = 0; round < kRounds; ++round) {
        const auto left = send();
        now += kRtt + 64;
        for (const Departure& d : left) ack(d);
    }
    EXPECT_NEAR(static_cast<double>(paths.counters().probes), kRounds / 100, 45);  // three standard deviations
}

TEST_F(Probing, MP5_OnceInARoundTrip) {
    auto left = send();
    now += kRtt;
    for (int round = 0; round < 4; ++round) {
        std::set<uint16_t> known;
        for (const Departure& d : left) {
            known.insert(d.vp);
            ack(d);
        }
        const uint64_t probes = paths.counters().probes;
        left = send();
        EXPECT_EQ(paths.counters().probes, probes + 1);
        size_t fresh = 0;
        for (const Departure& d : left) fresh += !known.contains(d.vp);
        EXPECT_EQ(fresh, 1u);
        now += kRtt + 64;
    }
}

TEST_F(PathsTest, MP6_AnAckLetsOutTwoAtMostAndTheTimerTheRest) {
    const auto left = send();
    now += kRtt;
    for (const Departure& d : left)
        EXPECT_TRUE(paths.acknowledge(stream, {.kind = MpAck::kSack, .psn = d.psn.value(), .vp = d.vp}, now));
    // Six of the eight ACK credits are lost, for example to an overflow: two remain.
    while (stream.acks.count() > 2) stream.acks.remove_first();
    paths.advance(stream, stream.nxt, now);
    const auto next = send();
    EXPECT_EQ(next.size(), 4u);
    EXPECT_GT(stream.awnd(), 0);
    EXPECT_TRUE(stream.starved);
    const uint64_t deadline = paths.next_timer(stream).at_ns;
    EXPECT_EQ(deadline, now + stream.srtt_ns / 2);
    now = deadline;
    paths.expire(stream, now);
    const auto rest = send();
    EXPECT_EQ(rest.size(), stream.cwnd() - 4);
    EXPECT_EQ(paths.counters().bursts, 1u);
}

TEST_F(PathsTest, BX4_WhatAWindowGrowsByTakesARandomPathWhileItIsSmall) {
    PathsConfig config = paths.config();
    paths.stop(stream);
    for (const bool explore : {false, true}) {
        config.explore = explore;
        Paths exploring(config, 1);
        exploring.start(stream, stream.nxt);
        std::set<uint16_t> vps;
        while (stream.cwnd() < config.max_window / 2) {
            std::vector<Departure> left;
            for (Departure d; exploring.next(stream, true, now, d); left.push_back(d)) exploring.sent(stream, d, now);
            now += kRtt;
            for (const Departure& d : left) {
                vps.insert(d.vp);
                exploring.acknowledge(stream, {.kind = MpAck::kAck, .psn = d.psn.value(), .vp = d.vp}, now);
                exploring.advance(stream, d.psn + 1, now);
            }
        }
        const uint32_t grown = explore ? config.max_window / 4 - config.initial_window : 0;
        EXPECT_EQ(exploring.counters().explored, grown);
        EXPECT_EQ(vps.size(), config.initial_window + grown);
        exploring.stop(stream);
    }
}

TEST_F(PathsTest, MP7_AcksThatFindNothingToSendWaitForIt) {
    for (int round = 0; round < 20; ++round) {
        const auto left = send();
        now += kRtt;
        for (const Departure& d : left) ack(d);
    }
    const uint32_t grown = stream.cwnd();
    ASSERT_GT(grown, 20u);
    auto left = send();
    now += kRtt;
    ack(left[0]);
    const uint32_t before = stream.cwnd_fixed;
    send(0);
    for (size_t i = 1; i < left.size(); ++i) ack(left[i]);
    send(0);
    EXPECT_EQ(stream.cwnd_fixed, before);  // the program has enough window
    EXPECT_EQ(paths.counters().unused, 0u);
    // Note 3: packets posted now use the paths of these ACKs.
    now += kRtt;
    std::set<uint16_t> acked;
    for (const Departure& d : left) acked.insert(d.vp);
    left = send(grown);
    ASSERT_EQ(left.size(), grown);
    for (const Departure& d : left) EXPECT_TRUE(acked.contains(d.vp));
    EXPECT_EQ(stream.burst_ns, 0u);
    // It was too little again: the window continues to grow.
    now += kRtt;
    for (const Departure& d : left) ack(d);
    EXPECT_NEAR(stream.cwnd_fixed, before + kOne, kOne / 8);
    // Unused for three round trips they expire, and the window shrinks to no less than the initial one.
    now += 3 * kRtt + 64;
    send(0);
    EXPECT_EQ(paths.counters().unused, left.size());
    EXPECT_EQ(stream.cwnd(), paths.config().initial_window);
    EXPECT_EQ(stream.acks.count(), 0u);
}

// A program that waits for each message, after congestion.
TEST_F(PathsTest, MP7_AWindowBelowTheInitialOneGrowsThoughItIsNotFull) {
    for (int round = 0; round < 12; ++round) {
        const auto left = send();
        now += kRtt;
        for (const Departure& d : left) ack(d, d.psn + 1, true);
    }
    ASSERT_LE(stream.cwnd(), 2u);
    for (int message = 0; message < 200; ++message) {
        const auto left = send(1);
        ASSERT_EQ(left.size(), 1u);
        now += kRtt;
        ack(left[0]);
        send(0);
    }
    EXPECT_EQ(stream.cwnd(), paths.config().initial_window);
}

// More data waits than ever fits into a window's records: room in the window does not mean that it suffices.
TEST_F(PathsTest, MP7_AFullRingOfRecordsIsNotSatisfied) {
    Departure d;
    const auto left = send(4);
    EXPECT_FALSE(paths.next(stream, false, now, d));
    EXPECT_TRUE(stream.satisfied);
    now += kRtt;
    for (size_t i = 1; i < left.size(); ++i) sack(left[i]);
    for (;;) {
        const auto more = send();
        if (more.empty()) break;
        now += kRtt / 4;
        for (const Departure& m : more)
            if (!m.again) sack(m);
        if (stream.nxt - stream.una == static_cast<int32_t>(paths.config().max_window)) break;
    }
    ASSERT_EQ(stream.nxt - stream.una, static_cast<int32_t>(paths.config().max_window));
    send();
    EXPECT_FALSE(stream.satisfied);
}

TEST_F(PathsTest, MP8_RestartsAfterThreeIdleRoundTrips) {
    auto left = send(4);
    now += kRtt;
    for (const Departure& d : left) ack(d, d.psn + 1, true);
    EXPECT_EQ(stream.cwnd(), 6u);
    now += 3 * kRtt + 64;
    left = send();
    EXPECT_EQ(left.size(), 8u);
    EXPECT_EQ(paths.counters().restarts, 1u);
}

TEST_F(PathsTest, MP8_NotAfterFewer) {
    const auto left = send(4);
    now += kRtt;
    for (const Departure& d : left) ack(d, d.psn + 1, true);
    now += 3 * kRtt;
    EXPECT_EQ(send().size(), 6u);
    EXPECT_EQ(paths.counters().restarts, 0u);
}

// RFC 6298: an eighth of each new measurement, a quarter of its deviation.
TEST_F(PathsTest, TheRoundTripIsSmoothedAsInRfc6298) {
    auto one = send(1);
    now += 1280;
    ack(one[0]);
    EXPECT_EQ(stream.srtt_ns, 1280u);
    EXPECT_EQ(stream.rttvar_ns, 640u);
    one = send(1);
    now += 2304;
    ack(one[0]);
    EXPECT_EQ(stream.rttvar_ns, (3 * 640u + 1024) / 4);
    EXPECT_EQ(stream.srtt_ns, (7 * 1280u + 2304) / 8);
}

TEST_F(PathsTest, MP12_SynchroniseWaitsForTheToleratedReordering) {
    const auto left = send();
    now += kRtt;
    ack(left[0]);
    const double expected = 32.0 * kRtt / (stream.cwnd_fixed / 65536.0);
    EXPECT_NEAR(static_cast<double>(paths.sync_delay_ns(stream)), expected, 1);
}

TEST_F(PathsTest, AcksOfWhatWasNeverSentAreRefused) {
    send(2);
    const uint32_t cwnd_fixed = stream.cwnd_fixed;
    const Psn una = stream.una;
    EXPECT_FALSE(paths.acknowledge(stream, {.kind = MpAck::kAck, .psn = stream.nxt.value(), .vp = 0xC000}, now));
    EXPECT_FALSE(
        paths.acknowledge(stream, {.kind = MpAck::kAck, .psn = (stream.nxt + 5000).value(), .vp = 0xC000}, now));
    EXPECT_FALSE(paths.advance(stream, stream.nxt + 1, now));
    EXPECT_FALSE(paths.advance(stream, stream.una.previous(), now));
    EXPECT_EQ(stream.cwnd_fixed, cwnd_fixed);
    EXPECT_EQ(stream.una, una);
    EXPECT_EQ(paths.counters().stale_acks, 2u);
}

TEST_F(PathsTest, MP1_AcksThatComeTogetherWidenAsOneByOne) {
    const auto left = send(8);
    std::vector<uint8_t> wire(8 * wire::kMpAckEntryBytes);
    for (size_t i = 0; i < left.size(); ++i)
        wire::emit_ack_entry(wire.data() + i * wire::kMpAckEntryBytes, {.kind = MpAck::kAck,
                                                                        .ece = false,
                                                                        .retx = false,
                                                                        .response = false,
                                                                        .psn = left[i].psn.value(),
                                                                        .vp = left[i].vp});
    const uint32_t before = stream.cwnd_fixed;
    now += kRtt;
    EXPECT_EQ(paths.acknowledge_next(stream, wire.data(), 8, true, now), 0u);  // another stream's
    EXPECT_EQ(paths.acknowledge_next(stream, wire.data(), 8, false, now), 8u);
    EXPECT_NEAR(stream.cwnd_fixed, before + kOne, kOne / 8);
}

TEST(PathsConfigTest, WhatIsRefused) {
    EXPECT_EQ(invalid(PathsConfig{}), nullptr);
    for (const PathsConfig& bad :
         {PathsConfig{.initial_window = 0}, PathsConfig{.initial_window = 8193}, PathsConfig{.max_window = 100},
          PathsConfig{.max_window = 16'384}, PathsConfig{.first_vp = 0xBFFF}, PathsConfig{.vps = 0},
          PathsConfig{.first_vp = 0xC001, .vps = 0x4000}, PathsConfig{.delta = 0}, PathsConfig{.probe_permille = 1001},
          PathsConfig{.sync_alpha = -1}})
        EXPECT_NE(invalid(bad), nullptr);
}

}  // namespace
}  // namespace rove::transport
