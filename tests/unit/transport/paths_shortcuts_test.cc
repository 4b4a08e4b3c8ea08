// SPDX-License-Identifier: Apache-2.0
// Paths::depart() and acknowledge_next() against the functions that they replace.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "paths_sender.h"
#include "transport/paths/paths.h"
#include "wire/ack_entry.h"

namespace rove::transport {
namespace {

using wire::MpAck;

// Random runs of new packets and random entries, most of them for the next packet: depart() has the same result as
// next() and sent(), acknowledge_next() the same as acknowledge().
TEST(PathsShortcuts, LeaveTheSameBehind) {
    uint32_t quick = 0, departed = 0;
    for (uint32_t seed = 1; seed <= 300; ++seed) {
        std::mt19937 random(seed);
        PathsConfig config;
        config.control = PathsConfig::Control::kMpRdma;
        config.max_window = 64;
        config.initial_window = 32;
        config.explore = false;
        config.min_rto_ns = 4 * kRtt;
        Paths one(config, seed), other(config, seed);
        SendStream a, b;
        one.start(a, Psn(0xFFFFF0 + seed));
        other.start(b, Psn(0xFFFFF0 + seed));
        uint64_t now = 1'000'000;
        for (int round = 0; round < 60; ++round) {
            Departure d, e;
            // Otherwise an expired packet would be acknowledged before it is sent again.
            for (bool left = random() % 4 != 0; left;) {
                const bool more = random() % 20 != 0;
                if (more && random() % 4 != 0) {
                    uint32_t run = std::min<uint32_t>(random() % 40, other.room(b));
                    for (; run != 0 && left; --run, ++departed) {
                        uint16_t vp = 0;
                        left = one.next(a, true, now, d);
                        ASSERT_EQ(other.depart(b, 1024, now, vp), left) << "seed " << seed;
                        if (!left) break;
                        ASSERT_TRUE(!d.again && d.vp == vp) << "seed " << seed;
                        one.sent(a, d, now);
                        ASSERT_EQ(a.nxt, b.nxt) << "seed " << seed;
                    }
                    if (!left) break;
                }
                left = one.next(a, more, now, d);
                ASSERT_EQ(other.next(b, more, now, e), left) << "seed " << seed;
                if (!left) break;
                ASSERT_TRUE(d.psn == e.psn && d.vp == e.vp && d.again == e.again) << "seed " << seed;
                one.sent(a, d, now);
                other.sent(b, e, now);
                now += random() % 200;
            }
            now += random() % (4 * kRtt);
            if (a.outstanding()) {
                std::vector<uint8_t> wire;
                Psn psn = a.oldest;
                for (uint32_t i = random() % 40; i > 0; --i, ++psn) {
                    if (random() % 30 == 0) psn = psn + random() % 5;
                    if (random() % 50 == 0) psn = a.una + random() % 64;
                    const PacketRecord& packet = a.records[psn.value() % config.max_window];
                    wire::MpAckEntry entry{.kind = MpAck::kAck,
                                           .ece = random() % 40 == 0,
                                           .retx = packet.retransmitted,
                                           .response = false,
                                           .psn = psn.value(),
                                           .vp = packet.vp};
                    if (random() % 40 == 0) entry.kind = static_cast<MpAck>(random() % 3);
                    if (random() % 40 == 0) entry.vp ^= 1;
                    if (random() % 40 == 0) entry.retx = !entry.retx;
                    wire.resize(wire.size() + wire::kMpAckEntryBytes);
                    wire::emit_ack_entry(wire.data() + wire.size() - wire::kMpAckEntryBytes, entry);
                }
                const auto count = static_cast<uint32_t>(wire.size() / wire::kMpAckEntryBytes);
                const uint32_t taken = other.acknowledge_next(b, wire.data(), count, false, now);
                quick += taken;
                for (uint32_t i = 0; i < count; ++i) {
                    const auto entry = wire::parse_ack_entry(wire.data() + i * wire::kMpAckEntryBytes);
                    const bool known = one.acknowledge(a, entry, now);
                    if (i >= taken) {
                        ASSERT_EQ(other.acknowledge(b, entry, now), known);
                    }
                }
                const Psn aack = random() % 4 != 0 ? a.oldest : a.una;
                one.advance(a, aack, now);
                other.advance(b, aack, now);
                // A sum of many 1/cwnd, each with the window at its time, is less than the same number with the first
                // window.
                ASSERT_NEAR(a.cwnd_fixed, b.cwnd_fixed, 1 << 14) << "seed " << seed;
                b.cwnd_fixed = a.cwnd_fixed;
            }
            if (random() % 8 == 0) now += 100 * kRtt;
            if (one.next_timer(a).at_ns <= now) one.expire(a, now);
            if (other.next_timer(b).at_ns <= now) other.expire(b, now);
            ASSERT_TRUE(a.una == b.una && a.oldest == b.oldest && a.nxt == b.nxt && a.ooh == b.ooh) << "seed " << seed;
            ASSERT_TRUE(a.inflate == b.inflate && a.lost == b.lost && a.srtt_ns == b.srtt_ns &&
                        a.rttvar_ns == b.rttvar_ns)
                << "seed " << seed;
            ASSERT_TRUE(a.latest_sent == b.latest_sent && a.last_ack_ns == b.last_ack_ns) << "seed " << seed;
            ASSERT_TRUE(a.sent_ns == b.sent_ns && a.tail_probes == b.tail_probes && a.early_ns == b.early_ns)
                << "seed " << seed;
            ASSERT_TRUE(a.timer_ns == b.timer_ns && a.cwnd_fixed == b.cwnd_fixed) << "seed " << seed;
            ASSERT_TRUE(a.burst_ns == b.burst_ns && a.starved == b.starved && a.credits == b.credits)
                << "seed " << seed;
            ASSERT_TRUE(a.order == b.order && a.recorded == b.recorded && a.probe_ns == b.probe_ns) << "seed " << seed;
            ASSERT_TRUE(a.acks.count() == b.acks.count() && a.satisfied == b.satisfied) << "seed " << seed;
            for (uint32_t i = 0; i < a.acks.count(); ++i) ASSERT_EQ(a.acks[i], b.acks[i]) << "seed " << seed;
            ASSERT_EQ(one.counters().acknowledged, other.counters().acknowledged) << "seed " << seed;
            ASSERT_EQ(one.in_flight(a), other.in_flight(b)) << "seed " << seed;
        }
    }
    EXPECT_GT(quick, 10'000u);
    EXPECT_GT(departed, 10'000u);
}

}  // namespace
}  // namespace rove::transport
