// SPDX-License-Identifier: Apache-2.0
// MP-RDMA's sender: loss detection and retransmission, rule by rule.
#include <algorithm>
#include <set>

#include "paths_sender.h"

namespace rove::transport {
namespace {

struct Recovering : PathsTest {
    static PathsConfig with(PathsConfig::Recovery recovery) {
        PathsConfig config = make_config();
        config.infer_losses = false;
        config.recovery = recovery;
        return config;
    }
    explicit Recovering(PathsConfig::Recovery recovery = PathsConfig::Recovery::kSelectiveRepeat)
        : PathsTest(with(recovery)) {}
    // Sends eight packets; the first and the fourth are lost, the last is refused.
    std::vector<Psn> sent_again() {
        const auto left = send();
        now += kRtt;
        std::vector<Psn> again;
        for (const int i : {1, 2, 4, 5, 6}) sack(left[i]);
        nack(left[7]);
        EXPECT_TRUE(stream.recovering);
        EXPECT_EQ(stream.recovery, stream.nxt);
        for (const Departure& d : send()) {
            if (d.again) again.push_back(d.psn);
        }
        return again;
    }
    const Psn first{0xFFFFF0};
};
struct GoingBack : Recovering {
    GoingBack() : Recovering(PathsConfig::Recovery::kGoBackN) {}
};

TEST_F(Recovering, MP9_SelectiveRepeatSkipsWhatWasSacked) {
    EXPECT_EQ(sent_again(), (std::vector<Psn>{first, first + 3, first + 7}));
    paths.advance(stream, first + 8, now);
    EXPECT_FALSE(stream.recovering);
}

TEST_F(GoingBack, MP9_GoBackNDoesNot) {
    const auto again = sent_again();
    const std::set<uint32_t> expected{0, 1, 2, 3, 4, 5};
    for (const uint32_t i : expected) EXPECT_EQ(std::ranges::count(again, first + i), 1) << i;
}

TEST_F(Recovering, BX10_ATrimmedPacketGoesAgainAndNoOther) {
    const auto left = send();
    now += kRtt;
    nack_trimmed(left[7]);
    EXPECT_FALSE(stream.recovering);
    auto again = send(0);
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].psn, left[7].psn);
    now += kRtt;
    nack_trimmed(again[0]);
    again = send(0);
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].psn, left[7].psn);
}

// A packet that is too far ahead is refused until the oldest has arrived, whose retransmission may be lost too.
TEST_F(Recovering, MP9_ARepetitionThatIsLostIsNoticedByTheNextRefusal) {
    ASSERT_EQ(sent_again().back(), first + 7);
    const auto repeat_the_refused = [&] {
        now += 2 * kRtt;
        nack({first + 7, stream.records[(first + 7).value() % 128].vp, true});
        return send(0);
    };
    auto again = repeat_the_refused();  // it was sent together with the retransmission of the first
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].psn, first + 7);
    again = repeat_the_refused();  // it was sent two round trips later
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].psn, first);
}

TEST_F(PathsTest, MP11_TimeoutSendsAllAgainAndBacksOff) {
    const auto left = send(5);
    uint64_t last = now, waited = 0;
    for (int fired = 1; fired <= 4; ++fired) {
        now = paths.next_timer(stream).at_ns;
        EXPECT_GE(now - last, 2 * waited);
        waited = now - last;
        last = now;
        paths.expire(stream, now);
        EXPECT_EQ(stream.backoff, fired);
        const auto again = send(0);
        EXPECT_EQ(again.size(), fired == 1 ? 1u : 5u);  // however small the window
    }
    stream.srtt_ns = kRtt;
    ack({.psn = left[0].psn, .vp = 0xC000, .again = true}, left[1].psn);
    EXPECT_EQ(stream.backoff, 0);
}

struct TimersAlone : PathsTest {
    static PathsConfig with() {
        PathsConfig config = make_config();
        config.infer_losses = config.repeat_early = false;
        return config;
    }
    TimersAlone() : PathsTest(with()) {}
    // All but the first of eight packets are lost, and the timer retransmits the second.
    Departure repeated_by_timer() {
        left = send(8);
        now += kRtt;
        ack(left[0]);
        now = paths.next_timer(stream).at_ns;
        paths.expire(stream, now);
        const auto again = send(0);
        EXPECT_EQ(again.size(), 1u);
        EXPECT_EQ(again[0].psn, left[1].psn);
        now += kRtt;
        return again[0];
    }
    // Returns the packets sent within a hundredth of the next timeout.
    size_t sent_soon() {
        const uint64_t until = now + paths.config().min_rto_ns / 100;
        size_t packets = send(0).size();
        while (paths.next_timer(stream).at_ns <= until) {
            now = paths.next_timer(stream).at_ns;
            paths.expire(stream, now);
            packets += send(0).size();
        }
        return packets;
    }
    std::vector<Departure> left;
};

// The answers to a whole tail were lost, refusals among them. The timer restarts with each progress.
TEST_F(TimersAlone, MP11_WhatLeftBeforeAPacketThatHadToBeRepeatedGoesWithoutAnotherTimeout) {
    const Departure again = repeated_by_timer();
    ack(again);
    EXPECT_EQ(sent_soon(), 6u);
    EXPECT_EQ(paths.counters().resent_timeout, 1u) << "there is no MP-10";
}

TEST_F(TimersAlone, MP11_AFalseAlarmOfTheTimerRepeatsNothingElse) {
    repeated_by_timer();
    ack(left[1]);
    EXPECT_EQ(sent_soon(), 0u);
}

TEST_F(TimersAlone, MP11_WhatLeftLessThanTwoRoundTripsBeforeItIsStillToCome) {
    left = send(8);
    now += kRtt;
    ack(left[0]);
    now = paths.next_timer(stream).at_ns - kRtt;
    ASSERT_EQ(send(1).size(), 1u);
    now += kRtt;
    paths.expire(stream, now);
    const auto again = send(0);
    ASSERT_EQ(again.size(), 1u);
    now += kRtt / 2;
    ack(again[0]);
    EXPECT_EQ(sent_soon(), 6u);
}

// The round trip is ten times the timer's floor: the first packets are retransmitted needlessly, and packets whose
// timer has not fired measure it.
TEST_F(PathsTest, MP11_ARoundTripBeyondTheTimerIsMeasuredAtLast) {
    const uint64_t rtt = 10 * paths.config().min_rto_ns;
    uint32_t repeated = 0;
    for (int round = 0; round < 6 && stream.srtt_ns == 0; ++round) {
        const auto left = send(8);
        const uint64_t answer = now + rtt;
        while (paths.next_timer(stream).at_ns < answer) {
            now = paths.next_timer(stream).at_ns;
            paths.expire(stream, now);
            repeated += static_cast<uint32_t>(send(0).size());
        }
        now = answer;
        ack(left.back());
    }
    EXPECT_NEAR(static_cast<double>(stream.srtt_ns), static_cast<double>(rtt), 1e5);
    EXPECT_GT(repeated, 0u);
    EXPECT_FALSE(send(8).empty());
    EXPECT_GE(paths.next_timer(stream).at_ns, now + 2 * rtt);
}

TEST_F(PathsTest, MP11_TheTimerIsFourRoundTripsAndDoublesFiveTimes) {
    stream.srtt_ns = 1'000'000;
    stream.tail_probes = 4;
    send(1);
    uint64_t last = now;
    for (const uint64_t expected : {4, 8, 16, 32, 64, 128, 128, 128}) {
        now = paths.next_timer(stream).at_ns;
        EXPECT_EQ(now - last, expected * 1'000'000);
        last = now;
        paths.expire(stream, now);
        send(0);
        stream.tail_probes = 4;
    }
}

// The ACKs kept from better times tell nothing about the paths now: the retransmission takes a random one.
TEST_F(PathsTest, MP11_ATimeoutForgetsAcksThatWereKept) {
    const auto left = send();
    now += kRtt;
    for (const Departure& d : left) ack(d);
    ASSERT_EQ(send(1).size(), 1u);
    send(0);
    ASSERT_NE(stream.acks.count(), 0u);
    while (stream.backoff == 0) {
        now = paths.next_timer(stream).at_ns;
        paths.expire(stream, now);
        send(0);
    }
    EXPECT_EQ(stream.acks.count(), 0u);
}

TEST_F(PathsTest, BX1_ALaterPacketOfTheSamePathTellsOfALoss) {
    const auto first = send();
    now += kRtt;
    sack(first[2]);
    sack(first[5]);
    const auto second = send();
    ASSERT_EQ(second.size(), 2u);
    now += kRtt / 4;
    sack(first[6]);
    stream.acks.clear();
    stream.acks.add(first[2].vp);
    const auto third = send();  // behind second[0], on the same path
    ASSERT_EQ(third.size(), 1u);
    ASSERT_EQ(third[0].vp, second[0].vp);
    now += kRtt * 3 / 4;
    sack(second[1]);  // on another path: it tells nothing
    EXPECT_EQ(stream.lost, 0u);
    now += kRtt / 4;
    sack(third[0]);
    EXPECT_EQ(stream.lost, 1u);
    EXPECT_EQ(paths.counters().resent_inferred, 1u);
    const auto again = send();
    ASSERT_FALSE(again.empty());
    EXPECT_TRUE(again[0].again);
    EXPECT_EQ(again[0].psn, second[0].psn);
}

// It has overtaken packets in queues.
TEST_F(PathsTest, BX10_ATrimmedHeaderTellsNothingOfOtherPackets) {
    const auto first = send();
    now += kRtt;
    ack(first[0]);
    const uint64_t srtt_ns = stream.srtt_ns;
    now += 3 * kRtt;
    const auto second = send();
    ASSERT_GE(second.size(), 1u);
    now += kRtt / 4;
    for (const Departure& d : second) nack_trimmed(d);
    EXPECT_EQ(stream.srtt_ns, srtt_ns);
    for (const Departure& d : send(0)) EXPECT_GE(d.psn, second.front().psn);
}

TEST_F(PathsTest, BX1_APathWithoutAnyAckIsOverdueAfterTwoRoundTrips) {
    auto ring = send();
    const Departure dead = ring[0];
    ring.erase(ring.begin());
    for (int round = 0; round < 4 && stream.lost == 0 && paths.counters().resent_inferred == 0; ++round) {
        now += kRtt;
        std::vector<Departure> again;
        for (const Departure& d : ring) {
            sack(d);
            for (const Departure& next : send()) again.push_back(next);
        }
        ring = again;
    }
    EXPECT_EQ(paths.counters().resent_inferred, 1u);
    EXPECT_TRUE(std::ranges::any_of(ring, [&](const Departure& d) { return d.again && d.psn == dead.psn; }));
    EXPECT_LE(now, 1'000'000 + 4 * kRtt);
}

// A refused packet has also arrived. Otherwise, with a receiver that takes nothing more before the missing packet, the
// sender would learn of the loss only by the timeout.
TEST_F(PathsTest, BX1_RefusalsTellOfALossAsWell) {
    const auto left = send();
    for (int round = 0; round < 4; ++round) {
        now += kRtt;
        for (size_t i = 1; i < left.size(); ++i) {
            const bool again = round != 0;
            nack({left[i].psn, stream.records[left[i].psn.value() % 128].vp, again});
        }
        for (const Departure& d : send(0)) {
            if (d.psn == left[0].psn) return;
        }
    }
    FAIL() << "the first packet was not repeated";
}

// The network duplicates a packet, and the receiver refuses both.
TEST_F(PathsTest, MP9_ANackThatComesTooSoonForWhatWasRepeatedIsNotOfIt) {
    const auto left = send(3);
    now += kRtt;
    sack(left[1]);
    nack(left[0]);
    const auto again = send(0);
    ASSERT_EQ(again.size(), 1u);
    ASSERT_EQ(again[0].psn, left[0].psn);
    now += kRtt / 4;
    nack(again[0]);
    EXPECT_TRUE(send(0).empty());
    now += kRtt;
    nack(again[0]);
    EXPECT_EQ(send(0).size(), 1u);
}

TEST_F(PathsTest, ANackTakesASackBack) {
    const auto left = send(3);
    now += kRtt;
    sack(left[1]);
    nack(left[1]);
    EXPECT_EQ(stream.inflate, 0u);
    const auto again = send(0);
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].psn, left[1].psn);
}

}  // namespace
}  // namespace rove::transport
