// SPDX-License-Identifier: Apache-2.0
// QPs in mp mode: losses, damage, peers that are late or dead, and requests that cannot be sent again.
#include <algorithm>
#include <optional>
#include <vector>

#include "transport/multipath.h"

namespace rove::test {
namespace {

using testing::ElementsAre;

// Each NACK causes a retransmission, and the network duplicates each NACK: without a limit they would multiply.
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

TEST_F(Multipath, BX10_ATrimmedPacketIsRefusedAtOnceAndAcknowledgedIfItIsThere) {
    std::optional<Observed> lost;
    net.filter = [&](const Observed& p) {
        if (p.from != a.index() || p.op() == Op::kAck || lost) return Verdict::kPass;
        lost = p;
        return Verdict::kDrop;
    };
    post(write(1, 0, 4096, 0));
    net.pump();
    ASSERT_TRUE(lost);
    wire::ParsedFrame trimmed;
    trimmed.headers = lost->headers;
    trimmed.flow = qa->path.flow;
    const auto arrive = [&] {
        b.engine.receive_trimmed(trimmed, qb, qb->port, net.now());
        net.pump();
    };
    arrive();
    net.run_for(100 * kMicrosecond);  // a hundredth of the timeout
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_SUCCESS));
    EXPECT_TRUE(arrived(0, 4096, 0));
    const auto refused = [&] { return std::ranges::count(acks(b), MpAck::kNack); };
    EXPECT_EQ(refused(), 1);
    const size_t before = acks(b).size();
    arrive();
    ASSERT_TRUE(run());
    EXPECT_EQ(acks(b).size(), before + 1);
    EXPECT_EQ(refused(), 1);
}

TEST_F(Multipath, APeerThatIsGoneIsGivenUp) {
    net.filter = [&](const Observed& p) { return p.from == b.index() ? Verdict::kDrop : Verdict::kPass; };
    post(write(1, 0, 512, 0));
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_RETRY_EXC_ERR);
}

// A request that must be retransmitted from memory that has vanished fails in its turn; earlier requests are
// unaffected.
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

// MP-11: a dead requester is silent; one that is alive sends another request.
TEST_F(Multipath, ResponsesWithoutAnswerAreSentForALimitedTimeAndAgainWithTheNextRequest) {
    qa->timeout = 0;  // waits for ever
    net.filter = [&](const Observed& p) { return p.headers.mp.response() ? Verdict::kDrop : Verdict::kPass; };
    post(read(1, 0, 4096, 0));
    ASSERT_TRUE(run());  // the network becomes idle
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

// MP-11: retry_cnt is the requester's alone, so the responder's retry limit must not bound the time of a READ.
TEST_F(UsualRto, MP11_AReadOutlastsAnOutageThatItsTimeoutsAllow) {
    qa->timeout = 20;  // 4.3 s, and seven retries
    qa->retry_cnt = 7;
    net.filter = [&](const Observed& p) { return p.headers.mp.response() ? Verdict::kDrop : Verdict::kPass; };
    post(read(1, 0, 4096, 0));
    net.pump();
    run_briefly();
    ASSERT_FALSE(qa->mp()->requests.outstanding()) << "the request has arrived";
    net.filter = [](const Observed&) { return Verdict::kDrop; };
    net.run_for(20 * kSecond);
    EXPECT_TRUE(sent().empty());
    net.filter = nullptr;
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    EXPECT_EQ(ma.bytes(0, 4096), mb.bytes(0, 4096));
}

// A packet that continues the message in progress is placed while it is verified; nothing in it may take effect before.
TEST_F(Multipath, DamageToAPacketInTheMiddleIsNotAnError) {
    net.filter = [&](const Observed& p) {
        return p.from == a.index() && p.headers.mp.ipsn == 1 ? Verdict::kHold : Verdict::kPass;
    };
    post(write(1, 0, 4 * 1024, 0));
    run_briefly();
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

// The answer to a READ may be late as long as the peer shows that it is alive.
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
    // From here on it acknowledges, and then dies.
    const size_t acks_before = packets(b, Op::kAck);
    net.filter = [&](const Observed& p) {
        const bool gone = p.from == b.index() && (p.headers.mp.response() || packets(b, Op::kAck) > acks_before + 1);
        return gone ? Verdict::kDrop : Verdict::kPass;
    };
    const uint64_t posted = net.now();
    post(read(2, 0, 2048, 0));
    net.pump();
    ASSERT_TRUE(net.run(posted + 100 * kMillisecond, [&] { return qa->state == IBV_QPS_ERR; }));
    expect_sent(IBV_WC_RETRY_EXC_ERR);
}

}  // namespace
}  // namespace rove::test
