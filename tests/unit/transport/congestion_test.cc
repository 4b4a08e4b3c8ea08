// SPDX-License-Identifier: Apache-2.0
// DCQCN between two engines: marks, CNPs, the cut, the pace on the wire, and the recovery.
#include "transport/pair.h"

namespace rove::test {
namespace {

// Packets that may be sent before the pace applies.
constexpr uint64_t kSlackBytes = 3 * 1100;

struct Congestion : Pair {
    size_t cnps(const Host& from) const {
        size_t n = 0;
        for (const Observed& p : net.trace) n += p.from == from.index() && p.is_cnp();
        return n;
    }
    // Returns the payload bytes that host a sent in [begin, end).
    uint64_t sent_between(uint64_t begin, uint64_t end) const {
        uint64_t bytes = 0;
        for (const Observed& p : net.trace) {
            if (p.from == 0 && p.time >= begin && p.time < end) bytes += p.payload_bytes;
        }
        return bytes;
    }
};

TEST_F(Congestion, marks_are_answered_at_most_once_per_interval) {
    connect();
    net.egress[0].bytes_per_s = 1'000'000'000;
    net.egress[0].room_packets = 8;
    net.filter = [](const Observed& p) { return p.from == 0 ? Verdict::kMarkCe : Verdict::kPass; };
    for (uint64_t i = 0; i < 10; ++i) post(write(i, 0, 100000, 0));
    ASSERT_TRUE(run());
    EXPECT_EQ(sent().size(), 10u);
    std::vector<uint64_t> times;
    for (const Observed& p : net.trace) {
        if (p.is_cnp()) {
            times.push_back(p.time);
            EXPECT_EQ(p.from, 1u);
            EXPECT_EQ(p.headers.bth.ecn, wire::Bth::kBecn);
            EXPECT_EQ(p.headers.bth.dest_qpn, qa->qpn);
        }
    }
    ASSERT_GT(times.size(), 3u);
    for (size_t i = 1; i < times.size(); ++i) EXPECT_GE(times[i] - times[i - 1], 50 * kMicrosecond);
    EXPECT_EQ(a.counter(Counter::kRxCnp), times.size());
}

// D23: CNPs from another partition or another peer, or to a QP that cannot have sent anything.
TEST_F(Congestion, ACnpThatCannotBeTrueChangesNothing) {
    connect();
    wire::Headers cnp{};
    cnp.bth.opcode = wire::kOpcodeCnp;
    cnp.bth.dest_qpn = qa->qpn;
    cnp.bth.pkey = 0x9234;
    net.inject(0, b.path_to(a), cnp, {});
    EXPECT_EQ(a.counter(Counter::kDropPkey), 1u);
    cnp.bth.pkey = wire::kDefaultPkey;
    net.inject(0, b.path_to(a, true), cnp, {});
    EXPECT_EQ(a.counter(Counter::kDropSource), 1u);
    qa->state = IBV_QPS_RTR;
    net.inject(0, b.path_to(a), cnp, {});
    qa->state = IBV_QPS_RTS;
    EXPECT_EQ(a.counter(Counter::kDropQpState), 1u);
    EXPECT_EQ(a.counter(Counter::kRxCnp), 0u);
}

TEST_F(Congestion, a_cnp_cuts_the_rate_and_the_wire_shows_it) {
    connect();
    for (uint64_t i = 0; i < 100; ++i) post(write(i, 0, 100000, 0));
    wire::Headers cnp{};
    cnp.bth.opcode = wire::kOpcodeCnp;
    cnp.bth.dest_qpn = qa->qpn;
    for (int i = 0; i < 10; ++i) net.inject(0, b.path_to(a), cnp, {});
    EXPECT_TRUE(qa->congestion()->rate.limited());
    const uint64_t rate = qa->congestion()->rate.rate_bytes_per_s();
    EXPECT_LT(rate, 200'000'000u) << "ten cuts by about half each, from 12.5 GB/s";
    const uint64_t start = net.now();
    net.run_for(50 * kMicrosecond);
    EXPECT_LE(sent_between(start, start + 50 * kMicrosecond), rate * 50 / 1'000'000 * 12 / 10 + kSlackBytes);
}

// BX-15: the receiver counts marked requests, and each acts like an acknowledgement with a mark. DCQCN has no part.
TEST_F(Congestion, BX15_MarksThatACnpCountsReduceTheWindow) {
    connect();
    net.egress[0].bytes_per_s = 1'000'000'000;
    net.filter = [](const Observed& p) { return p.from == 0 ? Verdict::kMarkCe : Verdict::kPass; };
    for (uint64_t i = 0; i < 10; ++i) post(write(i, 0, 100000, 0));
    ASSERT_TRUE(run());
    EXPECT_EQ(sent().size(), 10u);
    uint64_t counted = 0;
    for (const Observed& p : net.trace) counted += p.is_cnp() ? p.headers.cnp_requests : 0;
    EXPECT_GT(counted, 100u);
    EXPECT_LE(counted, b.counter(Counter::kRxCe));
    EXPECT_LT(qa->rc()->requester.cwnd(), 32u);
    EXPECT_FALSE(qa->congestion()->rate.limited());
    EXPECT_EQ(a.counter(Counter::kRetransmittedPackets), 0u);
}

// The responder sends READ data by DCQCN's rate, so the requester counts no mark of them.
TEST_F(Congestion, BX15_MarkedReadDataIsNotCounted) {
    connect();
    net.filter = [](const Observed& p) { return p.from == 1 ? Verdict::kMarkCe : Verdict::kPass; };
    post(read(1, 0, 100000, 0));
    ASSERT_TRUE(run());
    ASSERT_GT(cnps(a), 0u);
    for (const Observed& p : net.trace)
        if (p.is_cnp()) EXPECT_EQ(p.headers.cnp_requests, 0u);
    EXPECT_TRUE(qb->congestion()->rate.limited());
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
}

// Requests and READ data of one QP are marked. Each sign has its effect.
TEST_F(Congestion, BX15_MarkedRequestsHideNoMarkedReadData) {
    connect();
    wire::Headers cnp{};
    cnp.bth.opcode = wire::kOpcodeCnp;
    cnp.bth.pkey = wire::kDefaultPkey;
    cnp.bth.dest_qpn = qa->qpn;
    cnp.cnp_requests = 4;
    const uint32_t before = qa->rc()->requester.cwnd_fixed;
    net.inject(0, b.path_to(a), cnp, {});
    EXPECT_EQ(qa->rc()->requester.cwnd_fixed, before - (2 << 16));
    EXPECT_FALSE(qa->congestion()->rate.limited());
    cnp.cnp_responses = 1;
    net.inject(0, b.path_to(a), cnp, {});
    EXPECT_EQ(qa->rc()->requester.cwnd_fixed, before - (4 << 16));
    EXPECT_TRUE(qa->congestion()->rate.limited());
}

// The interval of CNPs ends a burst of marks, whose number would otherwise be told much later.
TEST_F(Congestion, BX15_MarksOfLongAgoAreNotCounted) {
    connect();
    net.filter = [](const Observed& p) { return p.from == 0 ? Verdict::kMarkCe : Verdict::kPass; };
    for (int i = 0; i < 2; ++i) {
        post(write(1, 0, 20 * qa->mtu, 0));
        ASSERT_TRUE(run());
        net.run_for(kSecond);
    }
    std::vector<uint32_t> counted;
    for (const Observed& p : net.trace)
        if (p.is_cnp()) counted.push_back(p.headers.cnp_requests);
    EXPECT_EQ(counted, (std::vector<uint32_t>{1, 1}));
}

TEST_F(Congestion, BX15_OneCnpHalvesTheWindowAtMost) {
    transport::RcRequester requester;
    requester.cwnd_fixed = 64 << 16;
    requester.window_packets = 64;
    requester.on_marks(UINT32_MAX);
    EXPECT_EQ(requester.cwnd(), 32u);
    EXPECT_EQ(requester.window_packets, 32u);
    requester.on_marks(2);
    EXPECT_EQ(requester.cwnd(), 31u);
}

// A packet that was acknowledged and marked does not widen the window, whichever of ACK and CNP comes first.
TEST_F(Congestion, BX15_AMarkedPacketDoesNotWidenTheWindow) {
    connect();
    post(write(1, 0, 4096, 0));
    ASSERT_TRUE(run());
    transport::RcRequester& requester = qa->rc()->requester;
    wire::Headers cnp{};
    cnp.bth.opcode = wire::kOpcodeCnp;
    cnp.bth.pkey = wire::kDefaultPkey;
    cnp.bth.dest_qpn = qa->qpn;
    cnp.cnp_requests = 4;
    net.inject(0, b.path_to(a), cnp, {});
    const uint32_t before = requester.cwnd_fixed;
    post(write(2, 0, 4 * qa->mtu, 0));
    ASSERT_TRUE(run());
    EXPECT_EQ(requester.cwnd_fixed, before);
    post(write(3, 0, 4 * qa->mtu, 0));
    ASSERT_TRUE(run());
    EXPECT_GT(requester.cwnd_fixed, before);
}

// The setting is off, and on as in ConWeave's simulator.
struct NakAsCnp : Pair, ::testing::WithParamInterface<bool> {
    static Config config() {
        Config config;
        config.dcqcn.disorder_is_cnp = GetParam();
        return config;
    }
    NakAsCnp() : Pair(config()) {}
};

TEST_P(NakAsCnp, CutsTheRateIfItIsToldTo) {
    connect();
    net.filter = [lost = false](const Observed& p) mutable {
        if (lost || p.op() != Op::kWriteMiddle) return Verdict::kPass;
        lost = true;
        return Verdict::kDrop;
    };
    post(write(1, 0, 100000, 0));
    ASSERT_TRUE(run());
    EXPECT_EQ(sent().size(), 1u);
    EXPECT_EQ(a.counter(Counter::kRxNakSequence), 1u);
    EXPECT_EQ(a.counter(Counter::kRxCnp), 0u);
    EXPECT_EQ(qa->congestion()->rate.rate_bytes_per_s() != 0, GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, NakAsCnp, ::testing::Bool());

TEST_F(Congestion, the_rate_recovers) {
    connect();
    wire::Headers cnp{};
    cnp.bth.opcode = wire::kOpcodeCnp;
    cnp.bth.dest_qpn = qa->qpn;
    net.inject(0, b.path_to(a), cnp, {});
    net.inject(0, b.path_to(a), cnp, {});
    uint64_t last = qa->congestion()->rate.rate_bytes_per_s();
    for (int step = 0; step < 5; ++step) {
        for (uint64_t i = 0; i < 10; ++i) post(write(i, 0, 100000, 0));
        ASSERT_TRUE(run());
        EXPECT_EQ(sent().size(), 10u);
        EXPECT_GE(qa->congestion()->rate.rate_bytes_per_s(), last);
        last = qa->congestion()->rate.rate_bytes_per_s();
    }
    EXPECT_GT(last, 6'000'000'000u);
}

TEST_F(Congestion, read_data_is_paced_too) {
    connect();
    wire::Headers cnp{};
    cnp.bth.opcode = wire::kOpcodeCnp;
    cnp.bth.dest_qpn = qb->qpn;
    for (int i = 0; i < 10; ++i) net.inject(1, a.path_to(b), cnp, {});
    const uint64_t rate = qb->congestion()->rate.rate_bytes_per_s();
    post(read(1, 0, 100000, 0));
    const uint64_t start = net.now();
    net.run_for(50 * kMicrosecond);
    uint64_t bytes = 0;
    for (const Observed& p : net.trace) bytes += p.from == 1 && p.time >= start ? p.payload_bytes : 0;
    EXPECT_LE(bytes, rate * 50 / 1'000'000 * 12 / 10 + kSlackBytes);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
}

}  // namespace
}  // namespace rove::test
