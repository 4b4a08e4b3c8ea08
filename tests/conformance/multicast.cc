// SPDX-License-Identifier: Apache-2.0
// Multicast: `man ibv_attach_mcast`; IBTA 10.5, A17.4.
#include "verbs.h"

using namespace conformance;

namespace {

constexpr uint32_t kEverybody = 0xffffff;
constexpr QpOptions kUd{.type = IBV_QPT_UD};

// Returns the IPv4 group 239.1.2.`last` as a GID (RoCE v2).
ibv_gid group(uint8_t last) {
    ibv_gid gid{};
    gid.raw[10] = gid.raw[11] = 0xff;
    gid.raw[12] = 239;
    gid.raw[13] = 1;
    gid.raw[14] = 2;
    gid.raw[15] = last;
    return gid;
}

struct Group {
    Ends ends{kUd};
    ibv_gid gid;
    Owned<ibv_ah> ah;
    std::vector<ibv_qp*> attached;

    explicit Group(uint8_t last) : gid(group(last)), ah(make_ah(ends.pd, gid)) { attach(ends.b); }
    ~Group() {
        for (ibv_qp* qp : attached) ibv_detach_mcast(qp, &gid, 0);
    }
    void attach(ibv_qp* qp) {
        if (const int error = ibv_attach_mcast(qp, &gid, 0); error != 0) skip("no multicast: %s", strerror(error));
        attached.push_back(qp);
    }
    void detach(ibv_qp* qp) {
        EXPECT_OK(ibv_detach_mcast(qp, &gid, 0));
        std::erase(attached, qp);
    }
    Work to_all(uint32_t bytes, uint32_t qkey = kQkey) {
        return {.sges = {ends.local.sge(0, bytes)}, .ah = ah, .qpn = kEverybody, .qkey = qkey};
    }
};

}  // namespace

// IBTA 10.5.2.1: a QP of the sending port is a member like any other.
CASE(multicast, members_of_the_own_device_receive) {
    Group t(10);
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)});
    fill(t.ends.local.at(), 100, 1);
    post(t.ends.a, t.to_all(100));
    succeeded(t.ends.send_cq);
    const ibv_wc wc = succeeded(t.ends.peer_recv_cq);
    EXPECT(wc.byte_len == 140 && wc.src_qp == t.ends.a->qp_num);
    EXPECT(matches(t.ends.remote.at(40), 100, 1));
}

CASE(multicast, every_member_receives_a_copy) {
    Group t(11);
    Owned<ibv_qp> c = make_qp(t.ends.pd, t.ends.peer_send_cq, t.ends.peer_recv_cq, kUd);
    bring_up(c, kUd, device().gid, 0);
    t.attach(c);
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)}, 0);
    post_recv(c, {t.ends.remote.sge(1000, 1000)}, 1);
    fill(t.ends.local.at(), 100, 1);
    post(t.ends.a, t.to_all(100));
    EXPECT(succeeded(t.ends.peer_recv_cq).wr_id + succeeded(t.ends.peer_recv_cq).wr_id == 1);
    EXPECT(matches(t.ends.remote.at(40), 100, 1) && matches(t.ends.remote.at(1040), 100, 1));
    t.detach(c);
}

CASE(multicast, others_receive_nothing) {
    Group t(12);
    Owned<ibv_qp> c = make_qp(t.ends.pd, t.ends.send_cq, t.ends.recv_cq, kUd);
    bring_up(c, kUd, device().gid, 0);
    post_recv(c, {t.ends.remote.sge(2000, 1000)});
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)});
    post(t.ends.a, t.to_all(100));
    succeeded(t.ends.peer_recv_cq);
    stays_empty(t.ends.recv_cq);
}

CASE(multicast, a_qp_that_left_receives_nothing) {
    Group t(13);
    t.detach(t.ends.b);
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)});
    post(t.ends.a, t.to_all(100));
    succeeded(t.ends.send_cq);
    stays_empty(t.ends.peer_recv_cq, 0.1);
}

CASE(multicast, a_wrong_qkey_is_dropped) {
    Group t(14);
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)});
    post(t.ends.a, t.to_all(100, kQkey + 1));
    succeeded(t.ends.send_cq);
    stays_empty(t.ends.peer_recv_cq, 0.1);
}

CASE(multicast, another_group_is_not_received) {
    Group t(15);
    Owned<ibv_ah> other = make_ah(t.ends.pd, group(16));
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)});
    Work work = t.to_all(100);
    work.ah = other;
    post(t.ends.a, work);
    succeeded(t.ends.send_cq);
    stays_empty(t.ends.peer_recv_cq, 0.1);
}

CASE(multicast, only_datagram_qps_can_be_attached) {
    Ends ends;
    const ibv_gid gid = group(17);
    EXPECT_ERROR(ibv_attach_mcast(ends.a, &gid, 0), EINVAL);
}

CASE(multicast, a_unicast_gid_is_refused) {
    Ends ends(kUd);
    EXPECT_ERROR(ibv_attach_mcast(ends.a, &device().gid, 0), EINVAL);
}

CASE(multicast, detaching_what_is_not_attached_is_refused) {
    Ends ends(kUd);
    const ibv_gid gid = group(18);
    EXPECT(ibv_detach_mcast(ends.a, &gid, 0) != 0);
}

PAIR(multicast, members_of_another_process_receive) {
    Group t(19);
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)});
    peer.barrier();
    if (peer.first) {
        fill(t.ends.local.at(), 500, 3);
        // A network may need some time to learn about a member.
        for (int i = 0; i < 20 && !peer.has_input(); ++i) {
            post(t.ends.a, t.to_all(500));
            succeeded(t.ends.send_cq);
            sleep_for(0.1);
        }
    } else {
        EXPECT(succeeded(t.ends.peer_recv_cq).byte_len == 540);
        EXPECT(matches(t.ends.remote.at(40), 500, 3));
    }
    peer.barrier();
}
