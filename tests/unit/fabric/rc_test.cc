// SPDX-License-Identifier: Apache-2.0
// Tests the rc engines over the modelled network: verified data under loss, corruption and cuts, the cost of go-back-N,
// and traces.
#include <gtest/gtest.h>

#include <deque>

#include "fabric/flow.h"
#include "fabric/sampler.h"
#include "fabric/topology.h"
#include "transfer.h"

namespace rove::fabric {
namespace {

using transport::Counter;

LeafSpineConfig lossy_clos(double loss, double corruption) {
    LeafSpineConfig config;
    config.leaves = config.spines = 2;
    config.rack.hosts = 2;
    config.uplink.loss = loss;
    config.uplink.corruption = corruption;
    return config;
}

TEST(Rc, verified_data_through_a_lossy_leaf_spine) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
        Network network(seed, Carry::kBytes);
        const LeafSpine clos = leaf_spine(network, lossy_clos(0.005, 0.005));
        std::deque<Transfer> transfers;
        uint64_t flow = 0;
        for (const auto& [from, to] : permutation(clos, network.world().new_stream())) {
            transfers.emplace_back(network, *from, *to, seed * 10 + flow++, 1 << 20).start();
            transfers.emplace_back(network, *to, *from, seed * 10 + flow++, 1 << 20).start();
        }
        network.run_until(10 * kSecond);
        for (const Transfer& transfer : transfers) {
            EXPECT_TRUE(transfer.done());
            EXPECT_TRUE(transfer.icrc_matches());
        }
        EXPECT_GT(network.total(&LinkStats::lost_packets), 20u);
        // The destination host detected every damaged frame, and no other frame was found wrong.
        uint64_t refused = 0;
        for (const Host* host : clos.hosts()) {
            for (int error = 1; error <= static_cast<int>(wire::ParseError::kIcrc); ++error) {
                refused += host->frames(static_cast<wire::ParseError>(error));
            }
            EXPECT_GT(host->frames(wire::ParseError::kIcrc), 0u);
        }
        // (A frame may also be damaged twice, or lost after the damage.)
        const uint64_t damaged = network.total(&LinkStats::damaged_packets);
        EXPECT_LE(refused, damaged);
        EXPECT_GE(refused + damaged / 20 + 2, damaged);
    }
}

TEST(Rc, corruption_is_counted_alike_in_headers_and_in_bytes) {
    for (const Carry carry : {Carry::kHeaders, Carry::kBytes}) {
        Network network(1, carry);
        RackConfig config{.hosts = 2};
        const Rack rack = single_switch(network, config);
        rack.access[1].backward.set_corruption(0.01);  // the last hop of the data, so damaged frames still arrive
        Flow flow(network, *rack.hosts[0], *rack.hosts[1], {.messages = 100});
        flow.start();
        network.run_until(kSecond);
        EXPECT_TRUE(flow.ended());
        EXPECT_EQ(flow.status(), IBV_WC_SUCCESS);
        uint64_t refused = 0;
        for (int error = 1; error <= static_cast<int>(wire::ParseError::kIcrc); ++error) {
            refused += rack.hosts[1]->frames(static_cast<wire::ParseError>(error));
        }
        // (In real frames, one byte of the BTH is not covered: packet_test.cc.)
        const uint64_t damaged = rack.access[1].backward.stats().damaged_packets;
        EXPECT_LE(refused, damaged);
        EXPECT_GE(refused, damaged - (carry == Carry::kBytes));
        EXPECT_GT(refused, 40u);
    }
}

// Returns all trace events of a run with random traffic, as numbers.
std::vector<uint64_t> trace(uint64_t seed, Carry carry, double corruption, bool multipath) {
    Network network(seed, carry);
    LeafSpineConfig config = lossy_clos(0.002, corruption);
    config.rack.tor.red = config.spine.red = {0.5, 20'000, 200'000};
    config.rack.tor.pfc = config.spine.pfc = Pfc{};
    config.rack.access.bits_per_s = config.uplink.bits_per_s = 10 * kGbps;
    const LeafSpine clos = leaf_spine(network, config);
    std::map<const Link*, uint64_t> number;
    for (const Link& link : network.links()) number.emplace(&link, number.size());
    std::vector<uint64_t> records;
    network.world().trace = [&](TraceEvent what, const Link& link, const Packet& packet) {
        records.insert(records.end(), {network.now(), static_cast<uint64_t>(what), number[&link], packet.bytes});
        if (packet.kind != Packet::Kind::kFrame) return;
        const wire::Bth& bth = packet.frame.headers.bth;
        records.insert(records.end(), {bth.opcode, bth.psn, bth.dest_qpn, packet.frame.flow.udp_src});
    };
    std::deque<Flow> flows;
    const QpConfig qp{.multipath = multipath};
    for (const auto& [from, to] : permutation(clos, network.world().new_stream())) {
        flows.emplace_back(network, *from, *to, FlowConfig{.qp = qp}).start();
        flows.emplace_back(network, *to, *from, FlowConfig{.message_bytes = 3000, .qp = qp}).start();
    }
    network.at(kMillisecond / 2, [&] { clos.uplinks[0][1].set_up(false); });
    network.at(kMillisecond, [&] { clos.uplinks[0][1].set_up(true); });
    network.run_until(2 * kMillisecond);
    return records;
}

TEST(Determinism, the_same_seed_gives_the_same_trace) {
    for (const Carry carry : {Carry::kHeaders, Carry::kBytes}) {
        for (const bool multipath : {false, true}) {
            const std::vector<uint64_t> first = trace(1, carry, 0.001, multipath);
            EXPECT_GT(first.size(), 100'000u);
            EXPECT_EQ(first, trace(1, carry, 0.001, multipath));
            EXPECT_NE(first, trace(2, carry, 0.001, multipath));
        }
    }
}

TEST(Determinism, headers_and_bytes_give_the_same_trace) {
    for (const bool multipath : {false, true})
        EXPECT_EQ(trace(3, Carry::kHeaders, 0, multipath), trace(3, Carry::kBytes, 0, multipath));
}

// Returns the wire time of a packet of 1024 bytes in the middle of a WRITE at 40 Gb/s, with Ethernet, IP, UDP, BTH,
// ICRC, FCS and gap.
constexpr Time wire_time_of_data() {
    return (1024 + 14 + 20 + 8 + 12 + 4 + 4 + 20) * 200;
}

// Returns the goodput of one flow over 40 Gb/s, as a fraction of the rate that is possible for its payload.
double goodput(double loss) {
    Network network(5);
    const std::array<PathConfig, 1> path{{{.link = {.loss = loss}}}};
    const TwoRacks racks = parallel_paths(network, {}, path);
    Flow flow(network, *racks.left.hosts[0], *racks.right.hosts[0]);
    flow.start();
    network.run_until(50 * kMillisecond);
    EXPECT_EQ(flow.status(), IBV_WC_SUCCESS);
    const double sent = static_cast<double>(racks.paths[0].forward.stats().sent_packets);
    const double completed = static_cast<double>(flow.completed_bytes()) / 1024;
    EXPECT_LE(completed, sent);
    return completed * static_cast<double>(wire_time_of_data()) / static_cast<double>(50 * kMillisecond);
}

TEST(Rc, go_back_n_pays_for_loss) {
    const double clean = goodput(0), one_per_mille = goodput(0.001), one_percent = goodput(0.01);
    EXPECT_GT(clean, 0.97);
    // A loss costs the round trip of 6.6 us, in which 30 packets are sent for nothing. If the retransmission is also
    // lost, only the tail probe detects it, after 1 ms. At 1 % this causes most of the missing goodput.
    EXPECT_LT(one_per_mille, 0.98 * clean);
    EXPECT_GT(one_per_mille, 0.85 * clean);
    EXPECT_LT(one_percent, 0.6 * clean);
    EXPECT_GT(one_percent, 0.1 * clean);
}

TEST(Rc, a_flow_survives_a_cut_and_resumes) {
    Network network;
    const std::array<PathConfig, 1> path{};
    const TwoRacks racks = parallel_paths(network, {}, path);
    Flow flow(network, *racks.left.hosts[0], *racks.right.hosts[0]);
    Sampler sampler(network, 5 * kMillisecond);
    const size_t goodput = sampler.watch([&] { return flow.completed_bytes(); });
    flow.start();
    network.at(10 * kMillisecond, [&] { racks.paths[0].set_up(false); });
    network.at(20 * kMillisecond, [&] { racks.paths[0].set_up(true); });
    network.run_until(100 * kMillisecond);
    EXPECT_EQ(flow.status(), IBV_WC_SUCCESS);
    EXPECT_GT(sampler.bits_per_s(1, goodput), 35e9);
    EXPECT_EQ(sampler.growth(4, goodput), 0u) << "15 to 20 ms: down";
    EXPECT_GT(sampler.bits_per_s(sampler.rows() - 1, goodput), 35e9);
    EXPECT_GT(racks.paths[0].forward.stats().cut_packets, 0u);
}

TEST(Rc, a_path_that_stays_down_ends_the_flow) {
    Network network;
    const std::array<PathConfig, 1> path{};
    const TwoRacks racks = parallel_paths(network, {}, path);
    Flow flow(network, *racks.left.hosts[0], *racks.right.hosts[0], {.qp = {.timeout = 8, .retry_cnt = 3}});
    flow.on_end = [&](Flow&) { network.stop(); };
    flow.start();
    network.at(kMillisecond, [&] { racks.paths[0].set_up(false); });
    EXPECT_TRUE(network.run_until(10 * kSecond)) << "stopped by the flow's end";
    EXPECT_EQ(flow.status(), IBV_WC_RETRY_EXC_ERR);
    EXPECT_GT(flow.ended_at(), kMillisecond);
    EXPECT_LT(flow.ended_at(), kSecond);
}

TEST(Rc, flows_end_when_their_messages_are_done) {
    Network network;
    const Rack rack = single_switch(network, {.hosts = 2});
    Flow flow(network, *rack.hosts[0], *rack.hosts[1], {.message_bytes = 1 << 20, .in_flight = 4, .messages = 10});
    flow.start();
    network.run_until(kSecond);
    EXPECT_TRUE(flow.ended());
    EXPECT_EQ(flow.completed_bytes(), 10u << 20);
    EXPECT_GT(flow.ended_at(), 10u * 1024 * wire_time_of_data());
    EXPECT_LT(flow.ended_at(), 10u * 1024 * wire_time_of_data() * 21 / 20);
    EXPECT_EQ(rack.hosts[1]->counters()[Counter::kRxPackets], 10u * 1024);
    EXPECT_EQ(rack.hosts[0]->counters()[Counter::kRetransmittedPackets], 0u);
    EXPECT_LT(network.world().packets.size(), 100u) << "packets are used again";
    const uint64_t ring =
        HostConfig{}.ring_packets * (1024 + 14 + 20 + 8 + 12 + 16 + 4 + 4);  // counted with the size of First packets
    EXPECT_LE(rack.access[0].forward.stats().max_queued_bytes, ring) << "the engine waits for the NIC";
    EXPECT_GT(rack.access[0].forward.stats().max_queued_bytes, ring * 9 / 10);
}

}  // namespace
}  // namespace rove::fabric
