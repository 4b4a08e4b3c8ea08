// SPDX-License-Identifier: Apache-2.0
// Requests that ibv_post_send refuses: its manual page. On an error, *bad_wr is the first request that was not posted.
// The requests before it are posted.
#include "verbs.h"

using namespace conformance;

namespace {

Work write_of(Ends& ends, uint32_t bytes = 8) {
    return {.opcode = IBV_WR_RDMA_WRITE,
            .sges = {ends.local.sge(0, bytes)},
            .to = ends.remote.address(),
            .rkey = ends.remote.rkey()};
}

}  // namespace

CASE(post_send_args, too_many_sges_are_refused) {
    Ends ends;
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    EXPECT_OK(ibv_query_qp(ends.a, &attr, IBV_QP_CAP, &init));
    Work work = write_of(ends);
    work.sges.assign(init.cap.max_send_sge + 1, ends.local.sge(0, 1));
    const int error = try_post(ends.a, work);
    EXPECT(error == EINVAL || error == ENOMEM, "%s", strerror(error));
    work.sges.resize(init.cap.max_send_sge);
    post(ends.a, work);
    succeeded(ends.send_cq);
}

// IBTA 11.4.1.1 table: posting refuses opcodes that the QP type does not have.
CASE(post_send_args, opcodes_of_other_types_are_refused) {
    Ends uc({.type = IBV_QPT_UC}), ud({.type = IBV_QPT_UD});
    for (ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
        Work work = write_of(uc);
        work.opcode = opcode;
        EXPECT_ERROR(try_post(uc.a, work), EINVAL);
    }
    Owned<ibv_ah> ah = make_ah(ud.pd);
    for (ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
                                 IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
        Work work = write_of(ud);
        work.opcode = opcode;
        work.ah = ah;
        work.qpn = ud.b->qp_num;
        EXPECT_ERROR(try_post(ud.a, work), EINVAL);
    }
    stays_empty(uc.send_cq, 0.01);
    stays_empty(ud.send_cq, 0.01);
}

CASE(post_send_args, unknown_opcode_is_refused) {
    Ends ends;
    Work work = write_of(ends);
    work.opcode = static_cast<ibv_wr_opcode>(13);
    EXPECT_ERROR(try_post(ends.a, work), EINVAL);
}

// `man ibv_post_send`: ENOMEM when the queue is full. The responder has no receive, so no request completes.
CASE(post_send_args, a_full_queue_is_ENOMEM) {
    Ends ends({.send_wr = 8});
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    EXPECT_OK(ibv_query_qp(ends.a, &attr, IBV_QP_CAP, &init));
    const Work send{.sges = {ends.local.sge(0, 8)}};
    uint32_t posted = 0;
    int error = 0;
    // A device may accept more than it reports.
    while (posted < 4 * init.cap.max_send_wr && (error = try_post(ends.a, send)) == 0) ++posted;
    EXPECT(posted >= init.cap.max_send_wr, "%u of %u", posted, init.cap.max_send_wr);
    EXPECT(error == ENOMEM, "%s", strerror(error));
    for (uint32_t i = 0; i < posted; ++i) {
        post_recv(ends.b, {ends.remote.sge(0, 8)});
        succeeded(ends.send_cq);
    }
    post_recv(ends.b, {ends.remote.sge(0, 8)});
    post(ends.a, send);
    succeeded(ends.send_cq);
}

CASE(post_send_args, bad_wr_is_the_first_that_was_not_posted) {
    Ends ends;
    Work works[3] = {write_of(ends), write_of(ends), write_of(ends)};
    works[1].sges.assign(200, ends.local.sge(0, 1));
    ibv_send_wr wrs[3];
    for (int i = 0; i < 3; ++i) {
        works[i].id = static_cast<uint64_t>(i);
        wrs[i] = request(works[i]);
        wrs[i].next = i < 2 ? &wrs[i + 1] : nullptr;
    }
    ibv_send_wr* bad = nullptr;
    EXPECT(ibv_post_send(ends.a, wrs, &bad) != 0);
    EXPECT(bad == &wrs[1]);
    EXPECT(succeeded(ends.send_cq).wr_id == 0);
    stays_empty(ends.send_cq);
}

CASE(post_send_args, a_list_is_posted_in_order) {
    Ends ends;
    Work works[20];
    ibv_send_wr wrs[20], *bad;
    for (int i = 0; i < 20; ++i) {
        works[i] = write_of(ends);
        works[i].id = static_cast<uint64_t>(i);
        wrs[i] = request(works[i]);
        wrs[i].next = i < 19 ? &wrs[i + 1] : nullptr;
    }
    EXPECT_OK(ibv_post_send(ends.a, wrs, &bad));
    for (uint64_t i = 0; i < 20; ++i) EXPECT(succeeded(ends.send_cq).wr_id == i);
}

// The port's max_msg_sz (IBTA 9.7.4.. 2^31 at most). The memory exists, so only the length is wrong.
CASE(post_send_args, more_than_max_msg_sz_is_refused) {
    Ends ends;
    const uint64_t limit = device().port_attr.max_msg_sz;
    if (limit >= UINT32_MAX / 2) skip("max_msg_sz is %lu", limit);
    const size_t bytes = limit / 2 + 4096;
    Memory memory(bytes);
    Owned<ibv_mr> mr = make_mr(ends.pd, memory.at(), bytes, IBV_ACCESS_REMOTE_READ);
    const ibv_sge half{reinterpret_cast<uintptr_t>(memory.at()), static_cast<uint32_t>(bytes), mr->lkey};
    Work work = write_of(ends);
    work.sges = {half, half};
    const int error = try_post(ends.a, work);
    if (error == 0)
        next_is(ends.send_cq, IBV_WC_LOC_LEN_ERR);
    else
        EXPECT(error == EINVAL, "%s", strerror(error));
    EXPECT(all_bytes(ends.remote.at(), 65536, 0));
}

// Lengths whose 32-bit sum wraps to a small number.
CASE(post_send_args, lengths_whose_sum_wraps_are_refused) {
    Ends ends;
    Work work = write_of(ends);
    work.sges = {{ends.local.address(), 0x80000000, ends.local.lkey()},
                 {ends.local.address(), 0x80000008, ends.local.lkey()}};
    const int error = try_post(ends.a, work);
    if (error == 0) EXPECT(next(ends.send_cq).status != IBV_WC_SUCCESS);
    EXPECT(all_bytes(ends.remote.at(), 65536, 0));
}

// IBTA 9.4.5: 8 bytes. A NIC may accept a longer element and use 8 bytes of it, or complete in error.
CASE(post_send_args, an_atomic_is_of_8_bytes) {
    Ends ends;
    std::memset(ends.local.at(), 0x5c, 64);
    Work work{.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
              .sges = {ends.local.sge(0, 4)},
              .to = ends.remote.address(),
              .rkey = ends.remote.rkey(),
              .compare_add = 1};
    const int error = try_post(ends.a, work);
    if (error == 0)
        EXPECT(next(ends.send_cq).status == IBV_WC_LOC_LEN_ERR);
    else
        EXPECT(error == EINVAL, "%s", strerror(error));
    EXPECT(all_bytes(ends.local.at(4), 60, 0x5c));
}

CASE(post_send_args, address_handle_is_needed_by_ud) {
    if (std::strncmp(ibv_get_device_name(device().context->device), "rove", 4) != 0) skip("other libraries crash");
    Ends ends({.type = IBV_QPT_UD});
    ibv_sge sge = ends.local.sge(0, 8);
    ibv_send_wr wr{}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    EXPECT_ERROR(ibv_post_send(ends.a, &wr, &bad), EINVAL);
    EXPECT(bad == &wr);
}
