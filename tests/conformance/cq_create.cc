// SPDX-License-Identifier: Apache-2.0
// ibv_create_cq(_ex), ibv_destroy_cq, ibv_modify_cq: their manual pages.
#include "verbs.h"

using namespace conformance;

CASE(cq_create, at_least_the_requested_entries) {
    for (int entries : {1, 2, 3, 100, 1000, 4097}) {
        Owned<ibv_cq> cq = make_cq(entries);
        EXPECT(cq->cqe >= entries, "%d of %d", cq->cqe, entries);
    }
}

CASE(cq_create, max_cqe_is_kept) {
    const int limit = device().attr.max_cqe;
    Owned<ibv_cq> cq = OWN(ibv_create_cq(device().context, limit, nullptr, nullptr, 0));
    EXPECT(cq->cqe == limit, "%d, which is more than the device offers, %d", cq->cqe, limit);
    EXPECT_REFUSED(ibv_create_cq(device().context, limit + 1, nullptr, nullptr, 0), EINVAL);
}

CASE(cq_create, no_entries_are_refused) {
    EXPECT_REFUSED(ibv_create_cq(device().context, 0, nullptr, nullptr, 0), EINVAL);
    EXPECT_REFUSED(ibv_create_cq(device().context, -1, nullptr, nullptr, 0), EINVAL, ENOMEM);
}

CASE(cq_create, completion_vector_out_of_range_is_refused) {
    EXPECT_REFUSED(ibv_create_cq(device().context, 16, nullptr, nullptr, device().context->num_comp_vectors), EINVAL);
    EXPECT_REFUSED(ibv_create_cq(device().context, 16, nullptr, nullptr, -1), EINVAL);
}

CASE(cq_create, it_says_what_it_is) {
    Owned<ibv_comp_channel> channel = make_channel();
    int mine;
    Owned<ibv_cq> cq = make_cq(16, channel, &mine);
    EXPECT(cq->context == device().context && cq->channel == channel && cq->cq_context == &mine);
}

// A channel belongs to the context that opened it, and rove refuses it in another context.
CASE(cq_create, channel_of_another_context_is_refused) {
    Owned<ibv_context> other(open_device().context);
    Owned<ibv_comp_channel> channel = OWN(ibv_create_comp_channel(other));
    ibv_cq* made = ibv_create_cq(device().context, 16, nullptr, channel, 0);
    // The kernel may accept the channel of another context by its file. Then destroying the CQ must work.
    if (made != nullptr) {
        EXPECT(std::strncmp(ibv_get_device_name(device().context->device), "rove", 4) != 0, "rove refuses it");
        EXPECT_OK(ibv_destroy_cq(made));
    } else
        EXPECT(errno == EINVAL, "%s", strerror(errno));
}

CASE(cq_create, busy_with_a_queue_pair) {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> send_cq = make_cq(), recv_cq = make_cq();
    Owned<ibv_qp> qp = make_qp(pd, send_cq, recv_cq);
    EXPECT_ERROR(ibv_destroy_cq(send_cq), EBUSY);
    EXPECT_ERROR(ibv_destroy_cq(recv_cq), EBUSY);
    EXPECT_OK(qp.destroy());
    EXPECT_OK(send_cq.destroy());
}

CASE(cq_create, extended_cq_has_the_standard_fields) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 16;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    Owned<ibv_cq_ex> cq = OWN(ibv_create_cq_ex(device().context, &attr));
    EXPECT(cq->cqe >= 16 && cq->context == device().context);
}

// <infiniband/verbs.h>: all flags that libibverbs knows. A driver may refuse some. A driver that accepts them must
// provide their fields.
CASE(cq_create, every_field_that_libibverbs_knows) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 16;
    attr.wc_flags = IBV_CREATE_CQ_SUP_WC_FLAGS;
    ibv_cq_ex* made = ibv_create_cq_ex(device().context, &attr);
    if (made == nullptr) skip("the driver does not have all of them: %s", strerror(errno));
    Owned<ibv_cq_ex> cq(made);
    Ends ends;
    Owned<ibv_qp> a = make_qp(ends.pd, ibv_cq_ex_to_cq(cq), ends.recv_cq),
                  b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
    connect(a, b, {});
    post(a, {.opcode = IBV_WR_RDMA_WRITE,
             .sges = {ends.local.sge(0, 8)},
             .to = ends.remote.address(),
             .rkey = ends.remote.rkey()});
    ibv_poll_cq_attr poll{};
    EXPECT(poll_until([&] { return ibv_start_poll(cq, &poll) == 0; }));
    ibv_wc_tm_info info{1, 1};
    ibv_wc_read_tm_info(cq, &info);
    EXPECT(cq->status == IBV_WC_SUCCESS && ibv_wc_read_cvlan(cq) == 0 && ibv_wc_read_flow_tag(cq) == 0 &&
           info.tag == 0 && info.priv == 0);
    ibv_end_poll(cq);
}

CASE(cq_create, extended_cq_refuses_unknown_attributes) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 16;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    attr.comp_mask = 1u << 31;
    EXPECT_REFUSED(ibv_create_cq_ex(device().context, &attr), EINVAL, EOPNOTSUPP);
    attr.comp_mask = 0;
    attr.wc_flags = 1ull << 40;
    EXPECT_REFUSED(ibv_create_cq_ex(device().context, &attr), EINVAL, EOPNOTSUPP);
}

// `man ibv_modify_cq`: a device may refuse moderation completely. An unknown mask never works.
CASE(cq_create, moderation_can_be_set_or_is_not_offered) {
    Owned<ibv_cq> cq = make_cq();
    ibv_modify_cq_attr attr{};
    attr.attr_mask = IBV_CQ_ATTR_MODERATE;
    attr.moderate = {1, 1};
    const int error = ibv_modify_cq(cq, &attr);
    if (error == EOPNOTSUPP) skip("the driver moderates no completions");
    EXPECT(error == 0, "%s", strerror(error));
    attr.attr_mask = 1u << 20;
    EXPECT(ibv_modify_cq(cq, &attr) != 0);
}
