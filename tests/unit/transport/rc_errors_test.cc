// SPDX-License-Identifier: Apache-2.0
// Errors of RC requests, as both ends see them; and packets that a correct peer would not send.
#include "transport/pair.h"

namespace rove::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

struct RcErrors : Pair {
    // Expects the request to fail with `status` here, and the responder to NAK with `syndrome`, flush its receives and
    // raise `event`.
    void fails(const Send& request, ibv_wc_status status, uint8_t syndrome, std::optional<ibv_event_type> event) {
        connect();
        const auto before = mb.bytes(0, mb.size);
        net.trace.clear();
        receive(70, 0, 100);
        post(request);
        post(write(99, 0, 10, 0));
        ASSERT_TRUE(run());
        const auto wcs = sent();
        EXPECT_THAT(statuses(wcs), ElementsAre(status, IBV_WC_WR_FLUSH_ERR));
        EXPECT_THAT(ids(wcs), ElementsAre(request.wr_id, 99));
        EXPECT_THAT(syndromes(b), Contains(syndrome));
        EXPECT_EQ(qa->state, IBV_QPS_ERR);
        EXPECT_EQ(qb->state, IBV_QPS_ERR);
        EXPECT_THAT(statuses(received()), ElementsAre(IBV_WC_WR_FLUSH_ERR));
        if (event) {
            EXPECT_EQ(b.sink.count(*event, qb), 1);
        }
        EXPECT_EQ(mb.bytes(0, mb.size), before);
    }
};

TEST_F(RcErrors, write_with_an_unknown_key) {
    Send s = write(1, 0, 100, 0);
    s.rkey = 0x12345678;
    fails(s, IBV_WC_REM_ACCESS_ERR, 0x62, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(RcErrors, access_beyond_the_bounds) {
    fails(write(1, 0, 3000, kBufferBytes - 2999), IBV_WC_REM_ACCESS_ERR, 0x62, IBV_EVENT_QP_ACCESS_ERR);
    fails(read(1, 0, 3000, kBufferBytes - 2999), IBV_WC_REM_ACCESS_ERR, 0x62, IBV_EVENT_QP_ACCESS_ERR);
    Send before = write(1, 0, 10, 0);
    before.remote_addr -= 1;
    fails(before, IBV_WC_REM_ACCESS_ERR, 0x62, IBV_EVENT_QP_ACCESS_ERR);
    Send wraps = write(1, 0, 100, 0);
    wraps.remote_addr = UINT64_MAX - 10;
    fails(wraps, IBV_WC_REM_ACCESS_ERR, 0x62, IBV_EVENT_QP_ACCESS_ERR);
    fails(fetch_add(1, 0, kBufferBytes, 1), IBV_WC_REM_ACCESS_ERR, 0x62, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(RcErrors, access_that_the_region_does_not_grant) {
    Buffer& readable = b.buffer(4096, IBV_ACCESS_REMOTE_READ);
    Send s = write(1, 0, 100, 0);
    s.remote_addr = readable.address();
    s.rkey = readable.key();
    fails(s, IBV_WC_REM_ACCESS_ERR, 0x62, IBV_EVENT_QP_ACCESS_ERR);
    s.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    s.sges = {ma.sge(0, 8)};
    fails(s, IBV_WC_REM_ACCESS_ERR, 0x62, IBV_EVENT_QP_ACCESS_ERR);
    Buffer& writable = b.buffer(4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    s = read(1, 0, 100, 0);
    s.remote_addr = writable.address();
    s.rkey = writable.key();
    fails(s, IBV_WC_REM_ACCESS_ERR, 0x62, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(RcErrors, a_region_of_another_protection_domain) {
    Buffer& foreign = b.buffer(4096, kAllAccess, this);
    Send s = write(1, 0, 100, 0);
    s.remote_addr = foreign.address();
    s.rkey = foreign.key();
    fails(s, IBV_WC_REM_ACCESS_ERR, 0x62, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(RcErrors, a_misaligned_atomic) {
    fails(fetch_add(1, 0, 4, 1), IBV_WC_REM_INV_REQ_ERR, 0x61, IBV_EVENT_QP_REQ_ERR);
}

TEST_F(RcErrors, what_the_queue_pair_does_not_grant) {
    for (auto make : {&RcErrors::read, &RcErrors::write}) {
        QpOptions options;
        options.access = IBV_ACCESS_LOCAL_WRITE;
        connect(options);
        post((this->*make)(1, 0, 100, 0));
        ASSERT_TRUE(run());
        expect_sent(IBV_WC_REM_INV_REQ_ERR);
        EXPECT_EQ(qb->state, IBV_QPS_ERR);
    }
}

TEST_F(RcErrors, no_bytes_need_no_key) {
    connect();
    Send s = write(1, 0, 0, 0);
    s.rkey = 0;
    post(s);
    s.opcode = IBV_WR_RDMA_READ;
    post(s);
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_SUCCESS, IBV_WC_SUCCESS));
}

TEST_F(RcErrors, a_send_longer_than_its_receive) {
    connect();
    const auto beyond = mb.bytes(2000, 3000);
    receive(5, 0, 2000);
    receive(6, 8000, 2000);
    post(send(1, 0, 3000));
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_REM_INV_REQ_ERR);
    const auto got = received();
    EXPECT_THAT(ids(got), ElementsAre(5, 6));
    EXPECT_THAT(statuses(got), ElementsAre(IBV_WC_LOC_LEN_ERR, IBV_WC_WR_FLUSH_ERR));
    EXPECT_THAT(syndromes(b), Contains(0x61));
    EXPECT_EQ(mb.bytes(2000, 3000), beyond);
}

// IBTA 11.6.2, local access error: the receive that the immediate has taken is not just flushed.
TEST_F(RcErrors, the_receive_of_an_immediate_fails_with_its_write) {
    for (const bool multipath : {false, true}) {
        for (const size_t bytes : {100u, 5000u}) {
            QpOptions options;
            options.multipath = multipath;
            connect(options);
            receive(5, 0, 0);
            receive(6, 0, 0);
            Send s = write_imm(1, 0, bytes, 0, 7);
            if (bytes == 100) {
                s.rkey ^= 0x100;
                post(s);
                ASSERT_TRUE(run());
                expect_sent(IBV_WC_REM_ACCESS_ERR);
                EXPECT_THAT(statuses(received()), ElementsAre(IBV_WC_LOC_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR));
            } else {
                post(s);
                ASSERT_TRUE(run());
                expect_sent(IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
                EXPECT_THAT(statuses(received()), ElementsAre(IBV_WC_SUCCESS));
            }
        }
    }
}

// IBTA 9.7.5.2.8: the packets behind it provoke no sequence NAK, so the requester does not return before its RNR timer.
TEST_F(RcErrors, after_an_rnr_nak_the_responder_is_silent_until_the_packet_comes_again) {
    QpOptions options;
    options.min_rnr_timer = 14;  // 1.28 ms
    connect(options);
    net.trace.clear();
    post(send(1, 0, 8000));
    post(write(2, 0, 8000, 0));
    net.run_for(kMillisecond);
    EXPECT_THAT(syndromes(b), ElementsAre(wire::kSyndromeRnrNak | 14));
    receive(5, 0, 8000);
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_SUCCESS, IBV_WC_SUCCESS));
    EXPECT_THAT(syndromes(b), Not(Contains(wire::kSyndromeNakSequence)));
    EXPECT_EQ(a.counter(Counter::kResentNack), 0u);
}

// After a failed bind, this QP is in error, and no other.
TEST_F(RcErrors, a_bind_that_fails_ends_one_queue_pair) {
    connect();
    Connection other = test::connect(net, a, b, {}, {});
    transport::Window window(IBV_MW_TYPE_2, qa->pd);
    ASSERT_TRUE(a.memory.insert(window));
    transport::SendWqe& wqe = qa->sq.at(qa->sq.produced());
    wqe = {};
    wqe.wr_id = 1;
    wqe.opcode = IBV_WR_BIND_MW;
    wqe.send_flags = IBV_SEND_SIGNALED;
    wqe.window = window.key;
    wqe.immediate = window.key;
    wqe.rkey = 0xBAD00;  // no region
    wqe.swap = 100;
    qa->sq.publish(1);
    a.engine.doorbell(*qa);
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_MW_BIND_ERR));
    EXPECT_EQ(qa->state, IBV_QPS_ERR);
    ASSERT_TRUE(a.post(other.a, write(2, 0, 1000, 0)));
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(a.poll(*other.a.send_cq)), ElementsAre(IBV_WC_SUCCESS));
    a.memory.remove(window);
}

TEST_F(RcErrors, a_receive_into_memory_that_is_not_writable) {
    connect();
    Buffer& constant = b.buffer(4096, IBV_ACCESS_REMOTE_READ);
    ASSERT_TRUE(b.post_recv(*qb, 5, {constant.sge(0, 1000)}));
    const auto before = constant.bytes(0, 4096);
    post(send(1, 0, 100));
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_REM_OP_ERR);
    EXPECT_THAT(statuses(received()), ElementsAre(IBV_WC_LOC_PROT_ERR));
    EXPECT_EQ(constant.bytes(0, 4096), before);
}

TEST_F(RcErrors, invalidate_of_what_cannot_be_invalidated) {
    for (uint32_t key : {0x12345678u, mb.key()}) {
        connect();
        receive(5, 0, 1000);
        Send s = send(1, 0, 100);
        s.opcode = IBV_WR_SEND_WITH_INV;
        s.immediate = key;
        post(s);
        ASSERT_TRUE(run());
        expect_sent(IBV_WC_REM_ACCESS_ERR);
        EXPECT_THAT(statuses(received()), ElementsAre(IBV_WC_REM_INV_REQ_ERR));
        EXPECT_EQ(qb->state, IBV_QPS_ERR);
        EXPECT_EQ(qa->state, IBV_QPS_ERR);
        EXPECT_TRUE(mb.region.valid);
    }
}

TEST_F(RcErrors, a_local_protection_error_waits_for_its_turn) {
    for (size_t bytes : {100u, 5000u}) {
        connect();
        net.trace.clear();
        post(write(1, 0, 5000, 0));
        post(read(2, 20000, 5000, 0));
        Send bad = write(3, 0, bytes, 0);
        bad.sges[0].lkey ^= 0x100;
        post(bad);
        post(write(4, 0, 100, 0));
        ASSERT_TRUE(run());
        const auto wcs = sent();
        EXPECT_THAT(ids(wcs), ElementsAre(1, 2, 3, 4));
        EXPECT_THAT(statuses(wcs),
                    ElementsAre(IBV_WC_SUCCESS, IBV_WC_SUCCESS, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR));
        EXPECT_EQ(qa->state, IBV_QPS_ERR);
        EXPECT_EQ(qb->state, IBV_QPS_RTS);
    }
}

TEST_F(RcErrors, a_response_into_memory_that_is_not_writable) {
    connect();
    Buffer& constant = a.buffer(4096, IBV_ACCESS_REMOTE_READ);
    Send s = read(1, 0, 100, 0);
    s.sges = {constant.sge(0, 100)};
    post(s);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_LOC_PROT_ERR);
}

TEST_F(RcErrors, memory_that_goes_away_while_a_request_waits) {
    connect();
    Buffer& gone = a.buffer(4096);
    net.filter = [](const Observed& p) { return p.from == 1 ? Verdict::kDrop : Verdict::kPass; };
    Send s = write(1, 0, 0, 0);
    s.sges = {gone.sge(0, 3000)};
    post(s);
    net.run_for(10 * kMicrosecond);
    a.memory.remove(gone.region);
    net.run_for(5 * kMillisecond);
    net.filter = nullptr;
    ASSERT_TRUE(run());
    const auto wcs = sent();
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_THAT(wcs[0].status, ::testing::AnyOf(IBV_WC_LOC_PROT_ERR, IBV_WC_SUCCESS));
    EXPECT_TRUE(a.memory.insert(gone.region));
}

TEST_F(RcErrors, memory_that_goes_away_while_it_is_read) {
    connect();
    Buffer& gone = b.buffer(20000);
    net.egress[1].bytes_per_s = 100'000'000;
    net.egress[1].room_packets = 2;
    Send s = read(1, 0, 20000, 0);
    s.remote_addr = gone.address();
    s.rkey = gone.key();
    post(s);
    net.run_for(50 * kMicrosecond);
    b.memory.remove(gone.region);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_REM_ACCESS_ERR);
    EXPECT_TRUE(b.memory.insert(gone.region));
}

// The following packets come from a peer that breaks the rules.
struct RcHostile : Pair {
    void SetUp() override {
        connect();
        receive(5, 0, 3000);
    }
    wire::Headers request(Op op) const {
        wire::Headers h;
        h.bth.opcode = wire::opcode(wire::Service::kRc, op);
        h.bth.dest_qpn = qb->qpn;
        h.bth.psn = qb->expected_psn();
        h.bth.ack_req = true;
        h.reth = {mb.address(), mb.key(), 100};
        h.atomic = {mb.address(), mb.key(), 1, 0};
        return h;
    }
    void inject(const wire::Headers& h, size_t bytes) {
        before_ = mb.bytes(0, mb.size);
        net.inject(1, a.path_to(b), h, std::vector<uint8_t>(bytes, 0x77));
    }
    void expect_refused(uint8_t syndrome) {
        EXPECT_THAT(syndromes(b), Contains(syndrome));
        EXPECT_EQ(qb->state, IBV_QPS_ERR);
        EXPECT_EQ(mb.bytes(0, mb.size), before_);
    }
    std::vector<uint8_t> before_;
};

TEST_F(RcHostile, middle_without_first) {
    inject(request(Op::kSendMiddle), 1024);
    expect_refused(0x61);
}
TEST_F(RcHostile, last_without_first) {
    inject(request(Op::kWriteLast), 100);
    expect_refused(0x61);
}
TEST_F(RcHostile, only_inside_a_message) {
    inject(request(Op::kSendFirst), 1024);
    ASSERT_EQ(qb->state, IBV_QPS_RTS);
    inject(request(Op::kSendOnly), 100);
    expect_refused(0x61);
}
TEST_F(RcHostile, write_inside_a_send) {
    inject(request(Op::kSendFirst), 1024);
    inject(request(Op::kWriteMiddle), 1024);
    expect_refused(0x61);
}
TEST_F(RcHostile, read_inside_a_send) {
    inject(request(Op::kSendFirst), 1024);
    inject(request(Op::kReadRequest), 0);
    expect_refused(0x61);
}
TEST_F(RcHostile, payload_longer_than_the_mtu) {
    inject(request(Op::kSendOnly), 1025);
    expect_refused(0x61);
}
TEST_F(RcHostile, first_shorter_than_the_mtu) {
    inject(request(Op::kSendFirst), 1020);
    expect_refused(0x61);
}
TEST_F(RcHostile, payload_and_reth_disagree) {
    inject(request(Op::kWriteOnly), 101);
    expect_refused(0x61);
}
TEST_F(RcHostile, write_that_goes_on_beyond_its_length) {
    wire::Headers h = request(Op::kWriteFirst);
    h.reth.length = 2000;
    inject(h, 1024);
    ASSERT_EQ(qb->state, IBV_QPS_RTS);
    inject(request(Op::kWriteMiddle), 1024);
    expect_refused(0x61);
}
TEST_F(RcHostile, huge_length) {
    wire::Headers h = request(Op::kWriteFirst);
    h.reth.length = 0xFFFFFFFF;
    inject(h, 1024);
    EXPECT_EQ(qb->state, IBV_QPS_ERR);
    EXPECT_EQ(mb.bytes(0, mb.size), before_);
}
TEST_F(RcHostile, huge_read) {
    wire::Headers h = request(Op::kReadRequest);
    h.reth.length = 0xFFFFFFFF;
    inject(h, 0);
    EXPECT_EQ(qb->state, IBV_QPS_ERR);
    EXPECT_EQ(packets(b, Op::kReadResponseFirst), 0u);
}
// Half of the PSNs are "before": an answer or a message of more packets would be ambiguous.
TEST_F(RcHostile, more_packets_than_psns_tell_apart) {
    for (const Op op : {Op::kWriteFirst, Op::kReadRequest}) {
        QpOptions options;
        options.mtu = 256;
        connect(options);
        Region huge;  // its memory is not read
        huge.iova = 0;
        huge.length = uint64_t{1} << 40;
        huge.host = mb.data();
        huge.access = kRemoteAccess;
        huge.pd = qb->pd;
        ASSERT_TRUE(b.memory.insert(huge));
        b.sink.room = [] { return false; };
        wire::Headers h = request(op);
        h.reth = {0, huge.key, (1u << 30) + 256};
        inject(h, op == Op::kWriteFirst ? 256 : 0);
        EXPECT_EQ(qb->state, IBV_QPS_ERR) << static_cast<int>(op);
        EXPECT_EQ(b.sink.count(IBV_EVENT_QP_REQ_ERR, qb), 1);
        b.sink.room = [] { return true; };
        b.memory.remove(huge);
    }
}
// IBTA 9.6.1.2.2.
TEST_F(RcHostile, a_packet_to_another_address_of_the_host) {
    const auto before = mb.bytes(0, mb.size);
    Path path = a.path_to(b);
    path.flow.dst = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 7, 7};
    path.headers = wire::make_template(path.flow);
    net.inject(1, path, request(Op::kWriteOnly), std::vector<uint8_t>(100, 0x77));
    path.flow.dst = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 224, 0, 0, 7};
    path.headers = wire::make_template(path.flow);
    net.inject(1, path, request(Op::kWriteOnly), std::vector<uint8_t>(100, 0x77));
    wire::Headers cnp;
    cnp.bth.opcode = wire::kOpcodeCnp;
    cnp.bth.dest_qpn = qb->qpn;
    net.inject(1, path, cnp, {});
    EXPECT_EQ(b.counter(Counter::kDropDestination), 3u);
    EXPECT_EQ(b.counter(Counter::kRxCnp), 0u);
    EXPECT_EQ(qb->state, IBV_QPS_RTS);
    EXPECT_EQ(mb.bytes(0, mb.size), before);
}
// First, Middle, Last; and an AETH that acknowledges.
TEST_F(RcHostile, answers_to_a_read_in_another_order) {
    struct Wrong {
        Op op;
        uint8_t syndrome;
        size_t bytes;
    };
    for (const Wrong& wrong : {Wrong{Op::kReadResponseMiddle, 0, 1024}, Wrong{Op::kReadResponseLast, 0, 1024},
                               Wrong{Op::kReadResponseOnly, 0, 1024}, Wrong{Op::kReadResponseFirst, 0x60, 1024}}) {
        connect();
        net.filter = [](const Observed& p) { return p.is_response() ? Verdict::kDrop : Verdict::kPass; };
        post(read(1, 0, 3000, 0));
        net.run_for(100 * kMicrosecond);
        const auto before = ma.bytes(0, ma.size);
        wire::Headers h;
        h.bth.opcode = wire::opcode(wire::Service::kRc, wrong.op);
        h.bth.dest_qpn = qa->qpn;
        h.bth.psn = 100;
        h.aeth = {wrong.syndrome, 1};
        net.inject(0, b.path_to(a), h, std::vector<uint8_t>(wrong.bytes, 0x77));
        net.filter = nullptr;
        ASSERT_TRUE(run());
        const auto wcs = sent();
        ASSERT_EQ(wcs.size(), 1u);
        EXPECT_EQ(wcs[0].status, IBV_WC_BAD_RESP_ERR) << static_cast<int>(wrong.op);
        EXPECT_EQ(ma.bytes(0, ma.size), before);
    }
}
TEST_F(RcHostile, more_reads_than_agreed) {
    b.sink.room = [] { return false; };
    for (int i = 0; i < 20 && qb->state != IBV_QPS_ERR; ++i) inject(request(Op::kReadRequest), 0);
    EXPECT_EQ(qb->state, IBV_QPS_ERR);
}
TEST_F(RcHostile, repeated_read_of_what_was_never_asked) {
    wire::Headers h = request(Op::kReadRequest);
    h.bth.psn = (h.bth.psn - 1) & 0xFFFFFF;
    h.reth.length = 5000;
    inject(h, 0);
    EXPECT_EQ(qb->state, IBV_QPS_RTS);
    EXPECT_EQ(packets(b, Op::kReadResponseFirst), 0u);
    EXPECT_EQ(b.counter(Counter::kDropOverload), 1u);
}
TEST_F(RcHostile, answers_that_nobody_waits_for) {
    for (Op op : {Op::kAck, Op::kAtomicAck, Op::kReadResponseOnly, Op::kReadResponseMiddle}) {
        for (uint32_t psn : {0u, 99u, 100u, 101u, 0x800000u}) {
            wire::Headers h = request(op);
            h.bth.psn = psn;
            h.aeth = {wire::kSyndromeAck, 0};
            inject(h, op == Op::kAck || op == Op::kAtomicAck ? 0 : 100);
        }
    }
    EXPECT_EQ(qb->state, IBV_QPS_RTS);
    EXPECT_TRUE(b.poll(*qb->send_cq).empty());
    EXPECT_EQ(b.counter(Counter::kDropResponse), 19u) << "all but the ACK of the packet before the first";
    EXPECT_EQ(mb.bytes(0, mb.size), before_);
}
TEST_F(RcHostile, a_nak_with_a_reserved_code_or_for_nothing) {
    for (uint32_t syndrome = 0; syndrome < 256; ++syndrome) {
        wire::Headers h = request(Op::kAck);
        h.bth.psn = 500;
        h.aeth = {static_cast<uint8_t>(syndrome), 0};
        inject(h, 0);
    }
    EXPECT_EQ(qb->state, IBV_QPS_RTS);
}
TEST_F(RcHostile, a_read_response_of_the_wrong_size) {
    Send s{.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .sges = {mb.sge(0, 3000)}};
    s.remote_addr = ma.address();
    s.rkey = ma.key();
    net.filter = [](const Observed&) { return Verdict::kDrop; };
    ASSERT_TRUE(b.post(*qb, s));
    net.pump();
    wire::Headers h = request(Op::kReadResponseFirst);
    h.bth.psn = 100;
    inject(h, 1000);
    EXPECT_THAT(statuses(b.poll(*qb->send_cq)), ElementsAre(IBV_WC_BAD_RESP_ERR));
    EXPECT_EQ(mb.bytes(0, mb.size), before_);
}
TEST_F(RcHostile, a_packet_of_another_source_service_or_partition) {
    Host stranger(7, {});
    net.inject(1, stranger.path_to(b), request(Op::kSendOnly), {1, 2, 3, 4});
    EXPECT_EQ(b.counter(Counter::kDropSource), 1u);
    wire::Headers h = request(Op::kSendOnly);
    h.bth.opcode = wire::opcode(wire::Service::kUc, Op::kSendOnly);
    inject(h, 4);
    EXPECT_EQ(b.counter(Counter::kDropService), 1u);
    h = request(Op::kSendOnly);
    h.bth.pkey = 0x8001;
    inject(h, 4);
    EXPECT_EQ(b.counter(Counter::kDropPkey), 1u);
    h = request(Op::kSendOnly);
    h.bth.dest_qpn = 0xABCDE;
    inject(h, 4);
    EXPECT_EQ(b.counter(Counter::kDropUnknownQp), 1u);
    h.bth.dest_qpn = qb->qpn ^ 0x10000;
    inject(h, 4);
    EXPECT_EQ(b.counter(Counter::kDropUnknownQp), 2u) << "an older queue pair's number";
    EXPECT_TRUE(received().empty());
    EXPECT_EQ(qb->state, IBV_QPS_RTS);
}
TEST_F(RcHostile, limited_members_do_not_talk_to_each_other) {
    QpOptions options;
    options.pkey = 0x7FFF;
    connect(options);
    receive(6, 0, 100);
    post(send(1, 0, 10));
    net.run_for(10 * kMillisecond);
    EXPECT_GT(b.counter(Counter::kDropPkey), 0u);
    EXPECT_TRUE(received().empty());
}

}  // namespace
}  // namespace rove::test
