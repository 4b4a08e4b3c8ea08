// SPDX-License-Identifier: Apache-2.0
// Unreliable datagrams: IBTA 9.8.4, `man ibv_post_send`.
#include "verbs.h"

using namespace conformance;

namespace {

struct Datagrams {
    Ends ends{QpOptions{.type = IBV_QPT_UD}};
    Owned<ibv_ah> ah = make_ah(ends.pd);

    Work to_b(uint32_t bytes, uint32_t qkey = kQkey) {
        return {.sges = {ends.local.sge(0, bytes)}, .ah = ah, .qpn = ends.b->qp_num, .qkey = qkey};
    }
    uint32_t mtu() const { return 128u << device().port_attr.active_mtu; }
};

}  // namespace

// `man ibv_post_recv`: the first 40 bytes are for a GRH.
CASE(ud, a_datagram_comes_behind_its_grh) {
    Datagrams t;
    post_recv(t.ends.b, {t.ends.remote.sge(0, 2000)});
    fill(t.ends.local.at(), 1000, 1);
    post(t.ends.a, t.to_b(1000));
    succeeded(t.ends.send_cq);
    const ibv_wc wc = succeeded(t.ends.peer_recv_cq);
    EXPECT(wc.byte_len == 1040 && (wc.wc_flags & IBV_WC_GRH) != 0, "%u bytes, flags %#x", wc.byte_len, wc.wc_flags);
    EXPECT(wc.src_qp == t.ends.a->qp_num, "%u", wc.src_qp);
    EXPECT(matches(t.ends.remote.at(40), 1000, 1) && t.ends.remote.at()[1040] == 0);
}

CASE(ud, immediate_data_arrives) {
    Datagrams t;
    post_recv(t.ends.b, {t.ends.remote.sge(0, 100)});
    Work work = t.to_b(8);
    work.opcode = IBV_WR_SEND_WITH_IMM;
    work.imm = 0xfeedbeef;
    post(t.ends.a, work);
    const ibv_wc wc = succeeded(t.ends.peer_recv_cq);
    EXPECT(be32toh(wc.imm_data) == 0xfeedbeef && wc.byte_len == 48);
}

CASE(ud, as_long_as_the_mtu) {
    Datagrams t;
    post_recv(t.ends.b, {t.ends.remote.sge(0, 8192)});
    fill(t.ends.local.at(), t.mtu(), 1);
    post(t.ends.a, t.to_b(t.mtu()));
    succeeded(t.ends.send_cq);
    EXPECT(succeeded(t.ends.peer_recv_cq).byte_len == 40 + t.mtu());
    EXPECT(matches(t.ends.remote.at(40), t.mtu(), 1));
}

// IBTA C9-..., 9.8.4: a datagram is one packet. Devices refuse a longer one at posting, complete it with a length
// error, or send nothing.
CASE(ud, longer_than_the_mtu_is_never_sent) {
    Datagrams t;
    for (uint32_t bytes : {t.mtu() + 1, t.mtu() + 2000, 60000u}) {
        Datagrams one;
        post_recv(one.ends.b, {one.ends.remote.sge(0, 65536)});
        const int error = try_post(one.ends.a, one.to_b(bytes));
        if (error == 0) {
            const ibv_wc_status status = next(one.ends.send_cq).status;
            EXPECT(status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(status));
        } else
            EXPECT(error == EINVAL || error == EMSGSIZE, "%s", strerror(error));
        stays_empty(one.ends.peer_recv_cq, 0.02);
    }
    post_recv(t.ends.b, {t.ends.remote.sge(0, 8192)});  // the QPs still work
    fill(t.ends.local.at(), 500, 2);
    post(t.ends.a, t.to_b(500));
    succeeded(t.ends.peer_recv_cq);
    EXPECT(matches(t.ends.remote.at(40), 500, 2));
}

CASE(ud, a_wrong_qkey_is_dropped) {
    Datagrams t;
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)});
    post(t.ends.a, t.to_b(100, kQkey + 1));
    succeeded(t.ends.send_cq);
    stays_empty(t.ends.peer_recv_cq, 0.1);
    EXPECT(all_bytes(t.ends.remote.at(), 1000, 0));
    post(t.ends.a, t.to_b(100));
    EXPECT(succeeded(t.ends.peer_recv_cq).byte_len == 140);
}

// IBTA 10.2.5: with the high bit set, the QP's own Q_Key is sent.
CASE(ud, a_qkey_with_the_high_bit_is_the_qps) {
    Datagrams t;
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)});
    post(t.ends.a, t.to_b(100, 0x80000000));
    EXPECT(succeeded(t.ends.peer_recv_cq).byte_len == 140);
}

CASE(ud, without_a_receive_it_is_dropped) {
    Datagrams t;
    post(t.ends.a, t.to_b(100));
    succeeded(t.ends.send_cq);
    sleep_for(0.05);
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)});
    stays_empty(t.ends.peer_recv_cq);
    EXPECT(state_of(t.ends.b) == IBV_QPS_RTS);
}

// IBTA 9.8.4: a datagram that does not fit is dropped or completes in error. No byte behind the receive is written.
CASE(ud, a_receive_that_is_too_short_is_not_overrun) {
    Datagrams t;
    post_recv(t.ends.b, {t.ends.remote.sge(0, 100)});
    fill(t.ends.local.at(), 500, 1);
    post(t.ends.a, t.to_b(500));
    succeeded(t.ends.send_cq);
    sleep_for(0.05);
    ibv_wc wc;
    if (ibv_poll_cq(t.ends.peer_recv_cq, 1, &wc) == 1)
        EXPECT(wc.status == IBV_WC_LOC_LEN_ERR, "%s", ibv_wc_status_str(wc.status));
    EXPECT(all_bytes(t.ends.remote.at(100), 4096, 0));
}

CASE(ud, an_unknown_qp_number_is_dropped) {
    Datagrams t;
    Work work = t.to_b(100);
    work.qpn = 0xfffffe;
    post(t.ends.a, work);
    succeeded(t.ends.send_cq);
    stays_empty(t.ends.peer_recv_cq, 0.02);
}

CASE(ud, one_qp_sends_to_many) {
    Datagrams t;
    std::vector<Owned<ibv_qp>> qps;
    for (uint32_t i = 0; i < 8; ++i) {
        qps.push_back(make_qp(t.ends.pd, t.ends.peer_send_cq, t.ends.peer_recv_cq, {.type = IBV_QPT_UD}));
        bring_up(qps.back(), {.type = IBV_QPT_UD}, device().gid, 0);
        post_recv(qps.back(), {t.ends.remote.sge(i * 1000, 1000)}, i);
    }
    for (uint32_t i = 0; i < 8; ++i) {
        fill(t.ends.local.at(), 100 + i, i);
        Work work = t.to_b(100 + i);
        work.qpn = qps[i]->qp_num;
        post(t.ends.a, work);
        succeeded(t.ends.send_cq);
        const ibv_wc wc = succeeded(t.ends.peer_recv_cq);
        EXPECT(wc.wr_id == i && wc.byte_len == 140 + i && wc.qp_num == qps[i]->qp_num);
        EXPECT(matches(t.ends.remote.at(i * 1000 + 40), 100 + i, i));
    }
}

PAIR(ud, to_another_process) {
    struct Name {
        ibv_gid gid;
        uint32_t qpn;
    };
    Ends ends({.type = IBV_QPT_UD});
    post_recv(ends.a, {ends.local.sge(4096, 2000)});
    const Name theirs = peer.exchange(Name{device().gid, ends.a->qp_num});
    Owned<ibv_ah> ah = make_ah(ends.pd, theirs.gid);
    // The first packet may be lost while the link comes up, and UD does not retransmit it.
    peer.barrier();
    fill(ends.local.at(), 1000, peer.first ? 1 : 2);
    ibv_wc wc{};
    bool received = false;
    for (int i = 0; i < 20 && !received; ++i) {
        post(ends.a, {.sges = {ends.local.sge(0, 1000)}, .ah = ah, .qpn = theirs.qpn});
        succeeded(ends.send_cq);
        received = poll_until([&] { return ibv_poll_cq(ends.recv_cq, 1, &wc) == 1; }, 0.2);
    }
    EXPECT(received && wc.status == IBV_WC_SUCCESS && wc.byte_len == 1040 && wc.src_qp == theirs.qpn);
    EXPECT(matches(ends.local.at(4096 + 40), 1000, peer.first ? 2 : 1));
    // The other process may not have received ours yet.
    for (int i = 0; i < 3; ++i) {
        post(ends.a, {.sges = {ends.local.sge(0, 1000)}, .ah = ah, .qpn = theirs.qpn});
        succeeded(ends.send_cq);
    }
    peer.barrier();
}
