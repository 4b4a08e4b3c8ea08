// SPDX-License-Identifier: Apache-2.0
// QPs in mp mode, rule by rule: what is placed, held, acknowledged and completed when packets overtake each other.
#include <map>
#include <optional>
#include <set>

#include "rove/verbs.h"
#include "transport/pair.h"

namespace rove::test {
namespace {

using testing::ElementsAre;
using wire::MpAck;

struct Multipath : Pair {
    static Config make_config() {
        Config config;
        config.batch_acks = false;
        config.paths.min_rto_ns = 10 * kMillisecond;
        config.paths.infer_losses = false;
        return config;
    }
    explicit Multipath(const Config& config = make_config()) : Multipath(config, config) {}
    Multipath(const Config& config_a, const Config& config_b) : Pair(config_a, config_b) {
        connect(QpOptions{.multipath = true});
    }

    // Holds back the `nth` packet that a sends, until release(); its repetitions (MP-10) are lost.
    void delay(size_t nth) {
        net.filter = [this, nth, seen = size_t{0}, held = std::optional<uint32_t>()](const Observed& p) mutable {
            if (p.from != a.index() || p.op() == Op::kAck) return Verdict::kPass;
            if (held == p.headers.bth.psn) return Verdict::kDrop;
            if (seen++ != nth) return Verdict::kPass;
            held = p.headers.bth.psn;
            return Verdict::kHold;
        };
    }
    void settle() { net.run_for(100 * kMicrosecond); }
    std::vector<MpAck> acks(const Host& from) const {
        std::vector<MpAck> all;
        for (const Observed& p : net.trace) {
            if (p.from == from.index() && p.op() == Op::kAck) all.push_back(p.headers.mp_ack.entry.kind);
        }
        return all;
    }
    size_t acks_before_ = 0;
    bool arrived(size_t at, size_t bytes, size_t from) { return mb.bytes(at, bytes) == ma.bytes(from, bytes); }
};

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

// mp-transport.md, section 6.
TEST_F(Multipath, EveryAcknowledgementAndEveryPlaceOutOfOrderIsCounted) {
    delay(1);
    post(write(1, 0, 6 * 1024, 0));  // one in order, four that are 1, 2, 3 and 4 ahead, and the one that was missing
    net.pump();
    settle();
    net.release();
    ASSERT_TRUE(run());
    const transport::MultipathCounters& receiver = b.engine.multipath()->counters;
    EXPECT_EQ(receiver.degrees, (std::array<uint64_t, 14>{2, 1, 2, 1}));
    EXPECT_EQ(receiver.acks_sent, (std::array<uint64_t, 4>{2, 4, 0, 0}));
    EXPECT_EQ(a.engine.multipath()->counters.acks_received, receiver.acks_sent);
    EXPECT_EQ(qb->mp()->requests_in_degree, 4u);
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
    // The network delivers one by one; the sink takes none of b's until all have come.
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
    settle();
    const transport::SendStream& stream = qa->mp()->requests;
    ASSERT_EQ(stream.nxt - stream.una, 8);
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kMp, Op::kAck);
    h.bth.dest_qpn = qa->qpn;
    h.mp_ack = {.entry = {.kind = MpAck::kAck, .ece = false, .retx = false, .response = false,
                          .psn = (stream.nxt + 5).value(), .vp = 0xC000},  // never sent
                .syndrome = 0, .aack_psn = stream.nxt.value(), .more = 8};
    h.vp = 0xC000;
    std::vector<uint8_t> entries(8 * wire::kMpAckEntryBytes);
    for (uint32_t i = 0; i < 8; ++i) {
        const transport::Psn psn = stream.una + i;
        wire::emit_ack_entry(entries.data() + i * wire::kMpAckEntryBytes,
                             {.kind = MpAck::kAck, .ece = false, .retx = false, .response = false, .psn = psn.value(),
                              .vp = stream.records[psn.value() % 256].vp});
    }
    net.inject(a.index(), qb->path, h, entries);
    EXPECT_EQ(stream.una, stream.nxt);
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(a.engine.multipath()->counters.acks_received[0], 9u);
}

TEST_F(Multipath, EU6_CompletionsOnlyWhenEverythingBeforeIsInOrder) {
    receive(1, 0, 4096);
    receive(2, 8192, 4096);
    delay(0);
    post(send(1, 0, 100));
    post(send(2, 200, 100));
    net.pump();
    settle();
    EXPECT_TRUE(received().empty());
    EXPECT_TRUE(sent().empty());
    EXPECT_EQ(acks(b), std::vector{MpAck::kSack});
    net.release();
    ASSERT_TRUE(run());
    EXPECT_EQ(ids(received()), (std::vector<uint64_t>{1, 2}));
    EXPECT_EQ(ids(sent()), (std::vector<uint64_t>{1, 2}));
    EXPECT_TRUE(arrived(0, 100, 0));
    EXPECT_TRUE(arrived(8192, 100, 200));
}

// A program that polls the last byte of a WRITE.
TEST_F(Multipath, EU7_TheLastPacketIsHeldUntilAllBeforeItArePlaced) {
    delay(1);
    post(write(1, 0, 4 * 1024, 0));
    net.pump();
    settle();
    EXPECT_TRUE(arrived(0, 1024, 0));
    EXPECT_TRUE(arrived(2 * 1024, 1024, 2 * 1024));
    EXPECT_FALSE(arrived(3 * 1024, 1024, 3 * 1024));
    EXPECT_EQ(b.engine.multipath()->held_now(), 1u);
    net.release();
    ASSERT_TRUE(run());
    EXPECT_TRUE(arrived(0, 4 * 1024, 0));
    EXPECT_EQ(b.engine.multipath()->held_now(), 0u);
}

// Data, then a flag.
TEST_F(Multipath, EU7_ALaterWriteIsNotVisibleBeforeAnEarlierOne) {
    delay(0);
    post(write(1, 0, 512, 0));
    post(write(2, 1024, 8, 2048));
    net.pump();
    settle();
    EXPECT_FALSE(arrived(2048, 8, 1024));
    net.release();
    ASSERT_TRUE(run());
    EXPECT_TRUE(arrived(0, 512, 0));
    EXPECT_TRUE(arrived(2048, 8, 1024));
}

TEST_F(Multipath, EU7_RelaxedOrderingGivesThatUp) {
    Buffer& relaxed = b.buffer(4096, kAllAccess | IBV_ACCESS_RELAXED_ORDERING);
    const auto to_relaxed = [&](uint64_t id, size_t from, size_t bytes, size_t to) {
        Send s = write(id, from, bytes, 0);
        s.remote_addr = relaxed.address(to);
        s.rkey = relaxed.key();
        return s;
    };
    delay(0);
    post(to_relaxed(1, 0, 512, 0));
    post(to_relaxed(2, 1024, 8, 2048));
    net.pump();
    settle();
    EXPECT_EQ(relaxed.bytes(2048, 8), ma.bytes(1024, 8));
    EXPECT_TRUE(sent().empty());
    net.release();
    ASSERT_TRUE(run());
    EXPECT_EQ(relaxed.bytes(0, 512), ma.bytes(0, 512));
}

Config with(transport::Ordering ordering) {
    Config config = Multipath::make_config();
    config.ordering = ordering;
    return config;
}

struct SenderDelay : Multipath {
    SenderDelay() : Multipath(with(transport::Ordering::kSenderDelay)) {}
};

TEST_F(SenderDelay, EU7_TheLastPacketOfAWriteWaitsForTheAcksOfAllBeforeIt) {
    post(write(1, 0, 4 * 1024, 0));
    post(write(2, 8192, 8, 8192));
    ASSERT_TRUE(run());
    std::vector<uint64_t> times;
    for (const Observed& p : net.trace) {
        if (p.from == a.index()) times.push_back(p.time);
    }
    constexpr uint64_t kRoundTrip = 2 * 2 * kMicrosecond;
    const uint64_t start = times.front();
    EXPECT_EQ(times, (std::vector<uint64_t>{start, start, start, start + kRoundTrip, start + 2 * kRoundTrip}));
    EXPECT_EQ(a.counter(Counter::kDelayedPackets), 2u);
    EXPECT_EQ(b.engine.multipath()->held_peak(), 0u);
    EXPECT_TRUE(arrived(0, 4 * 1024, 0));
}

struct Optimistic : Multipath {
    static Config make() {
        Config config = with(transport::Ordering::kOptimistic);
        config.paths.delta = 8;
        return config;
    }
    Optimistic() : Multipath(make()) {}
    Send sync(Send s) {
        s.flags |= ROVE_SEND_SYNC;
        return s;
    }
};

TEST_F(Optimistic, MP12_ASynchroniseOperationLeavesLaterAndAllItsPacketsSayWhatItIs) {
    post(write(1, 0, 8, 0));  // measures the round trip
    ASSERT_TRUE(run());
    net.trace.clear();
    post(write(2, 0, 4 * 1024, 0));
    post(sync(write(3, 8192, 2 * 1024, 8192)));
    net.pump();
    const uint64_t delay = a.engine.multipath()->paths.sync_delay_ns(qa->mp()->requests);
    ASSERT_GT(delay, 0u);
    ASSERT_LT(delay, 4 * kMicrosecond);
    ASSERT_TRUE(run());
    std::vector<std::pair<uint64_t, bool>> packets;
    for (const Observed& p : net.trace) {
        if (p.from == a.index()) packets.emplace_back(p.time - net.trace[0].time, p.headers.mp.sync());
    }
    const std::pair<uint64_t, bool> before{0, false}, after{delay, true};
    EXPECT_EQ(packets, (std::vector{before, before, before, before, after, after}));
    EXPECT_EQ(a.counter(Counter::kDelayedPackets), 1u);
}

TEST_F(Optimistic, MP12_ASynchroniseOperationThatIsEarlyIsDroppedAndNacked) {
    delay(0);
    post(write(1, 0, 512, 0));
    post(sync(write(2, 1024, 8, 2048)));
    net.pump();
    net.run_for(4 * kMicrosecond);
    EXPECT_EQ(b.counter(Counter::kDropEarlySync), 1u);
    EXPECT_EQ(acks(b), std::vector{MpAck::kNack});
    EXPECT_FALSE(arrived(2048, 8, 1024));
    net.filter = nullptr;
    ASSERT_TRUE(run());
    EXPECT_TRUE(arrived(0, 512, 0));
    EXPECT_TRUE(arrived(2048, 8, 1024));
    EXPECT_EQ(b.engine.multipath()->held_peak(), 0u);
}

// Each NACK lets the packet go again, and the network repeats each NACK: without a limit there would be ever more.
TEST_F(Optimistic, MP9_ARepeatedNackIsNoReasonToSendTwice) {
    net.filter = [&](const Observed& p) {
        if (p.from == b.index()) return Verdict::kTwice;
        return p.headers.bth.psn == net.trace[0].headers.bth.psn ? Verdict::kDrop : Verdict::kPass;
    };
    post(write(1, 0, 512, 0));
    post(sync(write(2, 1024, 8, 2048)));
    net.pump();
    net.run_for(100 * kMicrosecond);  // 25 round trips
    EXPECT_LE(packets(a, Op::kWriteOnly), 80u);
    net.filter = nullptr;
    ASSERT_TRUE(run());
    EXPECT_EQ(ids(sent()), (std::vector<uint64_t>{1, 2}));
}

// A program that writes data, then a flag, over a network that lets packets overtake; the peer looks after each packet.
// How often it finds a flag without its data.
uint64_t flags_without_data(const Config& sender, const Config& receiver, uint32_t flags = IBV_SEND_SIGNALED) {
    uint64_t found = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        struct Story : Multipath {
            using Multipath::Multipath;
            void TestBody() override {}
        } story(sender, receiver);
        constexpr size_t kMessages = 16, kData = 3000, kFlags = 64 * 1024;
        story.net.random() = Random(seed);
        story.net.egress[0].reorder = story.net.egress[0].loss = 0.1;
        story.net.filter = [&](const Observed& p) {
            if (p.from != story.b.index()) return Verdict::kPass;
            for (size_t i = 0; i < kMessages; ++i) {
                found +=
                    story.arrived(kFlags + 8 * i, 8, kFlags + 8 * i) && !story.arrived(i * kData, kData, i * kData);
            }
            return Verdict::kPass;
        };
        for (size_t i = 0; i < kMessages; ++i) {
            story.post(story.write(2 * i, i * kData, kData, i * kData));
            Send flag = story.write(2 * i + 1, kFlags + 8 * i, 8, kFlags + 8 * i);
            flag.flags = flags;
            story.post(flag);
        }
        EXPECT_TRUE(story.run());
        EXPECT_EQ(story.sent().size(), 2 * kMessages);
        EXPECT_TRUE(story.arrived(0, kMessages * kData, 0));
    }
    return found;
}

// Where the ends differ, the stricter has its way.
TEST(Ordering, EU7_AFlagIsNotThereBeforeItsDataUnlessBothEndsAgree) {
    using enum transport::Ordering;
    const Config hold = with(kReceiverHold), delay = with(kSenderDelay), optimistic = with(kOptimistic);
    EXPECT_EQ(flags_without_data(hold, hold), 0u);
    EXPECT_EQ(flags_without_data(hold, optimistic), 0u);
    EXPECT_EQ(flags_without_data(optimistic, hold), 0u);
    EXPECT_EQ(flags_without_data(delay, delay), 0u);
    EXPECT_EQ(flags_without_data(delay, optimistic), 0u);
    EXPECT_EQ(flags_without_data(delay, hold), 0u);
    EXPECT_GT(flags_without_data(optimistic, optimistic), 0u);
    EXPECT_GT(flags_without_data(optimistic, delay), 0u);
}

TEST(Ordering, MP12_WithTheSynchroniseFlagAFlagIsNeverThereBeforeItsData) {
    using enum transport::Ordering;
    for (const transport::Ordering sender : {kReceiverHold, kSenderDelay, kOptimistic})
        EXPECT_EQ(flags_without_data(with(sender), with(kOptimistic), IBV_SEND_SIGNALED | ROVE_SEND_SYNC), 0u);
}

// Two WRITEs to one place: the second stays, though the middle of it overtakes the first.
TEST_F(Multipath, OverlappingWritesKeepTheirOrder) {
    delay(0);
    post(write(1, 0, 2 * 1024, 0));
    post(write(2, 8192, 4 * 1024, 0));
    net.pump();
    settle();
    net.release();
    ASSERT_TRUE(run());
    EXPECT_TRUE(arrived(0, 4 * 1024, 8192));
}

TEST_F(Multipath, AtomicsExecuteOnceAndInOrderWhateverIsLost) {
    set_word(mb, 0, 5);
    lose(0, [](const Observed& p) { return p.op() == Op::kAtomicAck; });
    post(fetch_add(1, 64, 0, 10));
    post(fetch_add(2, 72, 0, 100));
    ASSERT_TRUE(run());
    EXPECT_EQ(word(mb, 0), 115u);
    EXPECT_EQ(word(ma, 64), 5u);
    EXPECT_EQ(word(ma, 72), 15u);
    EXPECT_EQ(ids(sent()), (std::vector<uint64_t>{1, 2}));
}

TEST_F(Multipath, ReadDataIsSprayedReorderedAndRecoveredLikeWrites) {
    lose(2, [](const Observed& p) { return p.headers.mp.response() && p.op() == Op::kReadResponseMiddle; });
    post(read(1, 0, 16 * 1024, 32 * 1024));
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    EXPECT_EQ(ma.bytes(0, 16 * 1024), mb.bytes(32 * 1024, 16 * 1024));
    std::set<uint16_t> paths;
    for (const Observed& p : net.trace) {
        if (p.from == b.index() && p.op() != Op::kAck) paths.insert(p.headers.vp);
    }
    EXPECT_GE(paths.size(), 12u);
}

struct Reads : Multipath {
    // Eight, of which one answer is lost so that those behind it wait.
    void read_all() {
        ma.fill(1);
        lose(1, [](const Observed& p) { return p.headers.mp.response() && p.op() == Op::kReadResponseOnly; });
        for (uint64_t i = 0; i < 8; ++i) post(read(i, 1024 * i, 1000, 1024 * (7 - i)));
        ASSERT_TRUE(run());
        EXPECT_EQ(sent().size(), 8u);
        for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(ma.bytes(1024 * i, 1000), mb.bytes(1024 * (7 - i), 1000)) << i;
    }
};

TEST_F(Reads, TheirCountMayWrapWhateverTheMostAtATimeIs) {
    connect(QpOptions{.max_rd_atomic = 3, .multipath = true});
    qa->mp()->reads.head = qa->mp()->reads.tail = UINT32_MAX - 1;
    read_all();
}

TEST_F(Reads, MoreAtATimeThanWhenTheConnectionWasMade) {
    connect(QpOptions{.max_rd_atomic = 1, .multipath = true});
    qa->max_rd_atomic = qb->max_dest_rd_atomic = 8;
    qa->make_room();
    qb->make_room();
    read_all();
    EXPECT_EQ(qb->mp()->jobs.slots.size(), 16u);
}

TEST_F(Multipath, RequestsLeaveThoughThePeerReadsAllTheTime) {
    read_beside_a_reader({.multipath = true});
}

TEST_F(Multipath, ErrorsAreThoseOfTheOldestRequest) {
    Send bad = write(2, 0, 64, 0);
    bad.rkey ^= 1;
    delay(0);
    post(write(1, 0, 512, 0));
    post(bad);
    net.pump();
    settle();
    EXPECT_EQ(qb->state, IBV_QPS_RTS);
    net.release();
    ASSERT_TRUE(run());
    const auto wcs = sent();
    EXPECT_EQ(statuses(wcs), (std::vector{IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR}));
    EXPECT_TRUE(arrived(0, 512, 0));
    EXPECT_EQ(qb->state, IBV_QPS_ERR);
}

TEST_F(Multipath, ALocalProtectionErrorWaitsForItsTurn) {
    post(write(1, 0, 5000, 0));
    post(read(2, 20000, 5000, 0));
    Send bad = write(3, 0, 100, 0);
    bad.sges[0].lkey ^= 0x100;
    post(bad);
    post(write(4, 0, 100, 0));
    ASSERT_TRUE(run());
    const auto wcs = sent();
    EXPECT_THAT(ids(wcs), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(statuses(wcs),
                ElementsAre(IBV_WC_SUCCESS, IBV_WC_SUCCESS, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR));
    EXPECT_EQ(qa->state, IBV_QPS_ERR);
}

TEST_F(Multipath, ASendWithInvalidateTakesAWindowAway) {
    transport::Window window(IBV_MW_TYPE_2, qb->pd);
    b.bind_window(window, mb, *qb);
    Send w = write(1, 0, 5000, 0);
    w.rkey = window.rkey();
    post(w);
    receive(5, 8000, 5000);
    Send s = send(2, 0, 5000);
    s.opcode = IBV_WR_SEND_WITH_INV;
    s.immediate = window.rkey();
    delay(2);  // of the WRITE, which needs the window that the SEND ends
    post(s);
    net.run_for(kMillisecond);
    EXPECT_TRUE(window.is_bound());
    net.filter = nullptr;
    net.release();
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_SUCCESS, IBV_WC_SUCCESS));
    EXPECT_TRUE(arrived(0, 5000, 0));
    const auto got = received();
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
    EXPECT_EQ(got[0].invalidated_rkey, window.rkey());
    EXPECT_FALSE(window.is_bound());
    post(w);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_REM_ACCESS_ERR);
    b.memory.remove(window);
}

TEST_F(Multipath, SqdSaysWhenWhatWasBegunIsDone) {
    post(write(1, 0, 5000, 0));
    net.pump();
    a.engine.set_state(*qa, IBV_QPS_SQD, net.now());
    EXPECT_EQ(a.sink.count(IBV_EVENT_SQ_DRAINED, qa), 0) << "the request is on its way";
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(sent()), ElementsAre(1));
    EXPECT_EQ(a.sink.count(IBV_EVENT_SQ_DRAINED, qa), 1);
}

TEST_F(Multipath, AMissingReceiveIsWaitedFor) {
    post(send(1, 0, 3000));
    net.at(net.now() + 5 * kMillisecond, [&] { receive(7, 0, 4096); });
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS);
    EXPECT_EQ(ids(received()), std::vector<uint64_t>{7});
    EXPECT_TRUE(arrived(0, 3000, 0));
    EXPECT_GT(b.counter(Counter::kTxNakRnr), 1u);
}

TEST_F(Multipath, APeerThatIsGoneIsGivenUp) {
    net.filter = [&](const Observed& p) { return p.from == b.index() ? Verdict::kDrop : Verdict::kPass; };
    post(write(1, 0, 512, 0));
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_RETRY_EXC_ERR);
}

// A request that has to go again, and whose memory has gone, fails in its turn; what was posted before it is not
// touched.
TEST_F(Multipath, AFailureAtHomeIsThatOfItsOwnRequest) {
    Buffer& gone = a.buffer(4096);
    size_t seen = 0;
    net.filter = [&](const Observed& p) {
        // The first transmissions of both requests are lost, and then the first one's for a while.
        if (p.from != 0 || p.op() == Op::kAck) return Verdict::kPass;
        ++seen;
        return seen <= 2 || p.headers.reth.va == mb.address(0) ? Verdict::kDrop : Verdict::kPass;
    };
    post(write(1, 0, 100, 0));
    Send second = write(2, 0, 0, 2048);
    second.sges = {gone.sge(0, 100)};
    post(second);
    net.run_for(kMicrosecond);
    a.memory.remove(gone.region);
    net.run_for(100 * kMillisecond);
    EXPECT_TRUE(sent().empty()) << "the first one has not arrived";
    net.filter = nullptr;
    ASSERT_TRUE(run());
    const auto wcs = sent();
    EXPECT_THAT(ids(wcs), ElementsAre(1, 2));
    EXPECT_THAT(statuses(wcs), ElementsAre(IBV_WC_SUCCESS, IBV_WC_LOC_PROT_ERR));
    EXPECT_TRUE(arrived(0, 100, 0));
    EXPECT_TRUE(a.memory.insert(gone.region));
}

// No QP and no peer takes all the room for packets that came early.
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
    EXPECT_GE(shared.held_now(), 200u);
    EXPECT_LE(shared.held_now(), transport::MultipathShared::kHeldPackets / 2u)
        << "one peer has half of the room at most";
    net.filter = nullptr;
    ASSERT_TRUE(run());
    EXPECT_EQ(shared.held_now(), 0u);
    for (Connection& c : greedy) EXPECT_EQ(a.poll(*c.a.send_cq).size(), 100u);
}

TEST_F(Multipath, AnAnswerToAReadMustBeWhatItsPlaceSays) {
    net.filter = [](const Observed& p) { return p.is_response() ? Verdict::kDrop : Verdict::kPass; };
    post(read(1, 0, 3000, 0));
    net.run_for(100 * kMicrosecond);
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kMp, Op::kReadResponseLast);
    h.bth.dest_qpn = qa->qpn;
    h.bth.psn = 100;
    h.mp = {.flags = wire::Mpeth::kResponse, .msn = 0, .ipsn = 0};
    const auto before = ma.bytes(0, ma.size);
    net.inject(0, b.path_to(a), h, std::vector<uint8_t>(1024, 0x77));
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_BAD_RESP_ERR);
    EXPECT_EQ(ma.bytes(0, ma.size), before);
}

// Which way acknowledgements go is the configuration's to say.
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

// MP-11: a requester that has gone says nothing; one that is still there asks for something else.
TEST_F(Multipath, ResponsesWithoutAnswerAreSentForALimitedTimeAndAgainWithTheNextRequest) {
    qa->timeout = 0;  // waits for ever
    net.filter = [&](const Observed& p) { return p.headers.mp.response() ? Verdict::kDrop : Verdict::kPass; };
    post(read(1, 0, 4096, 0));
    ASSERT_TRUE(run());  // comes to rest
    EXPECT_GT(packets(b, Op::kReadResponseFirst), 100u);
    EXPECT_TRUE(sent().empty());
    net.filter = nullptr;
    post(read(2, 8192, 4096, 8192));
    ASSERT_TRUE(run());
    EXPECT_EQ(ids(sent()), (std::vector<uint64_t>{1, 2}));
    EXPECT_EQ(ma.bytes(0, 4096), mb.bytes(0, 4096));
}

struct UsualRto : Multipath {
    static Config usual() {
        Config config = make_config();
        config.paths.min_rto_ns = transport::PathsConfig().min_rto_ns;
        return config;
    }
    UsualRto() : Multipath(usual()) {}
};

// MP-11: retry_cnt is the requester's alone, so the responder's patience must not decide how long a READ may take.
TEST_F(UsualRto, MP11_AReadOutlastsAnOutageThatItsTimeoutsAllow) {
    qa->timeout = 20;  // 4.3 s, and seven retries
    qa->retry_cnt = 7;
    net.filter = [&](const Observed& p) { return p.headers.mp.response() ? Verdict::kDrop : Verdict::kPass; };
    post(read(1, 0, 4096, 0));
    net.pump();
    settle();
    ASSERT_FALSE(qa->mp()->requests.outstanding()) << "the request has arrived";
    net.filter = [](const Observed&) { return Verdict::kDrop; };
    net.run_for(20 * kSecond);
    EXPECT_TRUE(sent().empty());
    net.filter = nullptr;
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    EXPECT_EQ(ma.bytes(0, 4096), mb.bytes(0, 4096));
}

// A packet that continues the message in progress is placed while it is verified; nothing that it says may count
// before.
TEST_F(Multipath, DamageToAPacketInTheMiddleIsNotAnError) {
    net.filter = [&](const Observed& p) {
        return p.from == a.index() && p.headers.mp.ipsn == 1 ? Verdict::kHold : Verdict::kPass;
    };
    post(write(1, 0, 4 * 1024, 0));
    settle();
    const wire::Headers h = net.trace[1].headers;
    ASSERT_EQ(h.mp.ipsn, 1u);
    const Path path = a.path_to(b);
    const wire::Segment payload{ma.data() + 1024, 1024};
    std::vector<uint8_t> good(wire::frame_bytes(path.headers, h.bth.opcode, 1024));
    wire::build_frame(good.data(), path.headers, h, {&payload, 1});
    for (size_t bit = 0; bit < wire::opcode_info(h.bth.opcode).header_bytes * 8u; ++bit) {
        if (bit / 8 == 4) continue;  // reserved: the ICRC leaves it out
        std::vector<uint8_t> frame = good;
        frame[path.headers.size + bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        net.deliver(b, frame);
        ASSERT_EQ(qb->state, IBV_QPS_RTS) << "bit " << bit;
        ASSERT_EQ(qb->mp()->requests_in.expected, transport::Psn(h.bth.psn)) << "bit " << bit;
    }
    net.filter = nullptr;
    net.release();
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    EXPECT_TRUE(arrived(0, 4 * 1024, 0));
}

// What a READ waits for may be late, as long as the peer says that it is there.
TEST_F(Multipath, AnAnswerThatIsLateIsNotAPeerThatIsGone) {
    qa->timeout = 12;  // 17 ms
    qa->retry_cnt = 1;
    net.filter = [&](const Observed& p) { return p.headers.mp.response() ? Verdict::kDrop : Verdict::kPass; };
    post(read(1, 0, 2048, 0));
    net.pump();
    net.run_for(300 * kMillisecond);
    EXPECT_TRUE(sent().empty());
    EXPECT_GE(a.counter(Counter::kTailProbes), 10u);
    net.filter = nullptr;
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    // Now it acknowledges, and is gone.
    net.filter = [&](const Observed& p) {
        const bool gone = p.from == b.index() && (p.headers.mp.response() || packets(b, Op::kAck) > acks_before_ + 1);
        return gone ? Verdict::kDrop : Verdict::kPass;
    };
    acks_before_ = packets(b, Op::kAck);
    const uint64_t posted = net.now();
    post(read(2, 0, 2048, 0));
    net.pump();
    ASSERT_TRUE(net.run(posted + 100 * kMillisecond, [&] { return qa->state == IBV_QPS_ERR; }));
    expect_sent(IBV_WC_RETRY_EXC_ERR);
}

// A standard RC packet for a QP in mp mode, and the other way round, is nobody's.
TEST_F(Multipath, ModesDoNotMix) {
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kRc, Op::kWriteOnly);
    h.bth.dest_qpn = qb->qpn;
    h.bth.psn = qb->mp()->requests_in.expected.value();
    h.reth = {mb.address(), mb.key(), 4};
    net.inject(1, a.path_to(b), h, {9, 9, 9, 9});
    EXPECT_EQ(b.counter(Counter::kDropService), 1u);
    EXPECT_NE(mb[0], 9);
}

}  // namespace
}  // namespace rove::test
