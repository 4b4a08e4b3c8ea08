// SPDX-License-Identifier: Apache-2.0
// UC and UD: a lost message stays lost, a delivered one is whole.
#include "transport/pair.h"

namespace rove::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Uc : Pair {
    void SetUp() override {
        QpOptions options;
        options.type = IBV_QPT_UC;
        connect(options);
    }
};

TEST_F(Uc, sends_and_writes) {
    receive(1, 0, 5000);
    receive(2, 0, 0);
    post(send(1, 100, 5000));
    post(write(2, 0, 5000, 10000));
    post(write_imm(3, 5000, 2000, 20000, 99));
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_SUCCESS, IBV_WC_SUCCESS, IBV_WC_SUCCESS));
    EXPECT_THAT(ids(received()), ElementsAre(1, 2));
    EXPECT_EQ(mb.bytes(0, 5000), ma.bytes(100, 5000));
    EXPECT_EQ(mb.bytes(10000, 5000), ma.bytes(0, 5000));
    EXPECT_EQ(mb.bytes(20000, 2000), ma.bytes(5000, 2000));
    EXPECT_EQ(packets(b, Op::kAck), 0u);
}

TEST_F(Uc, a_message_with_a_hole_is_dropped_and_the_next_is_fine) {
    for (Op hole : {Op::kSendFirst, Op::kSendMiddle, Op::kSendLast}) {
        lose(0, [hole](const Observed& p) { return p.op() == hole; });
        receive(1, 0, 5000);
        post(send(1, 0, 4000));
        post(send(2, 7000, 3000));
        ASSERT_TRUE(run());
        EXPECT_EQ(sent().size(), 2u) << "the sender does not know";
        const auto got = received();
        ASSERT_EQ(got.size(), 1u);
        EXPECT_EQ(got[0].byte_len, 3000u);
        EXPECT_EQ(mb.bytes(0, 3000), ma.bytes(7000, 3000));
    }
}

TEST_F(Uc, without_a_receive_the_message_is_dropped) {
    post(send(1, 0, 3000));
    ASSERT_TRUE(run());
    receive(1, 0, 3000);
    post(send(2, 5000, 3000));
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(received()), ElementsAre(1));
    EXPECT_EQ(mb.bytes(0, 3000), ma.bytes(5000, 3000));
    EXPECT_GT(b.counter(Counter::kDropNoReceive), 0u);
    EXPECT_EQ(qb->state, IBV_QPS_RTS);
}

TEST_F(Uc, a_local_error_stops_the_send_queue_only) {
    Send bad = send(1, 0, 100);
    bad.sges[0].lkey ^= 0x100;
    post(bad);
    post(send(2, 0, 100));
    ASSERT_TRUE(run());
    EXPECT_THAT(statuses(sent()), ElementsAre(IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR));
    EXPECT_EQ(qa->state, IBV_QPS_SQE);
}

struct Ud : Pair {
    Path path;
    void SetUp() override {
        QpOptions options;
        options.type = IBV_QPT_UD;
        connect(options);
        path = a.path_to(b);
    }
    Send datagram(uint64_t wr_id, size_t offset, size_t bytes) {
        Send s = send(wr_id, offset, bytes);
        s.path = &path;
        s.remote_qpn = qb->qpn;
        s.remote_qkey = 0x1111;
        return s;
    }
};

TEST_F(Ud, forty_bytes_stand_before_the_payload) {
    for (bool ipv6 : {false, true}) {
        path = a.path_to(b, ipv6);
        receive(1, 0, 2000);
        Send s = datagram(1, 0, 1000);
        s.opcode = IBV_WR_SEND_WITH_IMM;
        s.immediate = 0xFEED;
        post(s);
        ASSERT_TRUE(run());
        expect_sent(IBV_WC_SUCCESS);
        const auto got = received();
        ASSERT_EQ(got.size(), 1u);
        EXPECT_EQ(got[0].byte_len, 1040u);
        EXPECT_EQ(got[0].src_qp, qa->qpn);
        EXPECT_EQ(got[0].wc_flags, static_cast<unsigned>(IBV_WC_GRH | IBV_WC_WITH_IMM));
        EXPECT_EQ(ntohl(got[0].imm_data), 0xFEEDu);
        EXPECT_EQ(mb.bytes(40, 1000), ma.bytes(0, 1000));
        const wire::Gid source = a.gid(ipv6), target = b.gid(ipv6);
        if (ipv6) {
            EXPECT_EQ(mb[0] >> 4, 6);
            EXPECT_EQ(mb.bytes(8, 16), std::vector<uint8_t>(source.begin(), source.end()));
            EXPECT_EQ(mb.bytes(24, 16), std::vector<uint8_t>(target.begin(), target.end()));
        } else {
            EXPECT_EQ(mb[20], 0x45);
            EXPECT_EQ(mb.bytes(32, 4), std::vector<uint8_t>(source.begin() + 12, source.end()));
            EXPECT_EQ(mb.bytes(36, 4), std::vector<uint8_t>(target.begin() + 12, target.end()));
        }
    }
}

TEST_F(Ud, what_does_not_fit_is_dropped) {
    receive(1, 0, 139);
    post(datagram(1, 0, 100));
    ASSERT_TRUE(run());
    EXPECT_THAT(received(), IsEmpty());
    EXPECT_EQ(b.counter(Counter::kDropLength), 1u);
    post(datagram(2, 0, 99));
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(received()), ElementsAre(1)) << "the receive was not used up";
    post(datagram(3, 0, 10));
    ASSERT_TRUE(run());
    EXPECT_EQ(b.counter(Counter::kDropNoReceive), 1u);
}

TEST_F(Ud, the_key_must_match) {
    receive(1, 0, 1000);
    Send s = datagram(1, 0, 100);
    s.remote_qkey = 0x2222;
    post(s);
    ASSERT_TRUE(run());
    expect_sent(IBV_WC_SUCCESS);
    EXPECT_THAT(received(), IsEmpty());
    EXPECT_EQ(b.counter(Counter::kDropQkey), 1u);
}

TEST_F(Ud, multicast_reaches_those_that_joined) {
    QpOptions options;
    options.type = IBV_QPT_UD;
    Connection other = test::connect(net, a, b, options, options);
    const wire::Gid group{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 1, 1, 1};
    path.flow.dst = group;
    path.flow.dst_mac = {0x01, 0x00, 0x5E, 1, 1, 1};
    path.headers = wire::make_template(path.flow);
    Send s = datagram(1, 0, 100);
    s.remote_qpn = wire::kMulticastQpn;
    receive(1, 0, 1000);
    ASSERT_TRUE(b.post_recv(other.b, 2, {mb.sge(2000, 1000)}));
    post(s);
    ASSERT_TRUE(run());
    EXPECT_EQ(b.counter(Counter::kDropMulticast), 1u);
    b.qps.groups().attach(group, *qb);
    b.qps.groups().attach(group, other.b);
    post(s);
    ASSERT_TRUE(run());
    EXPECT_THAT(ids(received()), ElementsAre(1));
    EXPECT_THAT(ids(b.poll(*other.b.recv_cq)), ElementsAre(2));
    EXPECT_EQ(mb.bytes(40, 100), ma.bytes(0, 100));
    EXPECT_EQ(mb.bytes(2040, 100), ma.bytes(0, 100));

    // Each worker serves its own members. A member of another worker is no reason to count a drop.
    b.qps.groups().detach(group, *qb);
    b.qps.groups().detach(group, other.b);
    other.b.worker = 1;
    b.qps.groups().attach(group, other.b);
    ASSERT_TRUE(b.post_recv(other.b, 3, {mb.sge(4000, 1000)}));
    post(s);
    ASSERT_TRUE(run());
    EXPECT_THAT(b.poll(*other.b.recv_cq), IsEmpty());
    EXPECT_EQ(b.counter(Counter::kDropMulticast), 1u);
}

// A message that does not fit one packet is never built, wherever it was posted.
TEST_F(Pair, a_datagram_longer_than_the_ports_mtu_is_not_sent) {
    QpOptions options;
    options.type = IBV_QPT_UD;
    connect(options);
    qa->port_mtu = 1024;
    const Path path = a.path_to(b);
    net.trace.clear();
    for (const size_t bytes : {1024u, 1025u, 70'000u}) {
        Send s = send(bytes, 0, bytes);
        s.path = &path;
        s.remote_qpn = qb->qpn;
        s.remote_qkey = options.qkey;
        post(s);
        ASSERT_TRUE(run());
        const auto wcs = sent();
        ASSERT_EQ(wcs.size(), 1u);
        EXPECT_EQ(wcs[0].status, bytes == 1024 ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR) << bytes;
        EXPECT_EQ(qa->state, bytes == 1024 ? IBV_QPS_RTS : IBV_QPS_SQE);
        a.engine.set_state(*qa, IBV_QPS_RTS, net.now());
    }
    EXPECT_EQ(net.trace.size(), 1u);
}

// The receives of an SRQ belong to its protection domain, not to that of the QP that takes them.
TEST_F(Pair, receives_of_a_shared_queue_are_of_its_protection_domain) {
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
        for (const bool multipath : {false, true}) {
            if (multipath && type != IBV_QPT_RC) continue;
            Buffer& shared = b.buffer(65536, kAllAccess, &type);
            SharedRecvQueue& srq = b.shared_recv_queue(16, 1, &type);
            QpOptions plain, sharing;
            plain.type = sharing.type = type;
            plain.multipath = sharing.multipath = multipath;
            sharing.srq = &srq;
            connect(plain, sharing);
            const Path path = a.path_to(b);
            ASSERT_TRUE(b.post_recv(srq.ring, 1, {shared.sge(0, 10'000)}));
            ASSERT_TRUE(b.post_recv(srq.ring, 2, {mb.sge(0, 10'000)}));  // in the QP's domain
            Send s = send(1, 0, type == IBV_QPT_UD ? 1000 : 8000);
            s.path = &path;
            s.remote_qpn = qb->qpn;
            s.remote_qkey = plain.qkey;
            post(s);
            ASSERT_TRUE(run());
            EXPECT_THAT(statuses(received()), ElementsAre(IBV_WC_SUCCESS)) << type;
            EXPECT_EQ(shared.bytes(type == IBV_QPT_UD ? 40 : 0, s.sges[0].length), ma.bytes(0, s.sges[0].length));
            post(s);
            ASSERT_TRUE(run());
            EXPECT_THAT(statuses(received()), ElementsAre(IBV_WC_LOC_PROT_ERR)) << type;
        }
    }
}

}  // namespace
}  // namespace rove::test
