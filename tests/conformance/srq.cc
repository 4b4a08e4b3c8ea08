// SPDX-License-Identifier: Apache-2.0
// Shared receive queues: `man ibv_create_srq`, ibv_modify_srq, ibv_post_srq_recv; IBTA 10.2.9.
#include <set>

#include "verbs.h"

using namespace conformance;

namespace {

// An SRQ in `pd` or in the PD of the QPs, with two senders to two QPs that use it.
struct Shared {
    Ends ends;
    Owned<ibv_srq> srq;
    Owned<ibv_cq> cq = make_cq(), other_cq = make_cq();
    Owned<ibv_qp> senders[2], receivers[2];

    explicit Shared(ibv_pd* pd = nullptr, ibv_qp_type type = IBV_QPT_RC)
        : srq(make_srq(pd != nullptr ? pd : static_cast<ibv_pd*>(ends.pd))) {
        for (int i = 0; i < 2; ++i) {
            senders[i] = make_qp(ends.pd, ends.send_cq, ends.recv_cq, {.type = type});
            receivers[i] = make_qp(ends.pd, other_cq, cq, {.type = type, .srq = srq});
            connect(senders[i], receivers[i], {.type = type});
        }
    }
};

}  // namespace

CASE(srq, receives_are_shared_in_order) {
    Shared t;
    for (uint32_t i = 0; i < 10; ++i) post_recv(t.srq, {t.ends.remote.sge(i * 1000, 1000)}, i);
    for (uint32_t i = 0; i < 10; ++i) {
        fill(t.ends.local.at(), 100 + i, i);
        post(t.senders[i % 2], {.sges = {t.ends.local.sge(0, 100 + i)}});
        const ibv_wc wc = succeeded(t.cq);
        EXPECT(wc.wr_id == i && wc.byte_len == 100 + i && wc.qp_num == t.receivers[i % 2]->qp_num);
        EXPECT(matches(t.ends.remote.at(i * 1000), 100 + i, i));
        succeeded(t.ends.send_cq);
    }
}

// IBTA 10.2.3: receives belong to the PD of the SRQ, whatever PD the QPs have.
CASE(srq, its_own_pd_counts) {
    Owned<ibv_pd> other = make_pd();
    Shared t(other);
    Buffer memory(other, 4096);
    post_recv(t.srq, {memory.sge(0, 1000)});
    fill(t.ends.local.at(), 100, 1);
    post(t.senders[0], {.sges = {t.ends.local.sge(0, 100)}});
    succeeded(t.cq);
    succeeded(t.ends.send_cq);
    EXPECT(matches(memory.at(), 100, 1));
}

CASE(srq, memory_of_the_qps_pd_is_refused) {
    Owned<ibv_pd> other = make_pd();
    Shared t(other);
    post_recv(t.srq, {t.ends.remote.sge(0, 1000)});
    post(t.senders[0], {.sges = {t.ends.local.sge(0, 100)}});
    next_is(t.cq, IBV_WC_LOC_PROT_ERR);
    next_is(t.ends.send_cq, IBV_WC_REM_OP_ERR);
    EXPECT(all_bytes(t.ends.remote.at(), 1000, 0));
}

CASE(srq, an_empty_one_is_not_ready) {
    Shared t;
    fill(t.ends.local.at(), 100, 1);
    post(t.senders[0], {.sges = {t.ends.local.sge(0, 100)}});
    stays_empty(t.ends.send_cq, 0.05);
    post_recv(t.srq, {t.ends.remote.sge(0, 1000)});
    succeeded(t.ends.send_cq);
    EXPECT(succeeded(t.cq).byte_len == 100 && matches(t.ends.remote.at(), 100, 1));
}

// A QP that ends does not consume the receives that it has not used (IBTA 10.2.9.1).
CASE(srq, a_qp_that_ends_leaves_the_receives) {
    Shared t;
    for (uint32_t i = 0; i < 5; ++i) post_recv(t.srq, {t.ends.remote.sge(i * 1000, 1000)}, i);
    to_state(t.receivers[0], IBV_QPS_ERR);
    stays_empty(t.cq, 0.02);
    EXPECT_OK(t.receivers[0].destroy());
    for (uint32_t i = 0; i < 5; ++i) {
        post(t.senders[1], {.sges = {t.ends.local.sge(0, 10)}});
        EXPECT(succeeded(t.cq).wr_id == i);
    }
}

// A device may have SRQs for RC and UD only.
CASE(srq, unreliable_connections_use_it) {
    {
        Ends ends;
        Owned<ibv_srq> srq = make_srq(ends.pd);
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = ends.send_cq;
        attr.srq = srq;
        attr.cap = {.max_send_wr = 1, .max_recv_wr = 0, .max_send_sge = 1, .max_recv_sge = 0, .max_inline_data = 0};
        attr.qp_type = IBV_QPT_UC;
        ibv_qp* qp = ibv_create_qp(ends.pd, &attr);
        if (qp == nullptr) skip("the device has none for UC: %s", strerror(errno));
        EXPECT_OK(ibv_destroy_qp(qp));
    }
    Shared t(nullptr, IBV_QPT_UC);
    fill(t.ends.local.at(), 5000, 3);
    post(t.senders[0], {.sges = {t.ends.local.sge(0, 5000)}});
    succeeded(t.ends.send_cq);
    sleep_for(0.05);  // IBTA 9.8.3.2: without a receive request the message is dropped
    for (uint32_t i = 0; i < 4; ++i) post_recv(t.srq, {t.ends.remote.sge(i * 8000, 8000)}, i);
    for (uint32_t i = 0; i < 4; ++i) {
        post(t.senders[i % 2], {.sges = {t.ends.local.sge(0, 5000)}});
        succeeded(t.ends.send_cq);
        const ibv_wc wc = succeeded(t.cq);
        EXPECT(wc.wr_id == i && wc.byte_len == 5000 && wc.qp_num == t.receivers[i % 2]->qp_num);
        EXPECT(matches(t.ends.remote.at(i * 8000), 5000, 3));
    }
    stays_empty(t.cq);
}

CASE(srq, datagrams_use_it) {
    Ends ends({.type = IBV_QPT_UD});
    Owned<ibv_srq> srq = make_srq(ends.pd);
    Owned<ibv_qp> qp = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq, {.type = IBV_QPT_UD, .srq = srq});
    bring_up(qp, {.type = IBV_QPT_UD}, device().gid, 0);
    Owned<ibv_ah> ah = make_ah(ends.pd);
    post_recv(srq, {ends.remote.sge(0, 1000)}, 12);
    post(ends.a, {.sges = {ends.local.sge(0, 100)}, .ah = ah, .qpn = qp->qp_num});
    const ibv_wc wc = succeeded(ends.peer_recv_cq);
    EXPECT(wc.wr_id == 12 && wc.byte_len == 140);
}

CASE(srq, capacities_are_at_least_those_asked_for) {
    Owned<ibv_pd> pd = make_pd();
    ibv_srq_init_attr attr{nullptr, {37, 3, 0}};
    Owned<ibv_srq> srq = OWN(ibv_create_srq(pd, &attr));
    EXPECT(attr.attr.max_wr >= 37 && attr.attr.max_sge >= 3);
    ibv_srq_attr queried{};
    EXPECT_OK(ibv_query_srq(srq, &queried));
    EXPECT(queried.max_wr >= 37 && queried.max_sge >= 3 && queried.srq_limit == 0);
}

CASE(srq, limits_are_kept) {
    Owned<ibv_pd> pd = make_pd();
    ibv_srq_init_attr attr{nullptr, {static_cast<uint32_t>(device().attr.max_srq_wr) + 1, 1, 0}};
    EXPECT_REFUSED(ibv_create_srq(pd, &attr), EINVAL, ENOMEM);
    attr.attr = {16, static_cast<uint32_t>(device().attr.max_srq_sge) + 1, 0};
    EXPECT_REFUSED(ibv_create_srq(pd, &attr), EINVAL, ENOMEM);
    attr.attr = {16, static_cast<uint32_t>(device().attr.max_srq_sge), 0};
    Owned<ibv_srq> srq = OWN(ibv_create_srq(pd, &attr));
}

CASE(srq, a_full_one_is_ENOMEM) {
    Owned<ibv_pd> pd = make_pd();
    Buffer memory(pd, 4096);
    ibv_srq_init_attr attr{nullptr, {8, 1, 0}};
    Owned<ibv_srq> srq = OWN(ibv_create_srq(pd, &attr));
    ibv_sge sge = memory.sge(0, 8);
    ibv_recv_wr wr{1, nullptr, &sge, 1}, *bad = nullptr;
    uint32_t posted = 0;
    int error = 0;
    while (posted < 4 * attr.attr.max_wr && (error = ibv_post_srq_recv(srq, &wr, &bad)) == 0) ++posted;
    EXPECT(posted >= attr.attr.max_wr, "%u of %u", posted, attr.attr.max_wr);
    EXPECT(error == ENOMEM && bad == &wr, "%s", strerror(error));
}

CASE(srq, too_many_sges_are_refused) {
    Owned<ibv_pd> pd = make_pd();
    Buffer memory(pd, 4096);
    ibv_srq_init_attr attr{nullptr, {8, 2, 0}};
    Owned<ibv_srq> srq = OWN(ibv_create_srq(pd, &attr));
    std::vector<ibv_sge> sges(attr.attr.max_sge + 1, memory.sge(0, 8));
    ibv_recv_wr wr{1, nullptr, sges.data(), static_cast<int>(sges.size())}, *bad = nullptr;
    const int error = ibv_post_srq_recv(srq, &wr, &bad);
    EXPECT((error == EINVAL || error == ENOMEM) && bad == &wr, "%s", strerror(error));
}

CASE(srq, modify_sets_the_limit) {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_srq> srq = make_srq(pd);
    Buffer memory(pd, 4096);
    for (int i = 0; i < 20; ++i) post_recv(srq, {memory.sge(0, 8)});  // so that the limit is not reached immediately
    ibv_srq_attr attr{0, 0, 10};
    EXPECT_OK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
    EXPECT_OK(ibv_query_srq(srq, &attr));
    EXPECT(attr.srq_limit == 10);
    attr = {0, 0, 100000};
    EXPECT_ERROR(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
    EXPECT(ibv_modify_srq(srq, &attr, 1 << 20) != 0);
}

// `man ibv_modify_srq`: IBV_SRQ_MAX_WR resizes the queue if the device supports it (IBV_DEVICE_SRQ_RESIZE). The posted
// receives stay.
CASE(srq, modify_resizes) {
    Shared t;
    for (uint32_t i = 0; i < 40; ++i) post_recv(t.srq, {t.ends.remote.sge(i * 1000, 1000)}, i);
    ibv_srq_attr attr{500, 0, 0};
    const int error = ibv_modify_srq(t.srq, &attr, IBV_SRQ_MAX_WR);
    if ((device().attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE) == 0 && error != 0)
        skip("not offered: %s", strerror(error));
    EXPECT(error == 0, "%s", strerror(error));
    EXPECT_OK(ibv_query_srq(t.srq, &attr));
    EXPECT(attr.max_wr >= 500);
    for (uint32_t i = 40; i < 400; ++i) post_recv(t.srq, {t.ends.remote.sge(0, 1000)}, i);
    for (uint32_t i = 0; i < 400; ++i) {
        post(t.senders[0], {.sges = {t.ends.local.sge(0, 10)}});
        EXPECT(succeeded(t.cq).wr_id == i);
    }
}

CASE(srq, busy_with_a_queue_pair) {
    Shared t;
    EXPECT_ERROR(ibv_destroy_srq(t.srq), EBUSY);
}

CASE(srq, gathers_of_one_sender_stay_apart) {
    Shared t;
    for (uint32_t i = 0; i < 40; ++i) post_recv(t.srq, {t.ends.remote.sge(i * 1600, 1600)}, i);
    for (uint32_t i = 0; i < 40; ++i) {
        fill(t.ends.local.at(i * 1600), 1500, i);
        post(t.senders[i % 2], {.sges = {t.ends.local.sge(i * 1600, 1500)}, .id = i});
    }
    std::set<uint64_t> used;
    for (int i = 0; i < 40; ++i) {
        const ibv_wc wc = succeeded(t.cq);
        EXPECT(used.insert(wc.wr_id).second && wc.byte_len == 1500);
        bool known = false;
        for (uint32_t k = 0; k < 40 && !known; ++k) known = matches(t.ends.remote.at(wc.wr_id * 1600), 1500, k);
        EXPECT(known, "receive %lu holds no whole message", wc.wr_id);
    }
}
