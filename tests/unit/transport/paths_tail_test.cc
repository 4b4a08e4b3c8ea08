// SPDX-License-Identifier: Apache-2.0
// MP-RDMA's sender: the end of a message, whose loss no later packet reveals (MP-10), and needless retransmissions.
// Rule by rule; `rove-sim tail` measures message times over a modelled network.
#include <algorithm>
#include <set>

#include "paths_sender.h"

namespace rove::transport {
namespace {

std::vector<Psn> psns(const std::vector<Departure>& departures) {
    std::vector<Psn> all;
    for (const Departure& d : departures) all.push_back(d.psn);
    return all;
}

// With BX-1, and without it as in the paper.
struct Tail : testing::TestWithParam<bool> {
    struct Sender : PathsTest {
        explicit Sender(bool infer_losses) : PathsTest(with(infer_losses)) {
            // The round trip is known and does not vary.
            for (int round = 0; round < 40; ++round) {
                const auto left = send(1);
                now += kRtt;
                ack(left[0]);
                send(0);
            }
        }
        static PathsConfig with(bool infer_losses) {
            PathsConfig config = make_config();
            config.infer_losses = infer_losses;
            return config;
        }
        void TestBody() override {}
        // Fires the next timer and returns the packets that are sent then.
        std::vector<Departure> fire() {
            now = paths.next_timer(stream).at_ns;
            paths.expire(stream, now);
            return send(0);
        }
    };
    Sender sender{GetParam()};
    SendStream& stream = sender.stream;
    uint64_t& now = sender.now;
};

INSTANTIATE_TEST_SUITE_P(Both, Tail, testing::Bool(),
                         [](const auto& test) { return test.param ? "WithInference" : "AsInThePaper"; });

TEST_P(Tail, MP10_ALostMessageOfOnePacketIsSentAgainWithinThreeRoundTrips) {
    const uint64_t start = now;
    const auto left = sender.send(1);
    sender.send(0);
    EXPECT_EQ(psns(sender.fire()), psns(left));
    EXPECT_GE(now - start, 2 * kRtt);
    EXPECT_LE(now - start, 3 * kRtt);
    EXPECT_EQ(stream.backoff, 0);
    EXPECT_EQ(sender.paths.counters().tail_probes, 1u);
}

TEST_P(Tail, MP10_AllOfALostTailIsSentAgainAtOnce) {
    const auto left = sender.send(6);
    now += kRtt;
    sender.ack(left[0]);
    sender.ack(left[1]);
    // A packet sent together with an acknowledged one is overdue after slightly more than a round trip.
    ASSERT_TRUE(sender.send(0).empty());
    const auto again = sender.fire();
    EXPECT_EQ(psns(again), (std::vector<Psn>{left[2].psn, left[3].psn, left[4].psn, left[5].psn}));
    EXPECT_LE(now, 1'000'000 + 40 * kRtt + 3 * kRtt / 2);
}

// The retransmissions are lost again but for one, which reveals the others: they need no round trip each.
TEST_P(Tail, MP10_WhatWasRepeatedInVainIsSentAgainTogether) {
    const auto left = sender.send(4);
    ASSERT_EQ(sender.fire().size(), 4u);
    now += kRtt;
    sender.sack({left[3].psn, stream.records[left[3].psn.value() % 128].vp, true});
    auto again = sender.send(0);  // packets of one path, by BX-1
    EXPECT_TRUE(GetParam() || again.empty()) << "not before it may have come by a slower path";
    const uint64_t before = now;
    if (again.size() != 3) std::ranges::copy(sender.fire(), std::back_inserter(again));
    std::set<Psn> all;
    for (const Departure& d : again) all.insert(d.psn);
    EXPECT_EQ(all, (std::set<Psn>{left[0].psn, left[1].psn, left[2].psn}));
    EXPECT_LE(now - before, kRtt / 2);
}

TEST_P(Tail, MP10_WhatWasRepeatedLessThanARoundTripAgoIsNot) {
    const auto left = sender.send(3);
    now += kRtt;
    sender.sack(left[1]);
    ASSERT_EQ(sender.fire().size(), 2u);  // the first and the third
    now += kRtt / 4;
    sender.sack({left[2].psn, stream.records[left[2].psn.value() % 128].vp, true});
    EXPECT_TRUE(sender.send(0).empty());
    now += kRtt / 2;
    EXPECT_TRUE(sender.send(0).empty());
}

TEST_P(Tail, MP10_RepeatsAsMuchAsTheWindowAllowsAndOnePacketAlways) {
    const auto left = sender.send();  // a full window
    EXPECT_EQ(left.size(), 8u);
    EXPECT_EQ(psns(sender.fire()), std::vector<Psn>{left[0].psn});
}

// RFC 9002, section 6.2.4: one more loss need not cost another wait, unless the window has no room.
TEST_P(Tail, MP10_WhatWasRepeatedInVainGoesTwice) {
    for (const uint32_t packets : {1u, 8u}) {
        Sender fresh(GetParam());
        const auto left = fresh.send(packets);
        ASSERT_EQ(left.size(), packets);
        ASSERT_EQ(fresh.fire().size(), 1u);
        const auto again = fresh.fire();
        EXPECT_EQ(psns(again), std::vector<Psn>(packets == 1 ? 2 : 1, left[0].psn));
        EXPECT_EQ(fresh.stream.lost, 0u);
        fresh.ack(again.back());
        EXPECT_EQ(fresh.stream.una, left[0].psn + 1);
    }
}

// RFC 8985: a silent peer is not flooded.
TEST_P(Tail, MP10_TheTailTimerBacksOffAndEndsWithTheTimeout) {
    sender.send(1);
    uint64_t last = now;
    std::vector<uint64_t> waits;
    while (stream.backoff == 0) {
        EXPECT_LE(sender.fire().size(), 2u);
        waits.push_back(now - last);
        last = now;
    }
    ASSERT_EQ(waits.size(), 5u);
    EXPECT_EQ(waits[1], waits[0]);
    EXPECT_EQ(waits[2], 2 * waits[0]);
    EXPECT_EQ(waits[3], 4 * waits[0]);
    EXPECT_EQ(now - (1'000'000 + 40 * kRtt), sender.paths.config().min_rto_ns);
}

// The timer does not fire while ACKs arrive: later packets then reveal the loss.
TEST_P(Tail, MP10_AnyAckRestartsTheTailTimer) {
    const auto left = sender.send();
    for (int i = 7; i > 0; --i) {
        now += kRtt;
        sender.sack(left[i]);
        EXPECT_GE(sender.paths.next_timer(stream).at_ns, now + kRtt / 4);
    }
    EXPECT_EQ(sender.paths.counters().tail_probes, 0u);
}

// This includes an ACK without news, which measures no round trip.
TEST_P(Tail, MP10_AnAckThatComesAgainRestartsTheTailTimer) {
    const auto left = sender.send(2);
    for (int i = 0; i < 8; ++i) {
        now += kRtt / 2;
        sender.sack(left[1]);
        if (stream.lost != 0) continue;  // inferred: later packets then reveal it
        EXPECT_GE(sender.paths.next_timer(stream).at_ns, now + kRtt / 4);
    }
}

TEST_P(Tail, MP10_ATimeNotYetMeasuredIsNotUsed) {
    SendStream fresh;
    sender.paths.start(fresh, Psn(5));
    Departure d;
    ASSERT_TRUE(sender.paths.next(fresh, true, now, d));
    sender.paths.sent(fresh, d, now);
    EXPECT_EQ(sender.paths.next_timer(fresh).at_ns, now + sender.paths.config().min_rto_ns);
    sender.paths.stop(fresh);
}

// The echo may tell which transmission an ACK is for; the age of the first one is no longer known.
TEST_P(Tail, RepetitionsAreNotMeasured) {
    sender.send(1);
    const auto again = sender.fire();
    ASSERT_EQ(again.size(), 1u);
    const uint64_t before = stream.srtt_ns;
    now += 5 * kRtt;
    sender.ack(again[0]);
    EXPECT_EQ(stream.srtt_ns, before);
}

// Note 5 of paths.h.
TEST_P(Tail, MP10_AFalseAlarmDoublesTheWait) {
    const uint64_t wait = [&] {
        const uint64_t start = now;
        sender.send(1);
        const auto again = sender.fire();
        EXPECT_EQ(again.size(), 1u);
        return now - start;
    }();
    const Departure first{stream.una, stream.records[stream.una.value() % 128].vp, false};
    now += kRtt / 4;
    sender.ack(first);  // an ACK of the first transmission
    EXPECT_EQ(sender.paths.counters().false_alarms, 1u);
    EXPECT_EQ(stream.patience, 1);
    const uint64_t start = now;
    sender.send(1);
    sender.fire();
    EXPECT_GE(now - start, 2 * wait - 2 * kRtt / 8);
    EXPECT_LE(now - start, 2 * wait + 2 * kRtt / 8);
}

struct FalseAlarms : PathsTest {
    explicit FalseAlarms(const PathsConfig& config = make_config()) : PathsTest(config) {}
    // A packet that its sender considers lost although it arrives later.
    void repeat_one(bool was_lost) {
        const auto left = send(2);
        for (const Departure& d : left) by[d.psn.value() % 128] = d.vp;
        now += kRtt;
        PacketRecord& first = stream.records[left[0].psn.value() % 128];
        PacketRecord& second = stream.records[left[1].psn.value() % 128];
        second.vp = first.vp;  // on the path of the first
        second.before = static_cast<uint16_t>(left[0].psn.value() % 128);
        sack({left[1].psn, first.vp, false});
        inferred = stream.lost != 0;
        while (!stream.records[left[0].psn.value() % 128].retransmitted) {
            send(0);
            if (stream.records[left[0].psn.value() % 128].retransmitted) break;
            now = paths.next_timer(stream).at_ns;
            paths.expire(stream, now);
        }
        now += kRtt;
        const Departure again{left[0].psn, stream.records[left[0].psn.value() % 128].vp, true};
        ack(was_lost ? again : left[0], left[1].psn + 1);
        send(0);
        now += 2 * kRtt;
    }
    bool inferred = false;
    std::array<uint16_t, 128> by{};
};

// In-network spraying: packets of one path overtake each other.
TEST_F(FalseAlarms, BX1_FalseAlarmsTurnTheInferenceOffForTheStream) {
    repeat_one(false);
    EXPECT_TRUE(inferred);
    int needed = 1;
    while (inferred && needed < 20) {
        repeat_one(false);
        ++needed;
    }
    EXPECT_FALSE(inferred);
    EXPECT_LE(needed, 3);
    while (stream.patience < 5) repeat_one(false);
    repeat_one(false);
    EXPECT_FALSE(inferred);
    EXPECT_EQ(stream.patience, 5);
    EXPECT_GE(paths.counters().false_alarms, 5u);
}

struct FalseAlarmsOfIrn : FalseAlarms {
    FalseAlarmsOfIrn()
        : FalseAlarms([] {
              PathsConfig config = make_config();
              config.learn_patience = false;
              return config;
          }()) {}
};

TEST_F(FalseAlarmsOfIrn, ChangeNothing) {
    for (int i = 0; i < 20; ++i) {
        repeat_one(false);
        EXPECT_TRUE(inferred) << i;
    }
    EXPECT_EQ(stream.patience, 0);
    EXPECT_EQ(paths.counters().false_alarms, 20u);
}

TEST_F(FalseAlarms, BX1_RealLossesTurnItOnAgain) {
    while (stream.patience < 5) repeat_one(false);
    for (int i = 0; i < 16 * 5; ++i) {
        EXPECT_NE(stream.patience, 0) << i;
        repeat_one(true);
    }
    EXPECT_EQ(stream.patience, 0);
    repeat_one(true);
    EXPECT_TRUE(inferred);
}

// Eight packets are lost, and the window is smaller than that, so no packet is sent behind them.
struct SmallWindow : PathsTest, testing::WithParamInterface<int> {
    SmallWindow()
        : PathsTest([] {
              PathsConfig config = make_config();
              config.control = PathsConfig::Control::kNscc;
              config.choice = PathsConfig::Choice::kRandom;
              config.min_rto_ns = 100'000;
              return config;
          }()) {}
};

TEST_P(SmallWindow, BX1_HowManyFalseAlarmsThereWereNoWaitIsLongerThanTheTimeout) {
    for (int round = 0; round < 40; ++round) {
        const auto left = send(1);
        now += kRtt;
        ack(left[0]);
    }
    stream.patience = static_cast<uint8_t>(GetParam());
    const auto left = send(8);
    ASSERT_EQ(left.size(), 8u);
    stream.cwnd_fixed = 2 * kOne;
    now = paths.next_timer(stream).at_ns;
    paths.expire(stream, now);
    const auto again = send(0);
    ASSERT_EQ(psns(again), std::vector<Psn>{left[0].psn});
    now += kRtt;
    ack(again[0]);
    EXPECT_EQ(stream.lost, 7u);
    EXPECT_EQ(psns(send(0)), (std::vector<Psn>{left[1].psn, left[2].psn}));
}

INSTANTIATE_TEST_SUITE_P(Patience, SmallWindow, testing::Values(3, 5));

TEST_F(FalseAlarms, BX1_OneRoundTripIsOneFalseAlarm) {
    const auto left = send(6);
    now += kRtt;
    for (const Departure& d : left) {
        PacketRecord& packet = stream.records[d.psn.value() % 128];
        packet.retransmitted = true;
    }
    for (const Departure& d : left) ack(d);
    EXPECT_EQ(paths.counters().false_alarms, 6u);
    EXPECT_EQ(stream.patience, 1);
}

// The retransmitted copy arrived first; the network also duplicates late packets.
TEST_F(FalseAlarms, BX1_AFirstTransmissionThatComesBehindItsRepetitionIsOneToo) {
    const auto left = send(3);
    now += kRtt;
    sack(left[1]);
    sack(left[2]);
    PacketRecord& first = stream.records[left[0].psn.value() % 128];
    first.retransmitted = true;
    sack({left[0].psn, first.vp, true});
    EXPECT_EQ(paths.counters().false_alarms, 0u);
    sack(left[0]);
    sack(left[0]);
    EXPECT_EQ(paths.counters().false_alarms, 1u);
}

// A held packet that was refused is not stored: a duplicated ACK of it has no meaning.
TEST_F(PathsTest, EU4_ASackThatWasTakenBackIsNotBelievedUntilThePacketWasSentAgain) {
    const auto left = send(3);
    now += kRtt;
    sack(left[1]);
    nack(left[1]);
    sack(left[1]);
    EXPECT_EQ(stream.inflate, 0u);
    const auto again = send(0);
    ASSERT_EQ(again.size(), 1u);
    now += kRtt;
    sack(again[0]);
    EXPECT_EQ(stream.inflate, 1u);
}

}  // namespace
}  // namespace rove::transport
