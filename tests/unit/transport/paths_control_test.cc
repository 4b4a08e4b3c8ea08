// SPDX-License-Identifier: Apache-2.0
// Congestion controls and path choices other than MP-RDMA's own: BX-5 to BX-9 (docs/protocol/multipath.md).
#include <set>

#include "paths_sender.h"
#include "transport/congestion/nscc.h"
#include "wire/ack_entry.h"

namespace rove::transport {
namespace {

using Control = PathsConfig::Control;
using Choice = PathsConfig::Choice;

PathsConfig with(Control control, Choice choice = Choice::kEcho) {
    PathsConfig config = PathsTest::make_config();
    config.control = control;
    config.choice = choice;
    return config;
}

struct FixedWindow : PathsTest {
    FixedWindow() : PathsTest(with(Control::kFixed)) {}
};

// The delay of its ACK does not matter: with a network that sprays, it tells nothing about a path (MP-4 is MP-RDMA's).
TEST_F(FixedWindow, BX5_EveryAckMakesRoomForOnePacket) {
    std::vector<Departure> left = send();
    const Departure late = left[0];
    left.erase(left.begin());
    for (int i = 0; i < 60; ++i) {
        sack(left[0], i % 2 == 0);
        left.erase(left.begin());
        const auto next = send();
        ASSERT_EQ(next.size(), 1u);
        left.push_back(next[0]);
    }
    ack(late, left[0].psn);
    EXPECT_EQ(send().size(), 1u);
    EXPECT_EQ(stream.cwnd(), 8u);
    EXPECT_EQ(paths.counters().slow_acks, 0u);
    EXPECT_EQ(stream.acks.count(), 0u);
}

struct OwnPorts : testing::Test {
    std::set<uint16_t> ports(uint32_t vps, uint16_t own) {
        PathsConfig config = with(Control::kFixed, Choice::kRandom);
        config.first_vp = 0;
        config.vps = vps;
        Paths paths(config, 3);
        SendStream stream;
        paths.start(stream, Psn(1), own);
        std::set<uint16_t> seen;
        for (int i = 0; i < 1000; ++i) seen.insert(paths.random_vp(stream));
        return seen;
    }
};

TEST_F(OwnPorts, BX5_AreThoseFromTheConnectionsOn) {
    EXPECT_EQ(ports(1, 0xD234), (std::set<uint16_t>{0xD234}));
    EXPECT_EQ(ports(4, 0xFFFE), (std::set<uint16_t>{0xFFFE, 0xFFFF, 0xC000, 0xC001}));
}

struct Irn : PathsTest {
    static PathsConfig irn() {
        PathsConfig config = with(Control::kFixed);
        config.repeat_early = false;
        config.min_rto_ns = 320'000;
        config.low_rto_ns = 100'000;
        return config;
    }
    Irn() : PathsTest(irn()) {}
};

TEST_F(Irn, BX5_AFewPacketsWaitLessForTheTimerAndNothingElseRepeatsThem) {
    for (const auto& [packets, timeout_ns] : {std::pair{8u, 320'000u}, {3u, 100'000u}, {4u, 320'000u}}) {
        const std::vector<Departure> left = send(packets);
        ASSERT_EQ(left.size(), packets);
        EXPECT_EQ(paths.next_timer(stream).at_ns, now + timeout_ns) << packets;
        now += kRtt;
        ack(left.back(), left.back().psn + 1);
        EXPECT_FALSE(stream.outstanding());
    }
}

// ConWeave's simulator treats an overtaking packet as a loss, and as congestion.
struct IrnOfDisorder : PathsTest {
    static PathsConfig irn() {
        PathsConfig config = Irn::irn();
        config.control = Control::kDcqcn;
        config.infer_losses = false;
        config.recovery = PathsConfig::Recovery::kOfDisorder;
        return config;
    }
    IrnOfDisorder() : PathsTest(irn(), {.disorder_is_cnp = true}) {}
};

TEST_F(IrnOfDisorder, APacketOutOfOrderRepeatsAllThatIsNotAcknowledged) {
    const std::vector<Departure> left = send(8);
    now += kRtt;
    ack(left[0]);
    EXPECT_FALSE(stream.control.as<DcqcnState>().rate.limited());
    sack(left[2]);
    EXPECT_TRUE(stream.control.as<DcqcnState>().rate.limited());
    std::vector<Psn> again;
    for (const Departure& each : send(0)) again.push_back(each.psn);
    EXPECT_EQ(again, (std::vector{left[1].psn, left[3].psn, left[4].psn, left[5].psn, left[6].psn, left[7].psn}));
}

TEST_F(IrnOfDisorder, ItEndsWhenNothingIsMissing) {
    const std::vector<Departure> left = send(8);
    now += kRtt;
    sack(left[1]);
    EXPECT_TRUE(stream.recovering);
    ack(left[0], left[1].psn + 1);
    EXPECT_FALSE(stream.recovering);
    EXPECT_TRUE(send(0).empty());
}

TEST_F(IrnOfDisorder, TheTimerRepeatsAllAndIsNotBackedOff) {
    const std::vector<Departure> left = send(8);
    for (int i = 0; i < 3; ++i) {
        now = paths.next_timer(stream).at_ns;
        paths.expire(stream, now);
        EXPECT_EQ(send(0).size(), 8u);
        EXPECT_EQ(paths.next_timer(stream).at_ns, now + 320'000);
    }
}

struct DcqcnPaths : PathsTest {
    DcqcnPaths() : PathsTest(with(Control::kDcqcn)) {}
};

TEST_F(DcqcnPaths, BX6_AMarkCutsTheRateAndPacketsWaitForIt) {
    const std::vector<Departure> left = send();
    EXPECT_EQ(left.size(), 8u) << "until the first mark there is no rate";
    now += kRtt;
    ack(left[0], left[0].psn + 1, true);
    ASSERT_TRUE(stream.control.as<DcqcnState>().rate.limited());
    EXPECT_EQ(stream.control.as<DcqcnState>().rate.rate_bytes_per_s(), Dcqcn::kUnknownPortRate / 2);
    Departure d;
    ASSERT_TRUE(paths.next(stream, true, now, d));
    constexpr uint32_t kBytes = 62'500;  // 10 us at that rate
    paths.sent(stream, d, now, kBytes);
    ack(left[1]);
    EXPECT_FALSE(paths.next(stream, true, now, d));
    EXPECT_EQ(paths.counters().paced, 1u);
    EXPECT_EQ(paths.next_timer(stream).at_ns, now + 10'000);
    now += 9'999;
    paths.expire(stream, now);
    EXPECT_FALSE(paths.next(stream, true, now, d));
    now += 1;
    paths.expire(stream, now);
    EXPECT_TRUE(paths.next(stream, true, now, d));
    EXPECT_EQ(stream.cwnd(), 8u);
}

TEST_F(DcqcnPaths, BX6_OneCutInAnInterval) {
    const std::vector<Departure> left = send();
    now += kRtt;
    ack(left[0], left[0].psn + 1, true);
    const uint64_t rate = stream.control.as<DcqcnState>().rate.rate_bytes_per_s();
    now += DcqcnConfig{}.cnp_interval_ns - 1;
    ack(left[1], left[1].psn + 1, true);
    EXPECT_EQ(stream.control.as<DcqcnState>().rate.rate_bytes_per_s(), rate);
    now += 1;
    ack(left[2], left[2].psn + 1, true);
    EXPECT_LT(stream.control.as<DcqcnState>().rate.rate_bytes_per_s(), rate);
}

struct Reps : PathsTest {
    Reps() : PathsTest(with(Control::kFixed, Choice::kReps)) {}
};

TEST_F(Reps, BX7_PathsWithoutAMarkAreTakenOnceOldestFirst) {
    const std::vector<Departure> left = send();
    now += kRtt;
    sack(left[3]);
    sack(left[4], true);
    sack(left[5]);
    nack(left[6]);
    const auto next = send();
    ASSERT_GE(next.size(), 3u);
    EXPECT_EQ(next[0].vp, left[3].vp);
    EXPECT_EQ(next[1].vp, left[5].vp);
    EXPECT_EQ(paths.counters().recycled, 2u);
    for (size_t i = 2; i < next.size(); ++i)
        for (const Departure& d : left) EXPECT_NE(next[i].vp, d.vp) << "a new path, one of 16384";
}

TEST_F(Reps, BX8_AfterAFaultKnownPathsAloneUntilItIsOver) {
    std::vector<Departure> left = send();
    now += kRtt;
    std::set<uint16_t> good;
    for (const Departure& d : left) {
        ack(d);
        good.insert(d.vp);
    }
    left = send();
    while (paths.counters().freezes == 0) {  // nothing comes back
        now = paths.next_timer(stream).at_ns;
        paths.expire(stream, now);
        for (const Departure& d : send()) left.push_back(d);
    }
    const std::vector<Departure> frozen = send();
    for (const Departure& d : frozen) EXPECT_TRUE(good.contains(d.vp));
    EXPECT_TRUE(stream.entropies->frozen());
    now += Entropies::kFreezeNs;
    ack(left.back(), left.back().psn + 1);
    const std::vector<Departure> after = send();
    ASSERT_FALSE(after.empty());
    for (const Departure& d : after) EXPECT_FALSE(good.contains(d.vp)) << "a window of new ones";
}

TEST(EntropiesTest, BX8_KnownPathsAreRepeatedInTurn) {
    Entropies entropies;
    uint16_t vp = 0;
    EXPECT_FALSE(entropies.take(1, vp));
    for (uint16_t i = 1; i <= 10; ++i) entropies.recycle(i);
    for (uint16_t i = 3; i <= 10; ++i) {  // the latest eight
        ASSERT_TRUE(entropies.take(1, vp));
        EXPECT_EQ(vp, i);
    }
    EXPECT_FALSE(entropies.take(1, vp));
    EXPECT_TRUE(entropies.freeze(1, 2));
    EXPECT_FALSE(entropies.freeze(1, 2));
    std::multiset<uint16_t> taken;
    for (int i = 0; i < 16; ++i) {
        ASSERT_TRUE(entropies.take(2, vp));
        taken.insert(vp);
    }
    for (uint16_t i = 3; i <= 10; ++i) EXPECT_EQ(taken.count(i), 2u);
    entropies.recycle(77);
    EXPECT_FALSE(entropies.take(1 + Entropies::kFreezeNs, vp));
    EXPECT_FALSE(entropies.freeze(1 + Entropies::kFreezeNs, 2)) << "still exploring";
    EXPECT_FALSE(entropies.take(1 + Entropies::kFreezeNs, vp));
    ASSERT_TRUE(entropies.take(1 + Entropies::kFreezeNs, vp));
    EXPECT_EQ(vp, 77);
}

// Only acknowledgements drive it. The base round trip is 12 us, so the target is 9 us.
struct NsccTest : testing::Test {
    static constexpr uint32_t kBdp = 64, kMost = 256;
    static constexpr uint64_t kBase = 12'000;
    Nscc nscc;
    uint32_t cwnd = 64 * kOne;
    uint64_t now = 1'000'000;

    NsccTest() { acks(1, 0, false); }
    void acks(uint32_t count, uint64_t delay_ns, bool marked) {
        for (uint32_t i = 0; i < count; ++i) {
            now += kBase / kBdp;
            cwnd = nscc.on_ack(cwnd, kBdp, kMost, kBase + delay_ns, marked, now);
        }
    }
};

TEST_F(NsccTest, BX9_ProportionalIncreaseIsTheLessTheLongerTheDelay) {
    acks(8, 4'000, false);
    const uint32_t at_start = cwnd;
    acks(kBdp, 3'000, false);
    const uint32_t by_short = cwnd - at_start;
    acks(kBdp, 8'000, false);
    const uint32_t by_long = cwnd - at_start - by_short;
    EXPECT_GT(by_long, 0u);
    EXPECT_GT(by_short, 2 * by_long);
    EXPECT_NEAR(by_short, kBdp * 5369 * 2 / 3, kOne) << "3 packets of 4 KiB of 150 KB, two thirds of them";
}

TEST_F(NsccTest, BX9_WithoutDelayAWindowIsFilledFast) {
    acks(2 * kBdp, 0, false);
    EXPECT_GT(cwnd, 75 * kOne);
    acks(100 * kBdp, 0, false);
    EXPECT_EQ(cwnd, kMost * kOne);
}

TEST_F(NsccTest, BX9_AMarkWithoutDelayIsNotOurs) {
    acks(kBdp, 2'000, true);
    EXPECT_LE(cwnd - 64 * kOne, kOne) << "but for the least increase";
    EXPECT_GE(cwnd, 64 * kOne);
}

TEST_F(NsccTest, BX9_MarksAndDelayShrinkItOnceInARoundTrip) {
    acks(4 * kBdp, 40'000, false);  // without marks they do not show a growing queue
    uint32_t before = 0;
    for (uint32_t i = 0; i < kBdp && cwnd >= before; ++i) {
        before = cwnd;
        acks(1, 40'000, true);
    }
    const uint32_t after = cwnd;
    EXPECT_LT(after, before);
    EXPECT_GE(after, before / 2);
    acks(10, 40'000, true);
    EXPECT_GE(cwnd, after);
    acks(kBdp, 40'000, true);
    EXPECT_LT(cwnd, after);
    acks(100 * kBdp, 40'000, true);
    EXPECT_GE(cwnd, kOne) << "never below a packet";
    EXPECT_LT(cwnd, 2 * kOne);
}

TEST_F(NsccTest, BX9_QuickAdaptKeepsWhatArrives) {
    nscc.on_loss();
    now += 3 * kBase;
    acks(1, 30'000, false);
    EXPECT_LE(cwnd, 2 * kOne) << "two arrived in a round trip";
    const uint32_t after = cwnd;
    acks(64, 40'000, true);
    EXPECT_EQ(cwnd, after) << "marks of the window before say nothing of this one";
    nscc.on_loss();
    cwnd = 64 * kOne;
    acks(2 * kBdp, 0, false);
    EXPECT_GE(cwnd, 64 * kOne) << "more than an eighth arrives";
}

TEST_F(NsccTest, BX9_WhatIsRefusedLeavesTheWindow) {
    acks(kBdp, 2'000, true);
    const uint32_t before = cwnd;
    for (int i = 0; i < 10; ++i) cwnd = nscc.on_nack(cwnd, kMost, kBase, now);
    EXPECT_EQ(cwnd, before - 10 * kOne);
    for (int i = 0; i < 100; ++i) cwnd = nscc.on_nack(cwnd, kMost, kBase, now);
    EXPECT_EQ(cwnd, kOne) << "never below a packet";
}

// Below one packet, time replaces the window.
struct OnePacketWindow : NsccTest {
    OnePacketWindow() { cwnd = kOne; }
    void refusal(uint64_t later_ns) {
        now += later_ns;
        cwnd = nscc.on_nack(cwnd, kMost, kBase, now);
    }
};

TEST_F(OnePacketWindow, BX11_EachRefusalDoublesTheTimeUntilTheNextPacket) {
    for (const uint32_t apart : {2u, 4u, 8u, 16u, 16u}) {
        refusal(kBase * nscc.round_trips_apart());
        EXPECT_EQ(nscc.round_trips_apart(), apart);
        EXPECT_EQ(cwnd, kOne);
    }
}

TEST_F(OnePacketWindow, BX11_AnswersToTheWindowBeforeCountOnce) {
    cwnd = 20 * kOne;
    for (int i = 0; i < 40; ++i) refusal(kBase / 40);
    EXPECT_EQ(cwnd, kOne);
    EXPECT_EQ(nscc.round_trips_apart(), 1u);
    refusal(kBase);
    EXPECT_EQ(nscc.round_trips_apart(), 2u);
    refusal(2 * kBase - 1);
    EXPECT_EQ(nscc.round_trips_apart(), 2u);
    refusal(1);
    EXPECT_EQ(nscc.round_trips_apart(), 4u);
}

TEST_F(OnePacketWindow, BX11_AnAnswerWithoutAMarkHalvesItAndOneWithoutDelayEndsIt) {
    for (int i = 0; i < 4; ++i) refusal(16 * kBase);
    acks(1, 30'000, true);
    EXPECT_EQ(nscc.round_trips_apart(), 16u);
    acks(1, 30'000, false);
    EXPECT_EQ(nscc.round_trips_apart(), 8u);
    EXPECT_EQ(cwnd, kOne);
    acks(1, 1'000, false);
    EXPECT_EQ(nscc.round_trips_apart(), 1u);
    now += 10 * kBase;
    acks(8, 1'000, false);
    EXPECT_GT(cwnd, kOne);
}

// Its header has overtaken the queue.
TEST_F(NsccTest, BX9_ARefusalTellsTheBaseRoundTrip) {
    cwnd = nscc.on_nack(cwnd, kMost, kBase / 2, now);
    EXPECT_EQ(nscc.base_rtt_ns(), kBase / 2);
}

struct NsccPaths : PathsTest {
    NsccPaths() : PathsTest(with(Control::kNscc, Choice::kReps)) {}
    void pass_timeout() {
        const uint8_t before = stream.backoff;
        while (stream.backoff == before) {
            now = paths.next_timer(stream).at_ns;
            paths.expire(stream, now);
        }
    }
};

// With many paths it is known that an answer is for the latest retransmission.
TEST_F(NsccPaths, BX9_RepeatedPacketsTellTheirDelay) {
    std::vector<Departure> left = send();
    now += 2 * kRtt;
    nack(left[0]);
    EXPECT_EQ(stream.control.as<Nscc>().base_rtt_ns(), 2 * kRtt);
    sack(left[1]);
    const auto again = send();
    ASSERT_TRUE(again.at(0).again);
    now += kRtt;
    ack(again[0], left[0].psn + 1);
    EXPECT_EQ(stream.control.as<Nscc>().base_rtt_ns(), kRtt);
}

// Half of a full window is refused: these packets have left it, and are retransmitted when there is room again.
TEST_F(NsccPaths, BX9_WhatGoesAgainWaitsForTheWindow) {
    const std::vector<Departure> left = send();
    now += kRtt;
    for (size_t i = 0; i < left.size() / 2; ++i) nack(left[i]);
    EXPECT_EQ(send().size(), 0u);
    sack(left.back());
    const auto again = send();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_TRUE(again[0].again);
    EXPECT_EQ(again[0].psn, left[0].psn);
}

// All of a window is refused until it is one packet, which is then sent alone, and not before its time.
struct SpacedOut : NsccPaths {
    SpacedOut() {
        for (std::vector<Departure> left = send(8);; left = send(0)) {
            now += stream.control.as<Nscc>().round_trips_apart() * kRtt;
            for (const Departure& d : left) nack_trimmed(d);
            if (stream.control.as<Nscc>().round_trips_apart() == 8) break;
            if (stream.pace_ns > now) pass(stream.pace_ns - now);
        }
    }
    void pass(uint64_t ns) {
        now += ns;
        paths.expire(stream, now);
    }
};

TEST_F(SpacedOut, BX11_APacketWaitsForItsTimeAndNoTimeoutIsSeenInIt) {
    const uint64_t apart_ns = stream.control.as<Nscc>().round_trips_apart() * kRtt;
    ASSERT_GT(stream.pace_ns, now);
    EXPECT_GE(stream.pace_ns, stream.sent_ns + apart_ns / 2);
    EXPECT_LT(stream.pace_ns, stream.sent_ns + apart_ns * 3 / 2);
    stream.timer_ns = now + 1;
    EXPECT_TRUE(send(0).empty());
    pass(1);
    EXPECT_EQ(stream.backoff, 0u);
    EXPECT_EQ(paths.counters().resent_timeout, 0u);
    EXPECT_LE(paths.next_timer(stream).at_ns, stream.pace_ns);
    pass(stream.pace_ns - now);
    EXPECT_EQ(send(0).size(), 1u);
    EXPECT_EQ(stream.timer_ns, stream.sent_ns + PathsConfig{}.min_rto_ns) << "it is late when it is late itself";
    pass(stream.timer_ns - now);
    EXPECT_EQ(stream.backoff, 1u);
}

TEST_F(SpacedOut, BX11_AfterAPauseAWindowIsThereAtOnce) {
    while (stream.outstanding()) {
        if (stream.pace_ns > now) pass(stream.pace_ns - now);
        const std::vector<Departure> left = send(0);
        ASSERT_EQ(left.size(), 1u);
        now += kRtt;
        ack(left[0], left[0].psn + 1, true);
    }
    EXPECT_NE(stream.control.as<Nscc>().round_trips_apart(), 1u);
    pass(100 * kRtt);
    const std::vector<Departure> left = send(8);
    ASSERT_EQ(left.size(), 8u) << "MP-8";
    now += kRtt;
    ack(left[0], left[0].psn + 1, true);
    EXPECT_EQ(send(1).size(), 1u);
}

TEST_F(NsccPaths, BX11_WhatTheTimerRepeatsLeavesTheWindow) {
    send(8);
    pass_timeout();
    EXPECT_EQ(stream.cwnd(), 8u) << "the oldest alone (MP-10)";
    send(0);
    pass_timeout();
    EXPECT_EQ(stream.cwnd(), 1u);
}

// Entries in one packet have the same effect as single ones.
TEST_F(NsccPaths, BX5_NoShortcutPassesTheSignals) {
    const std::vector<Departure> left = send();
    std::vector<uint8_t> wire(left.size() * wire::kMpAckEntryBytes);
    for (size_t i = 0; i < left.size(); ++i)
        wire::emit_ack_entry(wire.data() + i * wire::kMpAckEntryBytes, {.kind = MpAck::kAck,
                                                                        .ece = false,
                                                                        .retx = false,
                                                                        .response = false,
                                                                        .psn = left[i].psn.value(),
                                                                        .vp = left[i].vp});
    now += kRtt;
    EXPECT_EQ(paths.acknowledge_next(stream, wire.data(), 8, false, now), 0u);
}

PathsConfig adaptive() {
    PathsConfig config;
    config.vps = 4;
    return config;
}
struct AdaptiveTest : PathsTest {
    AdaptiveTest() : PathsTest(adaptive()) {
        const Departure first = send(1)[0];
        now += kRtt;
        ack(first);
    }
};

TEST_F(AdaptiveTest, BX12_WithAPartOfAPacketOneLeavesAtATimeAndTheNextAtItsTime) {
    stream.cwnd_fixed = kOne / 4;
    const uint64_t begun = now;
    for (uint64_t i = 0; i < 100; ++i) {
        const auto left = send();
        ASSERT_EQ(left.size(), 1u);
        const uint64_t due = stream.pace_ns;
        EXPECT_GE(due - now, 2 * kRtt);
        EXPECT_LE(due - now, 6 * kRtt);
        now += kRtt;
        ack(left[0]);
        stream.cwnd_fixed = kOne / 4;
        EXPECT_TRUE(send().empty()) << "its time has not come";
        EXPECT_EQ(paths.next_timer(stream).at_ns, due);
        now = due;
        paths.expire(stream, now);
    }
    EXPECT_NEAR(static_cast<double>(now - begun) / kRtt, 400, 60) << "four round trips for each";
    EXPECT_EQ(paths.counters().resent_timeout, 0u);
}

// The next packet takes the path that an ACK echoes, so a VP that the stream never used is refused.
TEST_F(AdaptiveTest, APeerCannotChooseAPath) {
    const Departure sent = send(1)[0];
    for (const uint16_t vp : {uint16_t{80}, static_cast<uint16_t>(sent.vp ^ 0x100)}) {
        EXPECT_FALSE(paths.acknowledge(
            stream,
            {.kind = MpAck::kAck, .ece = false, .retx = false, .response = false, .psn = sent.psn.value(), .vp = vp},
            now));
    }
    EXPECT_EQ(paths.counters().stale_acks, 2u);
    EXPECT_EQ(stream.inflate, 0u);
}

}  // namespace
}  // namespace rove::transport
