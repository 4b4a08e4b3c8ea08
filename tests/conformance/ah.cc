// SPDX-License-Identifier: Apache-2.0
// Address handles: `man ibv_create_ah`, ibv_create_ah_from_wc.
#include "verbs.h"

using namespace conformance;

namespace {

struct Datagrams {
    Ends ends{QpOptions{.type = IBV_QPT_UD}};
    Owned<ibv_ah> ah = make_ah(ends.pd);

    Work to_b(uint32_t bytes) { return {.sges = {ends.local.sge(0, bytes)}, .ah = ah, .qpn = ends.b->qp_num}; }
};

}  // namespace

CASE(ah, bad_attributes_are_refused) {
    Owned<ibv_pd> pd = make_pd();
    ibv_ah_attr attr = address_of(device().gid);
    attr.port_num = 0;
    EXPECT_REFUSED(ibv_create_ah(pd, &attr), EINVAL);
    attr.port_num = static_cast<uint8_t>(device().attr.phys_port_cnt + 1);
    EXPECT_REFUSED(ibv_create_ah(pd, &attr), EINVAL);
    attr = address_of(device().gid);
    attr.grh.sgid_index = 255;
    EXPECT_REFUSED(ibv_create_ah(pd, &attr), EINVAL);
    if (device().port_attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
        attr = address_of(device().gid);
        attr.is_global = 0;
        EXPECT_REFUSED(ibv_create_ah(pd, &attr), EINVAL);
    }
}

// `man ibv_create_ah_from_wc`: a reply to a datagram reaches its sender.
CASE(ah, an_answer_finds_its_way) {
    Datagrams t;
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)});
    post(t.ends.a, t.to_b(100));
    ibv_wc wc = succeeded(t.ends.peer_recv_cq);
    Owned<ibv_ah> back =
        OWN(ibv_create_ah_from_wc(t.ends.pd, &wc, reinterpret_cast<ibv_grh*>(t.ends.remote.at()), device().port));
    post_recv(t.ends.a, {t.ends.local.sge(2000, 1000)});
    fill(t.ends.remote.at(2000), 50, 7);
    post(t.ends.b, {.sges = {t.ends.remote.sge(2000, 50)}, .ah = back, .qpn = wc.src_qp});
    EXPECT(succeeded(t.ends.recv_cq).byte_len == 90);
    EXPECT(matches(t.ends.local.at(2040), 50, 7));
}

CASE(ah, init_from_wc_names_the_sender) {
    Datagrams t;
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)});
    post(t.ends.a, t.to_b(100));
    ibv_wc wc = succeeded(t.ends.peer_recv_cq);
    ibv_ah_attr attr;
    EXPECT(ibv_init_ah_from_wc(device().context, device().port, &wc, reinterpret_cast<ibv_grh*>(t.ends.remote.at()),
                               &attr) == 0);
    EXPECT(attr.is_global == 1 && attr.port_num == device().port);
    EXPECT(std::memcmp(&attr.grh.dgid, &device().gid, sizeof(ibv_gid)) == 0, "the sender's GID");
}
