// SPDX-License-Identifier: Apache-2.0
// MP-RDMA's sender with windows of hundreds of packets, and the memory for many packets and streams.
#include <algorithm>
#include <array>
#include <deque>
#include <random>
#include <set>
#include <vector>

#include "paths_sender.h"

namespace rove::transport {
namespace {

template <uint32_t kWindow>
struct Wide : PathsTest {
    static PathsConfig with() {
        PathsConfig config = make_config();
        config.max_window = kWindow;
        return config;
    }
    Wide() : PathsTest(with()) {}

    void widen_to(uint32_t packets) {
        while (stream.cwnd() < packets) {
            const auto sent = send();
            now += kRtt;
            for (const Departure& d : sent) ack(d);
        }
    }
};
using DefaultWindow = Wide<256>;
using VeryWide = Wide<1024>;

TEST_F(VeryWide, MP7_AcksThatAreTooManyToKeepAreLost) {
    widen_to(560);
    const auto left = send();
    now += kRtt;
    ack(left[0]);
    send(0);
    const uint32_t before = stream.cwnd_fixed, kept = UnusedAcks::kMost;
    ASSERT_EQ(stream.acks.count(), 1u);
    for (size_t i = 1; i < left.size(); ++i) ack(left[i]);
    EXPECT_EQ(stream.acks.count(), kept);
    // The stored credits let out twice their number, so that window is not used.
    const auto unused = static_cast<uint32_t>(paths.counters().unused);
    EXPECT_EQ(stream.cwnd_fixed, before - unused * kOne);
    EXPECT_EQ(stream.cwnd(), 2 * kept);
    EXPECT_LT(unused, left.size() - kept);
}

// BX-3: a whole window may be acknowledged at once while data waits.
TEST_F(DefaultWindow, MP3_AWindowThatIsAcknowledgedAtOnceClocksOutAnother) {
    widen_to(200);
    const auto left = send();
    ASSERT_GE(left.size(), 199u);
    now += kRtt;
    std::set<uint16_t> acked;
    for (const Departure& d : left) {
        ack(d);
        acked.insert(d.vp);
    }
    const auto next = send();
    EXPECT_GE(next.size(), left.size());
    for (const Departure& d : next) EXPECT_TRUE(acked.contains(d.vp));
    EXPECT_EQ(paths.counters().bursts, 0u);
    EXPECT_EQ(paths.counters().surplus, 0u);
}

// While most places are taken, each ACK lets out one packet, so that the ACKs of that packet find a place again.
TEST_F(VeryWide, MP6_AnAckLetsOutOnePacketWhileMostPlacesAreTaken) {
    widen_to(400);
    const uint32_t kept = stream.acks.count();
    ASSERT_EQ(kept, UnusedAcks::kMost);
    std::vector<uint16_t> vps;
    for (uint32_t i = 0; i < kept; ++i) vps.push_back(stream.acks[i]);
    const auto next = send();
    ASSERT_GT(next.size(), kept);
    for (uint32_t i = 0; i < kept / 2; ++i) EXPECT_EQ(next[i].vp, vps[i]) << i;
    for (uint32_t i = kept / 2; i + 1 < next.size(); i += 2) {
        const uint32_t at = kept / 2 + (i - kept / 2) / 2;
        EXPECT_TRUE(next[i].vp == vps[at] && next[i + 1].vp == vps[at]) << i;
    }
}

// Beyond the stored number, no ACK is lost without being counted.
TEST_F(VeryWide, MP3_AcksThatAreTooManyToKeepAreCounted) {
    widen_to(400);
    const uint64_t before = paths.counters().surplus;
    const auto left = send();
    ASSERT_GE(left.size(), UnusedAcks::kMost * 3 / 2);
    now += kRtt;
    for (const Departure& d : left) ack(d);
    EXPECT_EQ(paths.counters().surplus - before, left.size() - UnusedAcks::kMost);
    EXPECT_EQ(stream.acks.count(), UnusedAcks::kMost);
}

struct GrowingRing : PathsTest {
    static PathsConfig with() {
        PathsConfig config = make_config();
        config.control = PathsConfig::Control::kAdaptive;
        config.max_window = 1024;
        return config;
    }
    GrowingRing() : PathsTest(with()) {}

    // Describes the records, with the packet before each on a path of its bucket.
    std::vector<std::array<uint32_t, 5>> records() const {
        std::vector<std::array<uint32_t, 5>> all;
        paths.for_each(stream, [&](Psn psn, const PacketRecord& r) {
            const uint32_t mask = stream.ring - 1;
            const Psn before = stream.recorded + ((r.before - stream.recorded.value()) & mask);
            all.push_back({psn.value(), r.order, r.sent, r.vp, before < psn ? before.value() : 0});
        });
        return all;
    }
};

// Some packets are lost, acknowledged out of order, or refused at the moment when the ring grows.
TEST_F(GrowingRing, KeepsWhatIsKnownOfThePacketsInFlight) {
    std::minstd_rand random(1);
    std::deque<Departure> in_flight;
    std::set<uint32_t> early;
    Psn expected = stream.una;
    int grown = 0;
    for (int i = 0; i < 20'000 && stream.ring < 1024; ++i) {
        if (i % 16 == 0)
            for (const Departure& d : send()) in_flight.push_back(d);
        if (in_flight.empty()) continue;
        now += 256;
        std::swap(in_flight.front(), in_flight[random() % std::min<size_t>(in_flight.size(), 4)]);
        const Departure d = in_flight.front();
        in_flight.pop_front();
        if (random() % 16 == 0) {
            nack(d);
            continue;
        }
        early.insert(d.psn.value());
        while (early.erase(expected.value()) != 0) ++expected;
        const auto before = records();
        const uint32_t ring = stream.ring;
        ack(d, expected, false, d.psn < expected ? MpAck::kAck : MpAck::kSack);
        if (stream.ring == ring) continue;
        ++grown;
        EXPECT_EQ(stream.ring, 2 * ring);
        EXPECT_EQ(records(), before);
        EXPECT_GT(stream.lost, 0u);
    }
    EXPECT_EQ(grown, 2);
    EXPECT_EQ(stream.ring, 1024u);
    while (stream.outstanding()) {  // every lost packet is found and sent again
        for (const Departure& d : send(0)) in_flight.push_back(d);
        ASSERT_FALSE(in_flight.empty());
        now += 256;
        const Departure d = in_flight.front();
        in_flight.pop_front();
        early.insert(d.psn.value());
        while (early.erase(expected.value()) != 0) ++expected;
        ack(d, expected, false, d.psn < expected ? MpAck::kAck : MpAck::kSack);
    }
}

TEST_F(GrowingRing, AStreamThatPausesFindsARingOfItsSizeAgain) {
    for (int i = 0; i < 100 && stream.ring < 1024; ++i) {
        const auto sent = send();
        now += kRtt;
        for (const Departure& d : sent) ack(d);
    }
    ASSERT_EQ(stream.ring, 1024u);
    const size_t reserved = paths.record_bytes();
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(stream.records, nullptr) << "nothing is in flight";
        for (const Departure& d : send(10)) ack(d);
        EXPECT_EQ(stream.ring, 2 * stream.cwnd()) << "the unused part of the window is gone";
        EXPECT_GT(stream.ring, Paths::kFirstRing);
    }
    EXPECT_EQ(paths.record_bytes(), reserved);
}

// A few known paths would load the links unevenly, so they serve only while a path may be dead.
TEST_F(GrowingRing, BX13_PacketsWithoutAnAckTakeKnownPathsOnlyAfterAFailure) {
    for (const Departure& d : send()) {
        now += kRtt;
        ack(d);
    }
    now += 10 * kRtt;
    const auto vps_of_packets_without_acks = [&] {
        std::set<uint16_t> vps;
        for (int i = 0; i < 20; ++i) {
            stream.acks.clear();
            stream.credits = 10;
            const auto sent = send(10);
            for (const Departure& d : sent) vps.insert(d.vp);
            now += kRtt;
            for (const Departure& d : sent) ack(d);
        }
        return vps.size();
    };
    EXPECT_GT(vps_of_packets_without_acks(), 100u);
    stream.destination->record_failure(now);
    EXPECT_LT(vps_of_packets_without_acks(), 60u);
}

// The window stays, unlike in MP-4, and a quarter of the packets on the slow path leave it.
TEST_F(GrowingRing, BX13_AnAckFarBehindMovesOnePacketInFour) {
    for (int i = 0; i < 100 && stream.ring < 1024; ++i) {
        const auto sent = send();
        now += kRtt;
        for (const Departure& d : sent) ack(d);
    }
    paths.limit(stream, stream.una, 1024);
    const auto sent = send();
    now += kRtt;
    ASSERT_GE(sent.size(), 256u);  // the first ones are more than an eighth of the ring behind the last
    for (size_t i = 64; i < 256; ++i) sack(sent[i]);
    send();
    const uint32_t before = stream.cwnd_fixed;
    size_t stayed = 0;
    for (size_t i = 0; i < 60; ++i) {
        ack(sent[i]);
        ASSERT_NE(stream.acks.count(), 0u);
        stayed += stream.acks[stream.acks.count() - 1] == sent[i].vp;
    }
    EXPECT_EQ(paths.counters().slow_acks, 60u);
    EXPECT_GE(stream.cwnd_fixed, before);
    EXPECT_GT(stayed, 30u);
    EXPECT_LT(stayed, 58u);
}

struct Crowded : testing::Test {
    static PathsConfig with() {
        PathsConfig config = PathsTest::make_config();
        config.max_window = 16;
        return config;
    }
    Paths paths{with(), 1};
};

// The memory of a busy stream is reserved when it starts, and every stream can be busy.
TEST_F(Crowded, NothingIsAllocatedWhenAllStreamsAreBusyAtOnce) {
    std::vector<SendStream> streams(10'000);
    for (SendStream& stream : streams) paths.start(stream, Psn(1));
    const size_t bytes = paths.record_bytes();
    EXPECT_GE(bytes, streams.size() * paths.ring_bytes(16));
    EXPECT_LT(bytes, (streams.size() + 64) * paths.ring_bytes(16));
    Departure d;
    for (SendStream& stream : streams) {
        ASSERT_TRUE(paths.next(stream, true, 1000, d));
        paths.sent(stream, d, 1000);
    }
    EXPECT_EQ(paths.record_bytes(), bytes);
    for (SendStream& stream : streams) paths.stop(stream);
    for (SendStream& stream : streams) paths.start(stream, Psn(1));
    EXPECT_EQ(paths.record_bytes(), bytes);
}

}  // namespace
}  // namespace rove::transport
