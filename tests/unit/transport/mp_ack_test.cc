// SPDX-License-Identifier: Apache-2.0
// QPs in mp mode: acknowledgements, their counters and paths, and held packets.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "transport/multipath.h"

namespace rove::test {
namespace {

TEST_F(Multipath, EU4_OneAcknowledgementForEachDataPacket) {
    post(write(1, 0, 10 * 1024, 0));
    ASSERT_TRUE(run());
    EXPECT_EQ(acks(b), std::vector<MpAck>(10, MpAck::kAck));
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    EXPECT_TRUE(arrived(0, 10 * 1024, 0));
    std::set<uint16_t> paths;
    for (const Observed& p : net.trace) {
        if (p.from == a.index()) paths.insert(p.headers.vp);
    }
    EXPECT_GE(paths.size(), 9u);
}

// docs/protocol/multipath.md: the counters of acknowledgements.
TEST_F(Multipath, EveryAcknowledgementAndEveryPlaceOutOfOrderIsCounted) {
    delay(1);
    post(write(1, 0, 6 * 1024, 0));  // one in order, four that are 1, 2, 3 and 4 ahead, and the missing one
    net.pump();
    run_briefly();
    net.release();
    ASSERT_TRUE(run());
    const transport::MultipathCounters& receiver = b.engine.multipath()->counters;
    EXPECT_EQ(receiver.degrees, (std::array<uint64_t, 14>{2, 1, 2, 1}));
    EXPECT_EQ(receiver.acks_sent, (std::array<uint64_t, 4>{2, 4, 0, 0}));
    EXPECT_EQ(a.engine.multipath()->counters.acks_received, receiver.acks_sent);
    EXPECT_EQ(qb->mp()->requests_in_degree, 4u);
}

// More packets arrive than the port takes answers. Acknowledgements are dropped rather than refusals.
TEST_F(Multipath, EU4_APortThatTakesNothingForgetsNoRefusalForAnAck) {
    constexpr uint32_t kRefused = 20, kTaken = 30;
    bool open = false;
    b.sink.room = [&] { return open; };
    const transport::Psn first = qb->mp()->requests_in.expected;
    for (uint32_t i = 0; i < kRefused; ++i) {  // far ahead of the window
        wire::Headers h{};
        h.bth.opcode = wire::opcode(wire::Service::kMp, Op::kWriteOnly);
        h.bth.dest_qpn = qb->qpn;
        h.bth.psn = (first + 20'000 + i).value();
        h.vp = 0xC000;
        net.inject(b.index(), qa->path, h, {});
    }
    post(write(1, 0, kTaken * 1024, 0));
    run_briefly();
    EXPECT_TRUE(acks(b).empty());
    open = true;
    net.pump();
    const auto all = acks(b);
    EXPECT_EQ(all.size(), size_t{transport::QueuedAcks::kMost});
    EXPECT_EQ(std::ranges::count(all, MpAck::kNack), kRefused);
    EXPECT_EQ(net.trace.back().headers.mp_ack.entry.psn, (first + (kTaken - 1)).value());
}

struct Batching : Multipath {
    static Config batch() {
        Config config = make_config();
        config.batch_acks = true;
        return config;
    }
    Batching() : Multipath(batch()) {}
};

TEST_F(Batching, BX3_AcksOfABurstShareAPacketAndEachCounts) {
    post(write(1, 0, 8 * 1024, 0));
    // The network delivers one by one; the sink takes no packet of b's until all have arrived.
    bool open = false;
    b.sink.room = [&] { return open; };
    net.at(net.now() + 50 * kMicrosecond, [&] { open = true; });
    ASSERT_TRUE(run());
    ASSERT_EQ(packets(b, Op::kAck), 1u);
    EXPECT_EQ(net.trace.back().headers.mp_ack.more, 7);
    EXPECT_EQ(qa->mp()->requests.una, qa->mp()->requests.nxt);
    EXPECT_EQ(a.engine.multipath()->paths.counters().acknowledged, 8u);
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
}

TEST_F(Batching, BX3_EachEntryOfAFrameStandsForItself) {
    post(write(1, 0, 8 * 1024, 0));
    b.sink.room = [] { return false; };
    net.pump();
    run_briefly();
    const transport::SendStream& stream = qa->mp()->requests;
    ASSERT_EQ(stream.nxt - stream.una, 8);
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kMp, Op::kAck);
    h.bth.dest_qpn = qa->qpn;
    h.mp_ack = {.entry = {.kind = MpAck::kAck,
                          .ece = false,
                          .retx = false,
                          .response = false,
                          .psn = (stream.nxt + 5).value(),
                          .vp = 0xC000},  // never sent
                .syndrome = 0,
                .aack_psn = stream.nxt.value(),
                .more = 8};
    h.vp = 0xC000;
    std::vector<uint8_t> entries(8 * wire::kMpAckEntryBytes);
    for (uint32_t i = 0; i < 8; ++i) {
        const transport::Psn psn = stream.una + i;
        wire::emit_ack_entry(entries.data() + i * wire::kMpAckEntryBytes, {.kind = MpAck::kAck,
                                                                           .ece = false,
                                                                           .retx = false,
                                                                           .response = false,
                                                                           .psn = psn.value(),
                                                                           .vp = stream.records[psn.value() % 256].vp});
    }
    net.inject(a.index(), qb->path, h, entries);
    EXPECT_EQ(stream.una, stream.nxt);
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(a.engine.multipath()->counters.acks_received[0], 9u);
}

// BX-14: whatever a receiver has promised it takes, up to the last packet. Each of these packets has to be held.
struct SmallPool : Multipath {
    static Config small() {
        Config config = make_config();
        config.held_bytes = 1 << 20;
        return config;
    }
    SmallPool() : Multipath(small()) {}
};

TEST_F(SmallPool, BX14_APromiseIsKept) {
    net.keep_trace = false;
    net.egress[0].delay_ns = net.egress[1].delay_ns = kMillisecond;
    std::vector<QueuePair*> senders{qa};
    for (int i = 0; i < 3; ++i)
        senders.push_back(&test::connect(net, a, b, {.multipath = true}, {.multipath = true}).a);
    const uint32_t bytes = qa->mtu;
    const auto post_until = [&](uint64_t until) {
        for (uint64_t i = 0; net.now() < until; ++i) {
            while (qa->sq.room() != 0) post(write(i, 0, bytes, 0));
            net.run_for(50 * kMicrosecond);
            sent();
        }
    };
    post_until(net.now() + 100 * kMillisecond);  // the window is as large as the receiver allows
    net.filter = [lost = false](const Observed& p) mutable {
        return p.from == 0 && !std::exchange(lost, true) ? Verdict::kDrop : Verdict::kPass;
    };
    post_until(net.now() + 20 * kMillisecond);
    EXPECT_GT(b.engine.multipath()->held_peak(), 100u);
    EXPECT_EQ(b.counter(Counter::kDropSequence), 0u);
    ASSERT_TRUE(run());
}

// No QP and no peer takes all the room for early packets.
TEST_F(Multipath, WhatIsHeldForOneLeavesRoomForOthers) {
    std::vector<Connection> greedy;
    for (int i = 0; i < 8; ++i)
        greedy.push_back(test::connect(net, a, b, QpOptions{.multipath = true}, QpOptions{.multipath = true}));
    net.filter = [&](const Observed& p) {
        const bool first = p.op() == Op::kWriteOnly && p.headers.bth.psn == 100 && p.headers.bth.dest_qpn != qb->qpn;
        return p.from == 0 && first ? Verdict::kDrop : Verdict::kPass;
    };
    for (uint64_t i = 0; i < 100; ++i)
        for (Connection& c : greedy) ASSERT_TRUE(a.post(c.a, write(i, 0, 64, 0)));
    net.run_for(20 * kMillisecond);
    const transport::MultipathShared& shared = *b.engine.multipath();
    EXPECT_GE(shared.early_count(), 200u);
    EXPECT_LE(shared.early_count(), transport::Config{}.held_bytes / transport::HeldPool::kGranuleBytes / 2)
        << "one peer has half of the room at most";
    net.filter = nullptr;
    ASSERT_TRUE(run());
    EXPECT_EQ(shared.early_count(), 0u);
    for (Connection& c : greedy) EXPECT_EQ(a.poll(*c.a.send_cq).size(), 100u);
}

// The configuration chooses the path of acknowledgements.
TEST(MultipathAckPath, IsAsConfigured) {
    using transport::AckPath;
    for (const AckPath way : {AckPath::kAsData, AckPath::kRandom, AckPath::kOne}) {
        Config config;
        config.ack_path = way;
        config.batch_acks = false;
        Network net(1, 2, config);
        Buffer &from = net.host(0).buffer(65536), &to = net.host(1).buffer(65536);
        const QpOptions options{.multipath = true};
        Connection made = test::connect(net, net.host(0), net.host(1), options, options);
        Send s{.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sges = {from.sge(0, 50 * 1024)}};
        s.remote_addr = to.address(0);
        s.rkey = to.key();
        ASSERT_TRUE(net.host(0).post(made.a, s));
        ASSERT_TRUE(net.run());
        std::map<uint32_t, uint16_t> data;
        std::set<uint16_t> ways;
        size_t as_data = 0;
        for (const Observed& p : net.trace) {
            if (p.from == 0) data[p.headers.bth.psn] = p.headers.vp;
            if (p.from != 1) continue;
            ways.insert(p.headers.vp);
            as_data += p.headers.vp == data[p.headers.bth.psn];
        }
        EXPECT_EQ(as_data == 50, way == AckPath::kAsData);
        EXPECT_EQ(ways.size() == 1, way == AckPath::kOne);
    }
}

}  // namespace
}  // namespace rove::test
