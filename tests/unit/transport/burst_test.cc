// SPDX-License-Identifier: Apache-2.0
// Lists of similar requests, in both modes: they are sent as one burst, which ends at a request that differs.
#include "transport/pair.h"

namespace rove::test {
namespace {

using ::testing::ElementsAre;

constexpr size_t kEach = 40;  // bytes

struct Burst : Pair, ::testing::WithParamInterface<bool> {
    Burst() { connect({.depth = 512, .multipath = GetParam()}); }
    // Returns one of a list of WRITEs with a target of its own.
    Send nth(size_t i, uint32_t flags = 0) const {
        Send s = write(i, i * kEach, kEach, 2 * i * kEach);
        s.flags = flags;
        return s;
    }
    bool arrived(size_t i) { return mb.bytes(2 * i * kEach, kEach) == ma.bytes(i * kEach, kEach); }
};
INSTANTIATE_TEST_SUITE_P(Mode, Burst, ::testing::Bool(), [](const auto& info) { return info.param ? "mp" : "rc"; });

TEST_P(Burst, AreEachAPacketAndCompleteInOrder) {
    const auto between = mb.bytes(kEach, kEach);
    for (size_t i = 0; i < 100; ++i) post(nth(i, i % 3 == 2 ? IBV_SEND_SIGNALED : 0));
    post(nth(100, IBV_SEND_SIGNALED));
    ASSERT_TRUE(run());
    std::vector<uint64_t> signaled;
    for (size_t i = 2; i < 100; i += 3) signaled.push_back(i);
    signaled.push_back(100);
    EXPECT_EQ(ids(sent()), signaled);
    for (size_t i = 0; i <= 100; ++i) EXPECT_TRUE(arrived(i)) << i;
    EXPECT_EQ(mb.bytes(kEach, kEach), between);
    EXPECT_EQ(packets(a, Op::kWriteOnly), 101u);
    EXPECT_GT(a.sink.in_series, 90u);  // a single request left over is sent alone
}

TEST_P(Burst, GoBeyondTheWindow) {
    for (size_t i = 0; i < 500; ++i) post(nth(i, i == 499 ? IBV_SEND_SIGNALED : 0));
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(sent()), ElementsAre(499));
    for (size_t i = 0; i < 500; ++i) EXPECT_TRUE(arrived(i)) << i;
    EXPECT_EQ(packets(a, Op::kWriteOnly), 500u);
}

TEST_P(Burst, InlineAndWithImmediate) {
    for (size_t i = 0; i < 9; ++i) receive(i, 0, 0);
    for (size_t i = 0; i < 9; ++i) {
        Send s = write_imm(i, i * kEach, kEach, 2 * i * kEach, static_cast<uint32_t>(1000 + i));
        s.flags = IBV_SEND_INLINE;
        s.sges[0].addr = reinterpret_cast<uint64_t>(ma.data() + i * kEach);
        post(s);
    }
    ASSERT_TRUE(run());
    const auto got = received();
    ASSERT_EQ(got.size(), 9u);
    EXPECT_EQ(a.sink.in_series, 9u);
    for (size_t i = 0; i < 9; ++i) {
        EXPECT_TRUE(arrived(i)) << i;
        EXPECT_EQ(ntohl(got[i].imm_data), 1000 + i);
    }
}

TEST_P(Burst, OfTwoRegionsAndLengths) {
    Buffer& other = a.buffer(4096);
    other.fill(7);
    for (size_t i = 0; i < 8; ++i) {
        Send s = nth(i, IBV_SEND_SIGNALED);
        if (i % 4 >= 2) s.sges = {other.sge(i * kEach, kEach)};
        if (i >= 6) s.sges[0].length = kEach / 2;
        post(s);
    }
    const auto rest = mb.bytes((2 * 7 * kEach) + kEach / 2, kEach / 2);
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(sent()), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    for (size_t i = 0; i < 8; ++i) {
        Buffer& from = i % 4 >= 2 ? other : ma;
        const size_t bytes = i >= 6 ? kEach / 2 : kEach;
        EXPECT_EQ(mb.bytes(2 * i * kEach, bytes), from.bytes(i * kEach, bytes)) << i;
    }
    EXPECT_EQ(mb.bytes((2 * 7 * kEach) + kEach / 2, kEach / 2), rest);
}

TEST_P(Burst, OneWhoseDataMayNotBeReadFailsInItsTurn) {
    for (const bool key : {true, false}) {
        SCOPED_TRACE(key ? "key" : "bounds");
        connect({.depth = 512, .multipath = GetParam()});
        for (size_t i = 0; i < 6; ++i) {
            Send s = nth(i);
            if (i == 3 && key) s.sges[0].lkey += 256;
            if (i == 3 && !key) s.sges[0].addr = ma.address(kBufferBytes - kEach + 1);
            post(s);
        }
        ASSERT_TRUE(run());
        const auto wcs = sent();
        EXPECT_THAT(ids(wcs), ElementsAre(3, 4, 5));
        EXPECT_THAT(statuses(wcs), ElementsAre(IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR));
        for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(arrived(i)) << i;
    }
}

TEST_P(Burst, AreSentAgain) {
    net.egress[0].loss = 0.1;
    for (size_t i = 0; i < 400; ++i) post(nth(i, IBV_SEND_SIGNALED));
    ASSERT_TRUE(run());
    EXPECT_EQ(sent().size(), 400u);
    for (size_t i = 0; i < 400; ++i) EXPECT_TRUE(arrived(i)) << i;
}

// This keeps the window moving; in mp each packet is acknowledged.
TEST_F(WholeWindow, RequestsOfABurstAskForAcknowledgements) {
    connect();
    for (size_t i = 0; i < 100; ++i) {
        Send s = write(i, i * kEach, kEach, i * kEach);
        s.flags = i == 10 ? IBV_SEND_SIGNALED : 0;
        post(s);
    }
    ASSERT_TRUE(run());
    std::vector<size_t> asked;
    for (size_t i = 0, seen = 0; i < net.trace.size(); ++i) {
        if (net.trace[i].op() != Op::kWriteOnly) continue;
        if (net.trace[i].headers.bth.ack_req) asked.push_back(seen);
        ++seen;
    }
    EXPECT_THAT(asked, ElementsAre(10, 42, 74, 99));
}

// At the end of a window no other packet would ask.
TEST(BurstInASmallWindow, TheLastAsksForAnAcknowledgement) {
    struct Small : Pair {
        Small() : Pair(Config{.window_packets = 8}) { connect(); }
        void TestBody() override {}
    } pair;
    for (size_t i = 0; i < 40; ++i) {
        Send s = pair.write(i, i * kEach, kEach, i * kEach);
        s.flags = 0;
        pair.post(s);
    }
    ASSERT_TRUE(pair.run());
    std::vector<size_t> asked;
    size_t seen = 0;
    for (const Observed& p : pair.net.trace) {
        if (p.op() != Op::kWriteOnly) continue;
        if (p.headers.bth.ack_req) asked.push_back(seen);
        ++seen;
    }
    EXPECT_THAT(asked, ElementsAre(7, 15, 23, 31, 39));
    EXPECT_EQ(pair.a.engine.counters()[transport::Counter::kTailProbes], 0u);
    EXPECT_EQ(pair.a.sink.in_series, 40u);
}

}  // namespace
}  // namespace rove::test
