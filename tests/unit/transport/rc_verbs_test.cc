// SPDX-License-Identifier: Apache-2.0
// RC on a network without loss: every operation, every special size of segmentation, shapes of data.
#include "transport/pair.h"

namespace rove::test {
namespace {

using ::testing::ElementsAre;

struct RcSizes : Pair, ::testing::WithParamInterface<uint32_t> {
    uint32_t mtu() const { return GetParam(); }
    std::vector<uint32_t> sizes() const {
        return {0, 1, 2, 3, 4, mtu() - 1, mtu(), mtu() + 1, 2 * mtu(), 5 * mtu() + 3, 20 * mtu() + 1};
    }
    void SetUp() override {
        QpOptions options;
        options.mtu = mtu();
        connect(options);
    }
    uint32_t packets_of(uint32_t bytes) const { return std::max(1u, (bytes + mtu() - 1) / mtu()); }
};
INSTANTIATE_TEST_SUITE_P(Mtu, RcSizes, ::testing::Values(256, 512, 1024, 2048, 4096));

TEST_P(RcSizes, send) {
    for (uint32_t bytes : sizes()) {
        mb.fill(3);
        const auto beyond = mb.bytes(7 + bytes, 100);
        receive(50, 7, bytes + 100);
        post(send(1, 5, bytes));
        ASSERT_TRUE(run());
        expect_sent(IBV_WC_SUCCESS);
        const auto got = received();
        ASSERT_EQ(got.size(), 1u) << bytes;
        EXPECT_EQ(got[0].status, IBV_WC_SUCCESS);
        EXPECT_EQ(got[0].opcode, IBV_WC_RECV);
        EXPECT_EQ(got[0].wr_id, 50u);
        EXPECT_EQ(got[0].byte_len, bytes);
        EXPECT_EQ(got[0].wc_flags, 0u);
        EXPECT_EQ(got[0].qp_num, qb->qpn);
        EXPECT_EQ(mb.bytes(7, bytes), ma.bytes(5, bytes));
        EXPECT_EQ(mb.bytes(7 + bytes, 100), beyond);
        EXPECT_EQ(net.trace.size(), packets_of(bytes) + 1) << "one ACK for a message";
        net.trace.clear();
    }
}

TEST_P(RcSizes, send_with_immediate) {
    for (uint32_t bytes : sizes()) {
        receive(50, 7, bytes);
        Send s = send(1, 5, bytes);
        s.opcode = IBV_WR_SEND_WITH_IMM;
        s.immediate = 0xCAFE0001;
        post(s);
        ASSERT_TRUE(run());
        expect_sent(IBV_WC_SUCCESS);
        const auto got = received();
        ASSERT_EQ(got.size(), 1u);
        EXPECT_EQ(got[0].opcode, IBV_WC_RECV);
        EXPECT_EQ(got[0].byte_len, bytes);
        EXPECT_EQ(got[0].wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
        EXPECT_EQ(ntohl(got[0].imm_data), 0xCAFE0001u);
        EXPECT_EQ(mb.bytes(7, bytes), ma.bytes(5, bytes));
    }
}

TEST_P(RcSizes, write) {
    for (uint32_t bytes : sizes()) {
        mb.fill(3);
        const auto before = mb.bytes(0, 9), beyond = mb.bytes(9 + bytes, 100);
        post(write(1, 5, bytes, 9));
        ASSERT_TRUE(run());
        expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
        EXPECT_EQ(mb.bytes(9, bytes), ma.bytes(5, bytes));
        EXPECT_EQ(mb.bytes(0, 9), before);
        EXPECT_EQ(mb.bytes(9 + bytes, 100), beyond);
        EXPECT_TRUE(received().empty());
        EXPECT_EQ(net.trace.size(), packets_of(bytes) + 1);
        net.trace.clear();
    }
}

TEST_P(RcSizes, write_with_immediate) {
    for (uint32_t bytes : sizes()) {
        mb.fill(3);
        receive(51, 0, 0);
        post(write_imm(1, 5, bytes, 9, 77));
        ASSERT_TRUE(run());
        expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
        const auto got = received();
        ASSERT_EQ(got.size(), 1u);
        EXPECT_EQ(got[0].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        EXPECT_EQ(got[0].wr_id, 51u);
        EXPECT_EQ(got[0].byte_len, bytes);
        EXPECT_EQ(got[0].wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
        EXPECT_EQ(ntohl(got[0].imm_data), 77u);
        EXPECT_EQ(mb.bytes(9, bytes), ma.bytes(5, bytes));
    }
}

TEST_P(RcSizes, read) {
    for (uint32_t bytes : sizes()) {
        ma.fill(1);
        const auto before = ma.bytes(0, 9), beyond = ma.bytes(9 + bytes, 100);
        post(read(1, 9, bytes, 5));
        ASSERT_TRUE(run());
        const auto wcs = sent();
        ASSERT_EQ(wcs.size(), 1u);
        EXPECT_EQ(wcs[0].status, IBV_WC_SUCCESS);
        EXPECT_EQ(wcs[0].opcode, IBV_WC_RDMA_READ);
        EXPECT_EQ(wcs[0].byte_len, bytes);
        EXPECT_EQ(ma.bytes(9, bytes), mb.bytes(5, bytes));
        EXPECT_EQ(ma.bytes(0, 9), before);
        EXPECT_EQ(ma.bytes(9 + bytes, 100), beyond);
        EXPECT_EQ(net.trace.size(), packets_of(bytes) + 1);
        net.trace.clear();
    }
}

struct RcVerbs : Pair {};

TEST_F(RcVerbs, over_ipv6) {
    connect({}, {}, true);
    receive(9, 0, 5000);
    post(write(1, 0, 3000, 6000));
    post(send(2, 100, 5000));
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_SUCCESS, IBV_WC_SUCCESS));
    EXPECT_EQ(mb.bytes(0, 5000), ma.bytes(100, 5000));
    EXPECT_EQ(mb.bytes(6000, 3000), ma.bytes(0, 3000));
}

TEST_F(RcVerbs, atomics) {
    connect();
    set_word(mb, 64, 5);
    post(compare_swap(1, 0, 64, 5, 0x1122334455667788));
    ASSERT_TRUE(run());
    auto wcs = sent();
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_EQ(wcs[0].opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(wcs[0].byte_len, 8u);
    EXPECT_EQ(word(ma, 0), 5u);
    EXPECT_EQ(word(mb, 64), 0x1122334455667788u);
    post(compare_swap(2, 8, 64, 5, 6));
    ASSERT_TRUE(run());
    EXPECT_EQ(word(ma, 8), 0x1122334455667788u);
    EXPECT_EQ(word(mb, 64), 0x1122334455667788u) << "a compare that fails stores nothing";
    post(fetch_add(3, 16, 64, 0x10));
    ASSERT_TRUE(run());
    wcs = sent();
    ASSERT_EQ(wcs.size(), 2u);
    EXPECT_EQ(wcs[1].opcode, IBV_WC_FETCH_ADD);
    EXPECT_EQ(word(ma, 16), 0x1122334455667788u);
    EXPECT_EQ(word(mb, 64), 0x1122334455667798u);
    set_word(mb, 64, UINT64_MAX);
    post(fetch_add(4, 24, 64, 3));
    ASSERT_TRUE(run());
    EXPECT_EQ(word(mb, 64), 2u) << "addition wraps";
}

TEST_F(RcVerbs, requests_leave_though_the_peer_reads_all_the_time) {
    read_beside_a_reader({});
}

TEST_F(RcVerbs, both_directions_at_once) {
    connect();
    for (uint64_t i = 0; i < 8; ++i) {
        post(write(i, 0, 5000, 40000 + 5000 * i));
        Send back{.wr_id = 100 + i, .opcode = IBV_WR_RDMA_WRITE, .sges = {mb.sge(0, 3000)}};
        back.remote_addr = ma.address(40000 + 3000 * i);
        back.rkey = ma.key();
        ASSERT_TRUE(b.post(*qb, back));
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(sent().size(), 8u);
    EXPECT_EQ(b.poll(*qb->send_cq).size(), 8u);
    for (uint64_t i = 0; i < 8; ++i) {
        EXPECT_EQ(mb.bytes(40000 + 5000 * i, 5000), ma.bytes(0, 5000));
        EXPECT_EQ(ma.bytes(40000 + 3000 * i, 3000), mb.bytes(0, 3000));
    }
}

TEST_F(RcVerbs, gather_and_scatter_lists_with_empty_entries) {
    connect();
    Buffer& other = b.buffer(4000);
    ASSERT_TRUE(b.post_recv(
        *qb, 1,
        {mb.sge(0, 0), mb.sge(10, 700), other.sge(3, 0), other.sge(5, 900), mb.sge(2000, 1), mb.sge(3000, 5000)}));
    Send s{.wr_id = 2, .sges = {ma.sge(50, 1), ma.sge(0, 0), ma.sge(100, 2000), ma.sge(5000, 1023), ma.sge(9000, 0)}};
    post(s);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS);
    std::vector<uint8_t> source = ma.bytes(50, 1), got = mb.bytes(10, 700);
    for (const auto& part : {ma.bytes(100, 2000), ma.bytes(5000, 1023)})
        source.insert(source.end(), part.begin(), part.end());
    for (const auto& part : {other.bytes(5, 900), mb.bytes(2000, 1), mb.bytes(3000, 3024 - 1601)})
        got.insert(got.end(), part.begin(), part.end());
    EXPECT_EQ(source, got);
    const auto wcs = received();
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_EQ(wcs[0].byte_len, 3024u);

    Send r{.wr_id = 3, .opcode = IBV_WR_RDMA_READ, .sges = {ma.sge(20000, 1500), ma.sge(0, 0), ma.sge(30000, 3)}};
    r.remote_addr = mb.address(40000);
    r.rkey = mb.key();
    post(r);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    EXPECT_EQ(ma.bytes(20000, 1500), mb.bytes(40000, 1500));
    EXPECT_EQ(ma.bytes(30000, 3), mb.bytes(41500, 3));
}

TEST_F(RcVerbs, an_atomics_answer_is_scattered) {
    connect();
    set_word(mb, 0, 0x0807060504030201);
    Send s = fetch_add(1, 0, 0, 1);
    s.sges = {ma.sge(100, 3), ma.sge(200, 0), ma.sge(300, 5)};
    post(s);
    ASSERT_TRUE(run());
    EXPECT_THAT(ma.bytes(100, 3), ElementsAre(1, 2, 3));
    EXPECT_THAT(ma.bytes(300, 5), ElementsAre(4, 5, 6, 7, 8));
}

TEST_F(RcVerbs, inline_data_is_taken_at_posting) {
    connect();
    uint8_t text[200];
    for (size_t i = 0; i < sizeof text; ++i) text[i] = static_cast<uint8_t>(i);
    Send s{.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
    s.sges = {{reinterpret_cast<uint64_t>(text), 50, 0}, {reinterpret_cast<uint64_t>(text + 50), 150, 0}};
    s.remote_addr = mb.address();
    s.rkey = mb.key();
    post(s);
    std::memset(text, 0, sizeof text);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    for (size_t i = 0; i < sizeof text; ++i) ASSERT_EQ(mb[i], i);
}

TEST_F(RcVerbs, unsignaled_requests_complete_silently) {
    connect();
    for (uint64_t i = 0; i < 10; ++i) {
        Send s = write(i, 0, 100, 0);
        s.flags = i % 4 == 3 ? IBV_SEND_SIGNALED : 0;
        post(s);
    }
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(sent()), ElementsAre(3, 7));
    EXPECT_EQ(qa->sq.room(), 128u);
}

// The port takes a frame between our two checks. A QP that found it full has nothing in flight that would wake it.
TEST_F(RcVerbs, who_found_the_port_full_goes_on_though_it_is_not_any_more) {
    connect();
    for (int refused = 1; refused <= 8; ++refused) {
        int asked = 0;
        a.sink.room = b.sink.room = [&] { return ++asked != refused; };
        post(write(1, 0, 3000, 0));
        post(fetch_add(2, 0, 0, 1));
        net.pump();
        net.pump();
        ASSERT_TRUE(run());
        EXPECT_THAT(ids(sent()), ElementsAre(1, 2)) << "refused at " << refused;
    }
}

// A message that is partly sent, without a packet that asks for an ACK, must not wait for the turns of all others: it
// would time out, again and again without being sent, behind thousands of them.
TEST_F(WholeWindow, a_turn_that_was_cut_short_goes_on_before_the_next) {
    QpOptions options;
    std::vector<QueuePair*> qps;
    for (int i = 0; i < 5; ++i) qps.push_back(&test::connect(net, a, b, options, options).a);
    for (const bool full_sink : {false, true}) {
        const size_t before = net.trace.size();
        int asked = 0;
        if (full_sink) a.sink.room = [&] { return ++asked % 7 != 0; };
        for (QueuePair* qp : qps) ASSERT_TRUE(a.post(*qp, write(1, 0, 40 * 1024, 0)));
        while (a.engine.transmit(net.now(), full_sink ? 1000 : 5) > 0) {
        }
        std::vector<uint32_t> turns;
        for (size_t i = before; i < net.trace.size(); ++i) {
            const uint32_t to = net.trace[i].headers.bth.dest_qpn;
            if (turns.empty() || turns.back() != to) turns.push_back(to);
        }
        EXPECT_EQ(turns.size(), 10u) << "each 32 packets, then each 8";
        ASSERT_TRUE(run());
    }
}

// Behind a peer that takes nothing, others continue: also QPs of lower priority, and QPs of every type.
TEST_F(WholeWindow, a_path_that_takes_nothing_holds_up_no_other) {
    QpOptions options;
    std::vector<QueuePair*> blocked, others;
    for (int i = 0; i < 100; ++i) blocked.push_back(&test::connect(net, a, b, options, options).a);
    for (int i = 0; i < 3; ++i) others.push_back(&test::connect(net, a, b, options, options).a);
    for (QueuePair* qp : blocked) {
        qp->path.outlet = 1;
        a.engine.set_priority(*qp, 0);
    }
    a.sink.takes = [](const Path& path) { return path.outlet == 0; };
    for (const auto& qps : {blocked, others})
        for (QueuePair* qp : qps) ASSERT_TRUE(a.post(*qp, write(1, 0, 40 * 1024, 0)));
    while (a.engine.transmit(net.now(), 64) > 0) {
    }
    EXPECT_EQ(net.trace.size(), 3 * 40u) << "of the others, all";
    EXPECT_TRUE(a.engine.has_active()) << "and these will be tried again";
    a.sink.takes = [](const Path&) { return true; };
    while (a.engine.transmit(net.now(), 64) > 0) {
    }
    EXPECT_EQ(net.trace.size(), 103 * 40u);
    ASSERT_TRUE(run());
}

TEST_F(RcVerbs, sq_sig_all) {
    QpOptions options;
    options.sq_sig_all = true;
    connect(options);
    Send s = write(7, 0, 100, 0);
    s.flags = 0;
    post(s);
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(sent()), ElementsAre(7));
}

TEST_F(RcVerbs, send_queue_order_is_completion_order) {
    connect();
    for (uint64_t i = 0; i < 100; ++i) {
        switch (i % 4) {
            case 0:
                post(write(i, 0, 3000, 0));
                break;
            case 1:
                post(read(i, 50000, 5000, 0));
                break;
            case 2:
                post(fetch_add(i, 60000, 64, 1));
                break;
            default:
                post(write(i, 0, 1, 0));
                break;
        }
    }
    ASSERT_TRUE(run());
    const auto wcs = sent();
    ASSERT_EQ(wcs.size(), 100u);
    for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(wcs[i].wr_id, i);
}

TEST_F(RcVerbs, solicited_event_flag_reaches_the_receiver) {
    connect();
    receive(1, 0, 100);
    receive(2, 0, 100);
    receive(3, 0, 0);
    qb->recv_cq->arm(true);
    post(send(1, 0, 10));
    ASSERT_TRUE(run());
    EXPECT_TRUE(b.sink.notified.empty());
    Send s = send(2, 0, 10);
    s.flags |= IBV_SEND_SOLICITED;
    post(s);
    ASSERT_TRUE(run());
    EXPECT_EQ(b.sink.notified.size(), 1u);
    qb->recv_cq->arm(true);
    s = write_imm(3, 0, 5000, 0, 1);
    s.flags |= IBV_SEND_SOLICITED;
    post(s);
    ASSERT_TRUE(run());
    EXPECT_EQ(b.sink.notified.size(), 2u);
}

TEST_F(RcVerbs, send_with_invalidate_takes_a_window_away) {
    connect();
    Window window(IBV_MW_TYPE_2, qb->pd);
    b.bind_window(window, mb, *qb);
    Send w = write(1, 0, 100, 0);
    w.rkey = window.rkey();
    post(w);
    receive(5, 0, 100);
    Send s = send(2, 0, 100);
    s.opcode = IBV_WR_SEND_WITH_INV;
    s.immediate = window.rkey();
    post(s);
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_SUCCESS, IBV_WC_SUCCESS));
    const auto got = received();
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(got[0].wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
    EXPECT_EQ(got[0].invalidated_rkey, window.rkey());
    EXPECT_FALSE(window.is_bound());
    w.wr_id = 3;
    post(w);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_REM_ACCESS_ERR);
    b.memory.remove(window);
}

TEST_F(RcVerbs, local_invalidate_in_its_turn) {
    connect();
    Window window(IBV_MW_TYPE_2, qa->pd);
    a.bind_window(window, ma, *qa);
    post(write(1, 0, 5000, 0));
    Send inv{.wr_id = 2, .opcode = IBV_WR_LOCAL_INV};
    inv.immediate = window.rkey();
    post(inv);
    post(write(3, 0, 5000, 0));
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(sent()), ElementsAre(1, 2, 3));
    EXPECT_FALSE(window.is_bound());
    a.memory.remove(window);
}

TEST_F(RcVerbs, a_long_message_crosses_the_window) {
    Config config;
    QpOptions options;
    options.mtu = 256;
    connect(options);
    ma.fill(9);
    post(write(1, 0, 120000, 0));  // 469 packets, window 256
    post(read(2, 0, 120000, 0));
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_SUCCESS, IBV_WC_SUCCESS));
    EXPECT_EQ(mb.bytes(0, 120000), ma.bytes(0, 120000));
}

TEST_F(RcVerbs, a_queue_pair_talks_to_another_on_its_own_host) {
    QpOptions options;
    QueuePair& left = a.create(options);
    QueuePair& right = a.create(options);
    a.bring_up(left, options, a.path_to(a), right.qpn, options.psn, net.now());
    a.bring_up(right, options, a.path_to(a), left.qpn, options.psn, net.now());
    Send s{.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sges = {ma.sge(0, 3000)}};
    s.remote_addr = ma.address(10000);
    s.rkey = ma.key();
    ASSERT_TRUE(a.post(left, s));
    ASSERT_TRUE(run());
    EXPECT_EQ(a.poll(*left.send_cq).size(), 1u);
    EXPECT_EQ(ma.bytes(10000, 3000), ma.bytes(0, 3000));
}

}  // namespace
}  // namespace rove::test
