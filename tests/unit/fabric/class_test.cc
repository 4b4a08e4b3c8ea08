// SPDX-License-Identifier: Apache-2.0
// Tests two traffic classes, PFC with a threshold that follows the buffer, trimming, deflection, and shortest-first
// queues.
#include <algorithm>

#include "fabric/audit.h"
#include "fabric/flow.h"
#include "fabric/probe.h"
#include "fabric/topology.h"

namespace rove::fabric {
namespace {

struct Classes : ::testing::Test {
    Network network;
    Probe& a = network.add<Probe>();
    Probe& b = network.add<Probe>();
    Cable cable = network.connect(a, b, {.bits_per_s = kRate, .delay = kMicrosecond});
};

TEST_F(Classes, the_upper_overtakes_what_waits_but_not_what_is_sent) {
    for (uint64_t id = 1; id <= 3; ++id) a.send(b, kFrameBytes, id);
    a.send_control(b, 4);
    a.send_control(b, 5);
    network.run_until(kMillisecond);
    std::vector<uint64_t> order;
    for (const Probe::Arrival& arrival : b.arrivals) order.push_back(arrival.id);
    EXPECT_EQ(order, (std::vector<uint64_t>{1, 4, 5, 2, 3}));
    const Time data = wire_time(kFrameBytes, kRate), control = wire_time(kMinFrameBytes, kRate);
    EXPECT_EQ(b.arrivals[1].time, data + control + kMicrosecond);
    EXPECT_EQ(b.arrivals.back().time, 3 * data + 2 * control + kMicrosecond) << "the link was never idle";
    check_conservation(network);
}

TEST_F(Classes, a_pause_holds_back_the_lower_one_only) {
    cable.backward.send_pfc(true);
    network.run_for(2 * kMicrosecond);
    a.send(b, kFrameBytes, 1);
    a.send_control(b, 2);
    network.run_for(10 * kMicrosecond);
    a.send_control(b, 3);
    network.run_for(10 * kMicrosecond);
    ASSERT_EQ(b.arrivals.size(), 2u);
    EXPECT_EQ(b.arrivals[0].id, 2u);
    EXPECT_EQ(b.arrivals[1].id, 3u);
    EXPECT_EQ(cable.forward.queued_packets(), 1u);
    check_conservation(network);
    cable.backward.send_pfc(false);
    network.run_for(10 * kMicrosecond);
    ASSERT_EQ(b.arrivals.size(), 3u);
    EXPECT_EQ(b.arrivals[2].id, 1u);
}

TEST_F(Classes, a_pause_that_has_not_ended_counts) {
    cable.backward.send_pfc(true);
    const Time from = wire_time(kMinFrameBytes, kRate) + kMicrosecond;
    network.run_until(from + 30 * kMicrosecond);
    EXPECT_EQ(cable.forward.paused_time(), 30 * kMicrosecond);
    EXPECT_EQ(cable.forward.stats().ended_pauses_time, 0u);
    EXPECT_EQ(pauses(network).host_time, static_cast<double>(15 * kMicrosecond)) << "the mean of two ports";
}

TEST(TwoClasses, a_switch_neither_counts_nor_marks_nor_drops_the_upper_one) {
    Network network;
    Switch& middle = network.add_switch({.buffer_bytes = 20 * kFrameBytes, .alpha = 1000, .red = {1.0, 0, 0}});
    Probe& receiver = network.add<Probe>();
    Link& out = network.connect(receiver, middle, {.bits_per_s = kRate / 1000}).backward;
    std::vector<Probe*> from;
    for (int i = 0; i < 2; ++i) {
        from.push_back(&network.add<Probe>());
        network.connect(*from.back(), middle, {.bits_per_s = kRate});
    }
    network.route();
    for (int i = 0; i < 100; ++i) from[0]->send(receiver, kFrameBytes, 1);
    for (int i = 0; i < 50; ++i) from[1]->send_control(receiver, 2);
    network.run_for(100 * kMicrosecond);
    EXPECT_GE(out.urgent_packets(), 48u) << "one is sent in 67 us";
    EXPECT_LE(middle.used_bytes(), 20u * kFrameBytes);
    EXPECT_GT(out.stats().dropped_packets, 0u);
    network.run_until(kSecond);
    EXPECT_EQ(std::ranges::count(receiver.arrivals, 2u, &Probe::Arrival::id), 50);
    for (const Probe::Arrival& arrival : receiver.arrivals) EXPECT_TRUE(arrival.id == 1 || !arrival.ce);
    EXPECT_EQ(middle.used_bytes(), 0u);
    check_conservation(network);
}

TEST(TwoClasses, hosts_put_acknowledgements_into_the_upper_one) {
    for (const bool multipath : {false, true}) {
        for (const bool control_class : {false, true}) {
            Network network;
            RackConfig config{.hosts = 2, .host = {.control_class = control_class}};
            const Rack rack = single_switch(network, config);
            uint64_t urgent = 0, control = 0, data = 0;
            network.world().trace = [&](TraceEvent what, const Link&, const Packet& packet) {
                if (what != TraceEvent::kDelivered) return;
                urgent += packet.urgent;
                control += packet.control;
                data += packet.frame.payload_bytes > 256;
                EXPECT_FALSE(packet.urgent && !packet.control);
                EXPECT_FALSE(packet.control && packet.frame.payload_bytes > 256);
            };
            Flow flow(network, *rack.hosts[0], *rack.hosts[1], {.messages = 10, .qp = {.multipath = multipath}});
            flow.start();
            network.run_until(10 * kMillisecond);
            EXPECT_TRUE(flow.ended());
            EXPECT_EQ(flow.status(), IBV_WC_SUCCESS);
            EXPECT_GE(data, 2u * 10 * 64);
            EXPECT_GT(control, 0u);
            EXPECT_EQ(urgent, control_class ? control : 0);
            check_conservation(network);
        }
    }
}

// PFC stops the data of a host that both sends and receives.
TEST(TwoClasses, a_paused_host_acknowledges_what_it_receives) {
    for (const bool control_class : {false, true}) {
        Network network;
        RackConfig config{.hosts = 2, .host = {.control_class = control_class}};
        config.host.transport.batch_acks = false;
        config.host.transport.paths.initial_window = 64;
        const Rack rack = single_switch(network, config);
        const FlowConfig flow{.messages = 200, .qp = {.multipath = true}};
        Flow there(network, *rack.hosts[0], *rack.hosts[1], flow), back(network, *rack.hosts[1], *rack.hosts[0], flow);
        there.start();
        back.start();
        Link& to_paused = rack.hosts[1]->link().reverse();
        network.at(100 * kMicrosecond, [&] { to_paused.send_pfc(true); });
        network.run_until(900 * kMicrosecond);
        EXPECT_LT(back.completed_bytes(), 700'000u);
        if (control_class)
            EXPECT_GT(there.completed_bytes(), 2'000'000u);
        else
            EXPECT_LT(there.completed_bytes(), 700'000u);
        to_paused.send_pfc(false);
        network.run_until(100 * kMillisecond);
        EXPECT_TRUE(there.ended() && back.ended());
    }
}

struct Incast {
    Incast(const SwitchConfig& config, uint32_t senders, uint64_t out_rate = kRate) : network(7) {
        middle = &network.add_switch(config);
        receiver = &network.add<Probe>();
        out = &network.connect(*receiver, *middle, {.bits_per_s = out_rate}).backward;
        for (uint32_t i = 0; i < senders; ++i) {
            from.push_back(&network.add<Probe>());
            in.push_back(&network.connect(*from.back(), *middle, {.bits_per_s = kRate}).forward);
        }
        network.route();
    }
    void send(uint32_t each) {
        for (uint32_t i = 0; i < each; ++i) {
            for (Probe* probe : from) probe->send(*receiver, kFrameBytes, i);
        }
    }
    // Expects that all `packets` arrived back to back, and that pauses were needed.
    void expect_all(uint32_t packets) {
        EXPECT_EQ(out->stats().dropped_packets, 0u);
        EXPECT_EQ(receiver->arrivals.size(), packets);
        for (const Link* link : in) EXPECT_GT(link->stats().pauses, 10u);
        const Time first = 2 * (wire_time(kFrameBytes, kRate) + kMicrosecond);
        EXPECT_EQ(receiver->arrivals.back().time, first + (packets - 1) * wire_time(kFrameBytes, kRate));
        EXPECT_EQ(middle->used_bytes(), 0u);
        check_conservation(network);
    }
    Network network;
    Switch* middle;
    Probe* receiver;
    Link* out;
    std::vector<Probe*> from;
    std::vector<Link*> in;
};

TEST(DynamicPfcTest, an_incast_loses_nothing_and_keeps_the_bottleneck_busy) {
    Incast incast({.buffer_bytes = 400'000, .dynamic_pfc = DynamicPfc{.frame_bytes = kFrameBytes}}, 8);
    incast.send(1000);
    incast.network.run_until(100 * kMillisecond);
    incast.expect_all(8000);
}

TEST(DynamicPfcTest, the_threshold_is_where_the_equation_says) {
    // There are n ports, and each gets alpha times the memory that the n ports leave free: x = alpha S / (1 + n alpha),
    // in addition to two frames of its own. No packet leaves the switch, and packets that arrive after the pause use
    // the headroom.
    constexpr double kAlpha = 1.0 / 16;
    constexpr uint64_t kBuffer = 4'000'000, kOwn = 2 * kFrameBytes;
    for (const uint32_t senders : {1u, 2u, 8u}) {
        const SwitchConfig config{.buffer_bytes = kBuffer,
                                  .dynamic_pfc = DynamicPfc{.alpha = kAlpha, .frame_bytes = kFrameBytes}};
        Incast incast(config, senders, kRate / 1'000'000);
        incast.send(600);
        incast.network.run_until(kMillisecond);
        // The headroom covers the round trip of the cable, the pause frame, and three frames.
        const uint64_t headroom = (2 * kMicrosecond + wire_time(kMinFrameBytes, kRate)) / 800 + 3 * kFrameBytes;
        const uint64_t out_headroom =
            (2 * kMicrosecond + wire_time(kMinFrameBytes, kRate / 1'000'000)) / 800'000'000 + 3 * kFrameBytes;
        const double shared = kBuffer - senders * (headroom + kOwn) - static_cast<double>(out_headroom + kOwn);
        const double each = kOwn + kAlpha * shared / (1 + senders * kAlpha);
        const auto used = static_cast<double>(incast.middle->used_bytes());
        EXPECT_EQ(incast.out->stats().dropped_packets, 0u);
        EXPECT_GT(used, senders * (each - 2 * kFrameBytes)) << senders;
        EXPECT_LT(used, senders * (each + static_cast<double>(headroom) + kFrameBytes)) << senders;
        for (const Link* link : incast.in) EXPECT_EQ(link->stats().pauses, 1u);
    }
}

// The receiver has stopped its switch forever, like a link in a cyclic wait.
TEST(DynamicPfcTest, a_pause_that_has_a_time_is_no_stop_for_ever) {
    for (const Time pause_time : {Link::kForever, 5 * kMicrosecond}) {
        const DynamicPfc pfc{.frame_bytes = kFrameBytes, .pause_time = pause_time};
        Incast incast({.buffer_bytes = 400'000, .alpha = 1000, .dynamic_pfc = pfc}, 2);
        incast.out->reverse().send_pfc(true);
        incast.send(1000);
        incast.network.run_until(kMillisecond);
        if (pause_time == Link::kForever) {
            EXPECT_EQ(incast.out->stats().dropped_packets, 0u);
            EXPECT_LT(incast.middle->used_bytes(), 100'000u);
            for (const Link* link : incast.in) EXPECT_GT(link->present_pause(), kMillisecond / 2);
        } else {
            // Every 5 us the senders continue until the next pauses arrive, so the buffer finally fills up.
            EXPECT_GT(incast.out->stats().dropped_packets, 100u);
            EXPECT_GT(incast.middle->used_bytes(), 380'000u);
            for (const Link* link : incast.in) EXPECT_GT(link->stats().pauses, 20u);
        }
        check_conservation(incast.network);
    }
}

TEST(DynamicPfcTest, pauses_that_have_a_time_lose_nothing_where_there_is_room) {
    const DynamicPfc pfc{.frame_bytes = kFrameBytes, .pause_time = 5 * kMicrosecond};
    Incast incast({.buffer_bytes = 1'000'000, .alpha = 1000, .dynamic_pfc = pfc}, 2);
    incast.send(1000);
    incast.network.run_until(100 * kMillisecond);
    incast.expect_all(2000);
}

TEST(DynamicPfcTest, refuses_what_does_not_fit) {
    Network network;
    EXPECT_THROW(network.add_switch({.pfc = Pfc{}, .dynamic_pfc = DynamicPfc{}}), std::invalid_argument);
    Switch& small = network.add_switch({.buffer_bytes = 5000, .dynamic_pfc = DynamicPfc{.frame_bytes = kFrameBytes}});
    Probe& probe = network.add<Probe>();
    EXPECT_THROW(network.connect(small, probe, {}), std::invalid_argument);
}

// The first packet beyond the threshold is also the first in the headroom.
TEST(DynamicPfcTest, the_headroom_holds_what_comes_when_the_pause_has_to_wait) {
    for (uint32_t phase = 0; phase < 20; ++phase) {
        Incast incast({.buffer_bytes = 100'000, .dynamic_pfc = DynamicPfc{.frame_bytes = kFrameBytes}}, 2,
                      kRate / 1000);
        Probe &sender = *incast.from[0], &other = *incast.from[1];
        for (int i = 0; i < 200; ++i) sender.send(*incast.receiver, kFrameBytes);
        incast.network.at(phase * 40 * kNanosecond, [&] {
            for (int i = 0; i < 200; ++i) other.send(sender, kFrameBytes);  // the pause waits behind one of these
        });
        incast.network.run_until(150 * kMicrosecond);
        EXPECT_GT(incast.in[0]->stats().pauses, 0u);
        EXPECT_EQ(incast.network.total(&LinkStats::dropped_packets), 0u) << phase;
    }
}

// The headroom of static PFC holds the bytes that arrive after x_off: twice the delay at full rate, the frame in
// transmission when the pause arrives, and the bytes that arrive until the pause can be sent. The pause may have to
// wait for a frame in its direction.
TEST(PfcHeadroom, the_bound_is_held_and_is_tight) {
    constexpr uint64_t kXoff = 50'000;
    uint64_t most = 0;
    for (uint32_t phase = 0; phase < 20; ++phase) {
        Network network;
        Switch& middle = network.add_switch({.pfc = Pfc{kXoff, 10'000}});
        Probe& sender = network.add<Probe>();
        Probe& receiver = network.add<Probe>();
        network.connect(receiver, middle, {.bits_per_s = kRate / 1000});
        network.connect(sender, middle, {.bits_per_s = kRate});
        Probe& other = network.add<Probe>();
        network.connect(other, middle, {.bits_per_s = kRate});
        network.route();
        for (int i = 0; i < 200; ++i) sender.send(receiver, kFrameBytes);
        network.at(phase * 40 * kNanosecond, [&] {
            for (int i = 0; i < 200; ++i) other.send(sender, kFrameBytes);  // the pause waits behind one of these
        });
        network.run_until(150 * kMicrosecond);
        most = std::max(most, middle.used_bytes());
    }
    // 2 us and 84 bytes at 1.25 bytes per ns, plus two frames with their gaps. The switch stores 1000 of each 1020
    // bytes.
    const double bound = (2500 + 84 + 2 * 1020) / 1.02;
    // The tolerance is the packet that crosses x_off, and one packet of the other sender in transit.
    EXPECT_LE(static_cast<double>(most), kXoff + bound + 2 * kFrameBytes);
    EXPECT_GE(static_cast<double>(most), kXoff + bound - kFrameBytes);
}

TEST(Trimming, headers_go_on_before_data) {
    Incast incast({.queue_bytes = 10 * kFrameBytes, .trim = Trim{.header_bytes = 86}}, 8);
    incast.send(50);
    incast.network.run_until(10 * kMillisecond);
    const LinkStats& stats = incast.out->stats();
    EXPECT_GT(stats.trimmed_packets, 100u);
    EXPECT_EQ(stats.dropped_packets, 0u);
    EXPECT_EQ(incast.receiver->arrivals.size(), 400u) << "every packet arrives, whole or as its headers";
    const auto trimmed = std::ranges::count_if(incast.receiver->arrivals, &Probe::Arrival::trimmed);
    EXPECT_EQ(static_cast<uint64_t>(trimmed), stats.trimmed_packets);
    EXPECT_EQ(stats.sent_bytes, 86 * stats.trimmed_packets + kFrameBytes * (400 - stats.trimmed_packets));
    EXPECT_EQ(stats.max_queued_bytes, 10u * kFrameBytes);
    check_conservation(incast.network);
}

TEST(Trimming, the_queue_of_headers_is_bounded) {
    Incast incast({.queue_bytes = 10 * kFrameBytes, .trim = Trim{.header_bytes = 86, .queue_bytes = 860}}, 8,
                  kRate / 100);
    incast.send(50);
    incast.network.run_until(kSecond);
    const LinkStats& stats = incast.out->stats();
    EXPECT_GT(stats.dropped_packets, 0u);
    EXPECT_GE(stats.trimmed_packets, 10u);
    EXPECT_EQ(incast.receiver->arrivals.size() + stats.dropped_packets, 400u);
    check_conservation(incast.network);
}

TEST(Trimming, a_host_tells_headers_from_packets) {
    Network network(1, Carry::kBytes);
    RackConfig config{.hosts = 5};
    config.tor.queue_bytes = 8 * 1110;
    config.tor.trim = Trim{};
    const Rack rack = single_switch(network, config);
    std::deque<Flow> flows;
    for (size_t i = 1; i < 5; ++i)
        flows.emplace_back(network, *rack.hosts[i], *rack.hosts[0], FlowConfig{.messages = 3}).start();
    network.run_until(kSecond);
    EXPECT_GT(rack.hosts[0]->trimmed_frames(), 0u);
    EXPECT_EQ(rack.hosts[0]->trimmed_frames(), network.total(&LinkStats::trimmed_packets));
    for (const Flow& flow : flows) EXPECT_EQ(flow.status(), IBV_WC_SUCCESS) << "rc goes back to what was lost";
    check_conservation(network);
}

// Returns the order in which packets of several flows leave a queue.
std::vector<uint64_t> order_of_shortest(ShortestFirst how) {
    Incast incast({.srpt = how}, 1, kRate / 10);
    Probe& sender = *incast.from[0];
    sender.send(*incast.receiver, kFrameBytes, 9);  // starts immediately
    sender.send_remaining(*incast.receiver, kFrameBytes, 1, 3000);
    sender.send_remaining(*incast.receiver, kFrameBytes, 2, 2000);
    sender.send_remaining(*incast.receiver, kFrameBytes, 1, 2000);
    sender.send_remaining(*incast.receiver, kFrameBytes, 2, 1000);
    sender.send_remaining(*incast.receiver, kFrameBytes, 1, 1000);
    incast.network.run_until(kMillisecond);
    check_conservation(incast.network);
    std::vector<uint64_t> order;
    for (const Probe::Arrival& arrival : incast.receiver->arrivals) order.push_back(arrival.id);
    return order;
}

TEST(ShortestFirst, the_least_remaining_goes_first_and_a_flow_stays_in_order) {
    EXPECT_EQ(order_of_shortest(ShortestFirst::kOfFlow), (std::vector<uint64_t>{9, 2, 2, 1, 1, 1}));
}

TEST(ShortestFirst, or_packet_by_packet) {
    EXPECT_EQ(order_of_shortest(ShortestFirst::kPacket), (std::vector<uint64_t>{9, 2, 1, 2, 1, 1}));
}

TEST(ShortestFirst, what_has_the_most_left_makes_room) {
    for (const ShortestFirst how : {ShortestFirst::kOfFlow, ShortestFirst::kPacket}) {
        Incast incast({.queue_bytes = 3 * kFrameBytes, .srpt = how}, 1, kRate / 10);
        Probe& sender = *incast.from[0];
        sender.send(*incast.receiver, kFrameBytes, 9);  // starts immediately
        for (const uint32_t id : {5, 4, 3}) sender.send_remaining(*incast.receiver, kFrameBytes, id, 1000 * id);
        sender.send_remaining(*incast.receiver, kFrameBytes, 6, 6000);  // has the most remaining bytes
        sender.send_remaining(*incast.receiver, kFrameBytes, 1, 1000);
        incast.network.run_until(kMillisecond);
        std::vector<uint64_t> order;
        for (const Probe::Arrival& arrival : incast.receiver->arrivals) order.push_back(arrival.id);
        EXPECT_EQ(order, (std::vector<uint64_t>{9, 1, 3, 4}));
        EXPECT_EQ(incast.out->stats().dropped_packets, 1u);
        EXPECT_EQ(incast.out->stats().evicted_packets, 1u);
        check_conservation(incast.network);
    }
}

TEST(Deflection, a_full_switch_sends_packets_around) {
    // Two leaves and two spines. Eight hosts of the left leaf send to one host of the right leaf, which is full and
    // sends packets back up.
    for (const uint8_t most : {0, 20}) {
        Network network;
        const SwitchConfig config{.queue_bytes = 20 * kFrameBytes, .max_deflections = most};
        std::vector<Switch*> leaves{&network.add_switch(config), &network.add_switch(config)};
        for (int i = 0; i < 2; ++i) {
            Switch& spine = network.add_switch(config);
            for (Switch* leaf : leaves) network.connect(*leaf, spine, {.bits_per_s = 4 * kRate});
        }
        std::vector<Probe*> from;
        for (int i = 0; i < 8; ++i) {
            from.push_back(&network.add<Probe>());
            network.connect(*from.back(), *leaves[0], {.bits_per_s = kRate});
        }
        Probe& receiver = network.add<Probe>();
        network.connect(receiver, *leaves[1], {.bits_per_s = kRate});
        network.route();
        for (uint64_t i = 0; i < 10; ++i) {
            for (size_t j = 0; j < 8; ++j) from[j]->send(receiver, kFrameBytes, mix(j));
        }
        network.run_until(kMillisecond);
        const uint64_t drops = network.total(&LinkStats::dropped_packets);
        EXPECT_EQ(receiver.arrivals.size() + drops, 80u);
        if (most == 0) {
            EXPECT_GT(drops, 20u);
            EXPECT_EQ(leaves[1]->deflected_packets(), 0u);
        } else {
            EXPECT_EQ(drops, 0u);
            EXPECT_GT(leaves[1]->deflected_packets(), 20u);
        }
        for (const Probe* probe : from) EXPECT_TRUE(probe->arrivals.empty());
        check_conservation(network);
    }
}

}  // namespace
}  // namespace rove::fabric
