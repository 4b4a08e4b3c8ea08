// SPDX-License-Identifier: Apache-2.0
// QPs in mp mode: each verb under reordering, and errors in their turn.
#include <set>
#include <vector>

#include "transport/multipath.h"

namespace rove::test {
namespace {

using testing::ElementsAre;

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
    // Eight READs; one answer is lost, so that those behind it wait.
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
    run_briefly();
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
    EXPECT_THAT(statuses(wcs), ElementsAre(IBV_WC_SUCCESS, IBV_WC_SUCCESS, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR));
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
    delay(2);  // delays the WRITE, which needs the window that the SEND ends
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

TEST_F(Multipath, AnInvalidationOfAKeyThatIsNotValidIsRefused) {
    receive(5, 8000, 5000);
    Send s = send(1, 0, 5000);
    s.opcode = IBV_WR_SEND_WITH_INV;
    s.immediate = mb.key();
    post(s);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_REM_ACCESS_ERR);
    EXPECT_THAT(statuses(received()), ElementsAre(IBV_WC_REM_INV_REQ_ERR));
    EXPECT_EQ(qb->state, IBV_QPS_ERR);
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

// A standard RC packet for a QP in mp mode is dropped, and vice versa.
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
