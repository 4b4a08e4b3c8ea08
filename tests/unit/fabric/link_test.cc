// SPDX-License-Identifier: Apache-2.0
// Tests when packets arrive, to the picosecond, and the effects of random loss, cuts and changes of the rate.
#include <algorithm>

#include "fabric/probe.h"

namespace rove::fabric {
namespace {

struct LinkTest : ::testing::Test {
    void join(const LinkConfig& config) { cable.emplace(network.connect(a, b, config)); }
    Link& link() { return cable->forward; }
    void send(uint32_t packets, uint32_t bytes = kFrameBytes) {
        for (uint32_t i = 0; i < packets; ++i) a.send(b, bytes, next_id++);
    }

    Network network;
    Probe& a = network.add<Probe>();
    Probe& b = network.add<Probe>();
    std::optional<Cable> cable;
    uint64_t next_id = 0;
};

TEST_F(LinkTest, a_packet_arrives_after_transmission_and_delay) {
    for (const uint64_t gbps : {1, 10, 25, 40, 60, 100, 400}) {
        Network net;
        Probe& from = net.add<Probe>();
        Probe& to = net.add<Probe>();
        net.connect(from, to, {.bits_per_s = gbps * kGbps, .delay = 1234 * kNanosecond});
        from.send(to, 64);
        net.run_until(kMillisecond);
        ASSERT_EQ(to.arrivals.size(), 1u);
        EXPECT_EQ(to.arrivals[0].time, wire_time(64, gbps * kGbps) + 1234 * kNanosecond);
    }
    EXPECT_EQ(wire_time(64, 100 * kGbps), 6720u) << "84 bytes at 80 ps";
}

TEST_F(LinkTest, packets_follow_each_other_without_a_gap) {
    join({.bits_per_s = 10 * kGbps, .delay = 5 * kMicrosecond});
    send(3);
    network.run_until(kMillisecond);
    ASSERT_EQ(b.arrivals.size(), 3u);
    for (uint64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(b.arrivals[i].time, (i + 1) * 816 * kNanosecond + 5 * kMicrosecond);
        EXPECT_EQ(b.arrivals[i].id, i);
    }
    EXPECT_EQ(link().stats().sent_packets, 3u);
    EXPECT_EQ(link().stats().sent_bytes, 3u * kFrameBytes);
    EXPECT_EQ(link().stats().delivered_packets, 3u);
    EXPECT_EQ(link().stats().max_queued_bytes, 2u * kFrameBytes) << "the first was on the wire at once";
}

TEST_F(LinkTest, an_idle_link_sends_at_once_again) {
    join({.bits_per_s = 10 * kGbps, .delay = kMicrosecond});
    send(1);
    network.run_until(kMillisecond);
    send(1);
    network.run_until(2 * kMillisecond);
    ASSERT_EQ(b.arrivals.size(), 2u);
    EXPECT_EQ(b.arrivals[1].time, kMillisecond + 816 * kNanosecond + kMicrosecond);
}

TEST_F(LinkTest, switches_store_and_forward) {
    Network net;
    Probe& from = net.add<Probe>();
    Switch& middle = net.add_switch();
    Probe& to = net.add<Probe>();
    net.connect(from, middle, {.bits_per_s = 40 * kGbps, .delay = kMicrosecond});
    net.connect(middle, to, {.bits_per_s = 10 * kGbps, .delay = 2 * kMicrosecond});
    net.route();
    from.send(to, kFrameBytes);
    from.send(to, kFrameBytes);
    net.run_until(kMillisecond);
    ASSERT_EQ(to.arrivals.size(), 2u);
    const Time first = wire_time(kFrameBytes, 40 * kGbps) + wire_time(kFrameBytes, 10 * kGbps) + 3 * kMicrosecond;
    EXPECT_EQ(to.arrivals[0].time, first);
    EXPECT_EQ(to.arrivals[1].time, first + wire_time(kFrameBytes, 10 * kGbps)) << "the slow link is the bottleneck";
}

TEST_F(LinkTest, a_new_rate_holds_from_the_next_packet_on) {
    join({.bits_per_s = 40 * kGbps, .delay = 0});
    send(2);
    network.at(100 * kNanosecond, [&] { link().set_rate(kGbps); });  // during the first packet
    network.run_until(kMillisecond);
    ASSERT_EQ(b.arrivals.size(), 2u);
    EXPECT_EQ(b.arrivals[0].time, wire_time(kFrameBytes, 40 * kGbps));
    EXPECT_EQ(b.arrivals[1].time, wire_time(kFrameBytes, 40 * kGbps) + wire_time(kFrameBytes, kGbps));
}

TEST_F(LinkTest, loss_and_corruption_have_their_probability) {
    join({.loss = 0.1, .corruption = 0.02});
    constexpr uint32_t kPackets = 100'000;
    send(kPackets);
    network.run_until(kSecond);
    const LinkStats stats = link().stats();
    EXPECT_NEAR(static_cast<double>(stats.lost_packets), 0.1 * kPackets, 5 * 95);  // five standard deviations
    EXPECT_NEAR(static_cast<double>(stats.damaged_packets), 0.9 * 0.02 * kPackets, 5 * 42);
    EXPECT_EQ(stats.delivered_packets + stats.lost_packets, kPackets);
    EXPECT_EQ(b.arrivals.size(), stats.delivered_packets);
    EXPECT_EQ(network.world().packets.size(), kPackets);
    send(kPackets);
    EXPECT_EQ(network.world().packets.size(), kPackets) << "what was lost went back to the pool";
    EXPECT_EQ(std::ranges::count_if(b.arrivals, &Probe::Arrival::damaged),
              static_cast<ptrdiff_t>(stats.damaged_packets));
}

TEST_F(LinkTest, loss_can_be_switched_on_and_off) {
    join({});
    network.at(100 * kMicrosecond, [&] { link().set_loss(1); });
    network.at(200 * kMicrosecond, [&] { link().set_loss(0); });
    for (Time t = 50; t < 300; t += 100) network.at(t * kMicrosecond, [&] { send(1); });
    network.run_until(kMillisecond);
    ASSERT_EQ(b.arrivals.size(), 2u);
    EXPECT_EQ(b.arrivals[0].id, 0u);
    EXPECT_EQ(b.arrivals[1].id, 2u);
}

TEST_F(LinkTest, a_cut_loses_what_is_on_the_way_and_what_is_sent) {
    join({.bits_per_s = 10 * kGbps, .delay = 10 * kMicrosecond});
    send(1);                                         // arrives before the cut
    network.at(8 * kMicrosecond, [&] { send(1); });  // in flight during the cut
    network.at(12 * kMicrosecond, [&] { link().set_up(false); });
    network.at(13 * kMicrosecond, [&] { send(20); });  // 16 us of packets, so some of them outlive the cut
    network.at(20 * kMicrosecond, [&] { link().set_up(true); });
    network.run_until(kMillisecond);
    EXPECT_EQ(b.arrivals.front().id, 0u);
    // A packet that starts before the link is up again is lost. Packet i of the 20 starts at 13 + 0.816 i us, so
    // packets 0 to 8 are lost.
    EXPECT_EQ(link().stats().cut_packets, 1u + 9);
    EXPECT_EQ(b.arrivals.size(), 1u + 11);
    EXPECT_EQ(b.arrivals[1].id, 2u + 9);
    EXPECT_EQ(b.arrivals[1].time, 13 * kMicrosecond + 10 * 816 * kNanosecond + 10 * kMicrosecond);
    EXPECT_EQ(network.world().packets.size(), 19u) << "what was cut came back: the first of the 20 at once";
}

TEST_F(LinkTest, what_was_scheduled_for_a_cut_packet_does_not_touch_the_next) {
    join({.bits_per_s = 10 * kGbps, .delay = 10 * kMicrosecond});
    send(1);
    network.at(5 * kMicrosecond, [&] { link().set_up(false); });
    network.at(6 * kMicrosecond, [&] {
        link().set_up(true);
        send(1);
    });
    network.run_until(kMillisecond);
    ASSERT_EQ(b.arrivals.size(), 1u);
    EXPECT_EQ(b.arrivals[0].id, 1u);
    EXPECT_EQ(b.arrivals[0].time, 16 * kMicrosecond + 816 * kNanosecond);
}

TEST_F(LinkTest, a_pause_holds_packets_back_until_the_resume) {
    join({.bits_per_s = 10 * kGbps, .delay = kMicrosecond});
    Link& back = cable->backward;
    const Time frame = wire_time(64, 10 * kGbps);
    send(2);
    back.send_pfc(true);
    network.at(20 * kMicrosecond, [&] { back.send_pfc(false); });
    network.run_until(kMillisecond);
    ASSERT_EQ(b.arrivals.size(), 2u);
    // The second packet started at 816 ns, before the pause came, so it also left. Send more packets later.
    EXPECT_EQ(link().stats().pauses, 1u);
    EXPECT_EQ(link().paused_time(), 20 * kMicrosecond);
    back.send_pfc(true);
    network.run_for(2 * kMicrosecond);
    const Time start = network.now();
    send(1);
    network.run_for(50 * kMicrosecond);
    EXPECT_EQ(b.arrivals.size(), 2u);
    back.send_pfc(false);
    network.run_for(50 * kMicrosecond);
    ASSERT_EQ(b.arrivals.size(), 3u);
    EXPECT_EQ(b.arrivals[2].time, start + 50 * kMicrosecond + frame + kMicrosecond + 816 * kNanosecond + kMicrosecond);
}

TEST_F(LinkTest, a_pause_that_has_a_time_ends_then_unless_one_more_comes) {
    join({.bits_per_s = 10 * kGbps, .delay = kMicrosecond});
    Link& back = cable->backward;
    back.set_pause_time(5 * kMicrosecond);
    const Time frame = wire_time(64, 10 * kGbps);
    back.send_pfc(true);
    network.at(4 * kMicrosecond, [&] { back.send_pfc(true); });
    network.at(3 * kMicrosecond, [&] { send(1); });
    network.run_until(kMillisecond);
    ASSERT_EQ(b.arrivals.size(), 1u);
    const Time end = (4 + 1 + 5) * kMicrosecond + frame;
    EXPECT_EQ(b.arrivals[0].time, end + 816 * kNanosecond + kMicrosecond);
    EXPECT_EQ(link().stats().pauses, 1u);
    EXPECT_EQ(link().paused_time(), 9 * kMicrosecond);
    EXPECT_EQ(link().present_pause(), 0u);
    // A pause that ends without a packet to send has no later effect, and a resume ends a pause early.
    back.send_pfc(true);
    network.run_for(kMillisecond);
    EXPECT_EQ(link().paused_time(), 14 * kMicrosecond);
    const Time start = network.now();
    send(1);
    network.run_for(kMillisecond);
    EXPECT_EQ(b.arrivals.at(1).time, start + 816 * kNanosecond + kMicrosecond);
    back.send_pfc(true);
    network.at(network.now() + 2 * kMicrosecond, [&] { back.send_pfc(false); });
    network.run_for(kMillisecond);
    EXPECT_EQ(link().paused_time(), 16 * kMicrosecond);
}

TEST_F(LinkTest, a_pfc_frame_overtakes_the_queue_but_not_the_packet_being_sent) {
    join({.bits_per_s = 10 * kGbps, .delay = kMicrosecond});
    std::vector<std::pair<TraceEvent, Time>> seen;
    network.world().trace = [&](TraceEvent what, const Link&, const Packet&) {
        seen.emplace_back(what, network.now());
    };
    send(2);
    link().send_pfc(true);
    network.run_until(kMillisecond);
    const Time packet = 816 * kNanosecond, frame = wire_time(64, 10 * kGbps);
    const std::vector<std::pair<TraceEvent, Time>> expected{
        {TraceEvent::kDelivered, packet + kMicrosecond},
        {TraceEvent::kPaused, packet + frame + kMicrosecond},
        {TraceEvent::kDelivered, packet + frame + packet + kMicrosecond}};
    EXPECT_EQ(seen, expected);
}

TEST_F(LinkTest, a_port_without_a_partner_forgets_its_pause) {
    join({.bits_per_s = 10 * kGbps, .delay = kMicrosecond});
    cable->backward.send_pfc(true);
    network.run_for(2 * kMicrosecond);
    send(3);
    network.run_for(10 * kMicrosecond);
    EXPECT_EQ(b.arrivals.size(), 0u);
    cable->backward.set_up(false);  // the resume could not arrive
    network.run_for(10 * kMicrosecond);
    EXPECT_EQ(b.arrivals.size(), 3u);
}

}  // namespace
}  // namespace rove::fabric
