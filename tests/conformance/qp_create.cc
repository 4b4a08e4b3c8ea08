// SPDX-License-Identifier: Apache-2.0
// ibv_create_qp(_ex), ibv_destroy_qp: their manual pages.
#include "verbs.h"

using namespace conformance;

namespace {

struct Parts {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> cq = make_cq();

    ibv_qp_init_attr attr(ibv_qp_type type = IBV_QPT_RC) {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.cap = {16, 16, 1, 1, 0};
        attr.qp_type = type;
        return attr;
    }
};

}  // namespace

// `man ibv_create_qp`: the actual capacities are written back, and are not less than the requested ones.
CASE(qp_create, capacities_are_at_least_those_asked_for) {
    Parts parts;
    for (ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
        ibv_qp_init_attr attr = parts.attr(type);
        attr.cap = {17, 33, 3, 2, 40};
        Owned<ibv_qp> qp = OWN(ibv_create_qp(parts.pd, &attr));
        EXPECT(attr.cap.max_send_wr >= 17 && attr.cap.max_recv_wr >= 33 && attr.cap.max_send_sge >= 3 &&
               attr.cap.max_recv_sge >= 2 && attr.cap.max_inline_data >= 40);
        EXPECT(qp->qp_type == type && qp->pd == parts.pd && qp->send_cq == parts.cq && qp->state == IBV_QPS_RESET);
        EXPECT(state_of(qp) == IBV_QPS_RESET);
    }
}

CASE(qp_create, max_qp_wr_is_kept) {
    Parts parts;
    ibv_qp_init_attr attr = parts.attr();
    attr.cap.max_send_wr = attr.cap.max_recv_wr = static_cast<uint32_t>(device().attr.max_qp_wr);
    // A device may reach this maximum only for requests without other features (`man ibv_query_device`: "maximum").
    ibv_qp* made = ibv_create_qp(parts.pd, &attr);
    if (made != nullptr)
        EXPECT_OK(ibv_destroy_qp(made));
    else
        EXPECT(errno == ENOMEM, "%s", strerror(errno));
    attr = parts.attr();
    attr.cap.max_send_wr = static_cast<uint32_t>(device().attr.max_qp_wr) + 1;
    EXPECT_REFUSED(ibv_create_qp(parts.pd, &attr), EINVAL, ENOMEM);
    attr = parts.attr();
    attr.cap.max_recv_wr = static_cast<uint32_t>(device().attr.max_qp_wr) + 1;
    EXPECT_REFUSED(ibv_create_qp(parts.pd, &attr), EINVAL, ENOMEM);
}

CASE(qp_create, max_sge_is_kept) {
    Parts parts;
    ibv_qp_init_attr attr = parts.attr();
    attr.cap.max_send_sge = static_cast<uint32_t>(device().attr.max_sge) + 1;
    EXPECT_REFUSED(ibv_create_qp(parts.pd, &attr), EINVAL, ENOMEM);
    attr = parts.attr();
    attr.cap.max_recv_sge = static_cast<uint32_t>(device().attr.max_sge) + 1;
    EXPECT_REFUSED(ibv_create_qp(parts.pd, &attr), EINVAL, ENOMEM);
    attr = parts.attr();
    attr.cap.max_recv_sge = static_cast<uint32_t>(device().attr.max_sge);
    Owned<ibv_qp> qp = OWN(ibv_create_qp(parts.pd, &attr));
}

CASE(qp_create, huge_capacities_are_refused) {
    Parts parts;
    for (uint32_t ibv_qp_cap::*member : {&ibv_qp_cap::max_send_wr, &ibv_qp_cap::max_recv_wr, &ibv_qp_cap::max_send_sge,
                                         &ibv_qp_cap::max_recv_sge, &ibv_qp_cap::max_inline_data}) {
        ibv_qp_init_attr attr = parts.attr();
        attr.cap.*member = UINT32_MAX;
        EXPECT_REFUSED(ibv_create_qp(parts.pd, &attr), EINVAL, ENOMEM);
    }
}

// "max_recv_wr, max_recv_sge: ... ignored if the QP is associated with an SRQ".
CASE(qp_create, receive_capacities_are_ignored_with_an_srq) {
    Parts parts;
    Owned<ibv_srq> srq = make_srq(parts.pd);
    ibv_qp_init_attr attr = parts.attr();
    attr.srq = srq;
    attr.cap.max_recv_wr = 1000000;
    attr.cap.max_recv_sge = 200;
    Owned<ibv_qp> qp = OWN(ibv_create_qp(parts.pd, &attr));
    EXPECT(qp->srq == srq);
}

CASE(qp_create, a_completion_queue_is_needed) {
    Parts parts;
    ibv_qp_init_attr attr = parts.attr();
    attr.send_cq = nullptr;
    EXPECT_REFUSED(ibv_create_qp(parts.pd, &attr), EINVAL, EFAULT);
    attr = parts.attr();
    attr.recv_cq = nullptr;
    EXPECT_REFUSED(ibv_create_qp(parts.pd, &attr), EINVAL, EFAULT);
}

CASE(qp_create, unknown_type_is_refused) {
    Parts parts;
    ibv_qp_init_attr attr = parts.attr(static_cast<ibv_qp_type>(99));
    EXPECT_REFUSED(ibv_create_qp(parts.pd, &attr), EINVAL, EOPNOTSUPP, ENOSYS);
}

// A device without raw packets refuses them with the right errno. A device with them requires a privilege.
CASE(qp_create, raw_packet_is_offered_or_refused_plainly) {
    Parts parts;
    ibv_qp_init_attr attr = parts.attr(IBV_QPT_RAW_PACKET);
    errno = 0;
    ibv_qp* made = ibv_create_qp(parts.pd, &attr);
    if (made != nullptr)
        EXPECT_OK(ibv_destroy_qp(made));
    else
        EXPECT(errno == EOPNOTSUPP || errno == EINVAL || errno == EPERM || errno == ENOSYS, "%s", strerror(errno));
}

CASE(qp_create, extended_create_takes_what_plain_create_does) {
    Parts parts;
    Owned<ibv_qp> qp =
        make_qp(parts.pd, parts.cq, parts.cq, {.send_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE});
    EXPECT(ibv_qp_to_qp_ex(qp) != nullptr);
    Owned<ibv_qp> plain = make_qp(parts.pd, parts.cq, parts.cq);
    EXPECT(ibv_qp_to_qp_ex(plain) == nullptr, "only a QP made with send_ops_flags has it");
}

CASE(qp_create, extended_create_refuses_unknown_attributes) {
    Parts parts;
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = parts.cq;
    attr.cap = {16, 16, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    attr.pd = parts.pd;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | 1u << 30;
    EXPECT_REFUSED(ibv_create_qp_ex(device().context, &attr), EINVAL, EOPNOTSUPP);
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = 1ull << 60;
    EXPECT_REFUSED(ibv_create_qp_ex(device().context, &attr), EINVAL, EOPNOTSUPP);
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    attr.create_flags = 1u << 30;
    EXPECT_REFUSED(ibv_create_qp_ex(device().context, &attr), EINVAL, EOPNOTSUPP);
}

CASE(qp_create, extended_create_needs_a_pd) {
    Parts parts;
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = parts.cq;
    attr.cap = {16, 16, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    EXPECT_REFUSED(ibv_create_qp_ex(device().context, &attr), EINVAL, EOPNOTSUPP);
}

// `man ibv_destroy_qp`: fails with EBUSY if the QP is attached to a multicast group.
CASE(qp_create, destroy_is_busy_with_a_multicast_group) {
    Parts parts;
    Owned<ibv_qp> qp = make_qp(parts.pd, parts.cq, parts.cq, {.type = IBV_QPT_UD});
    bring_up(qp, {.type = IBV_QPT_UD}, device().gid, 0);
    ibv_gid group{};
    group.raw[0] = 0xff;
    group.raw[1] = 0x0e;
    group.raw[15] = 9;
    if (const int error = ibv_attach_mcast(qp, &group, 0); error != 0) skip("no multicast: %s", strerror(error));
    EXPECT_ERROR(ibv_destroy_qp(qp), EBUSY);
    EXPECT_OK(ibv_detach_mcast(qp, &group, 0));
}

// Requests of a destroyed QP disappear with it, and their memory may be freed.
CASE(qp_create, destroy_with_requests_under_way) {
    Ends ends;
    for (int i = 0; i < 8; ++i) {
        Buffer memory(ends.pd, 65536);
        Owned<ibv_qp> a = make_qp(ends.pd, ends.send_cq, ends.recv_cq),
                      b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
        connect(a, b, {});
        for (int k = 0; k < 16; ++k)
            post(a, {.opcode = IBV_WR_RDMA_WRITE,
                     .sges = {ends.local.sge(0, 65536)},
                     .to = memory.address(),
                     .rkey = memory.rkey()});
        for (int k = 0; k < 8; ++k) post_recv(a, {memory.sge(0, 100)});
    }
    ibv_wc wc;
    while (ibv_poll_cq(ends.send_cq, 1, &wc) == 1) continue;
    fill(ends.local.at(), 100, 3);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 100)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey(),
                  .id = 99});
    while (succeeded(ends.send_cq).wr_id != 99) continue;
    EXPECT(matches(ends.remote.at(), 100, 3));
}
