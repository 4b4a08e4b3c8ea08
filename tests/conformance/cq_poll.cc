// SPDX-License-Identifier: Apache-2.0
// ibv_poll_cq and ibv_start_poll/ibv_next_poll/ibv_end_poll: their manual pages. The order of completions: IBTA 10.8.
#include "verbs.h"

using namespace conformance;

namespace {

Work write_to(Ends& ends, uint64_t id, unsigned flags = IBV_SEND_SIGNALED) {
    return {.opcode = IBV_WR_RDMA_WRITE,
            .sges = {ends.local.sge(0, 8)},
            .to = ends.remote.address(),
            .rkey = ends.remote.rkey(),
            .flags = flags,
            .id = id};
}

Owned<ibv_cq_ex> make_cq_ex(uint64_t flags = IBV_WC_STANDARD_FLAGS) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 64;
    attr.wc_flags = flags;
    ibv_cq_ex* cq = ibv_create_cq_ex(device().context, &attr);
    if (cq == nullptr) skip("the driver makes no extended CQ: %s", strerror(errno));
    return Owned<ibv_cq_ex>(cq);
}

int start(ibv_cq_ex* cq, double patience = 3) {
    ibv_poll_cq_attr attr{};
    int result = ENOENT;
    poll_until([&] { return (result = ibv_start_poll(cq, &attr)) != ENOENT; }, patience);
    return result;
}

}  // namespace

CASE(cq_poll, an_empty_cq_gives_0) {
    Owned<ibv_cq> cq = make_cq();
    ibv_wc wc[4];
    EXPECT(ibv_poll_cq(cq, 4, wc) == 0);
    EXPECT(ibv_poll_cq(cq, 0, wc) == 0);
}

CASE(cq_poll, completions_come_in_the_order_of_posting) {
    Ends ends;
    for (uint64_t i = 0; i < 50; ++i) post(ends.a, write_to(ends, 1000 + i));
    for (uint64_t i = 0; i < 50; ++i) EXPECT(succeeded(ends.send_cq).wr_id == 1000 + i);
    stays_empty(ends.send_cq);
}

CASE(cq_poll, no_more_than_asked_for) {
    Ends ends;
    for (uint64_t i = 0; i < 10; ++i) post(ends.a, write_to(ends, i));
    succeeded(ends.send_cq);
    sleep_for(0.05);
    uint64_t next_id = 1;
    ibv_wc wc[3];
    EXPECT(poll_until([&] {
        const int got = ibv_poll_cq(ends.send_cq, 3, wc);
        EXPECT(got >= 0 && got <= 3);
        for (int i = 0; i < got; ++i) EXPECT(wc[i].wr_id == next_id++ && wc[i].status == IBV_WC_SUCCESS);
        return next_id == 10;
    }));
}

CASE(cq_poll, a_send_completion_names_its_request) {
    Ends ends;
    post(ends.a, write_to(ends, 0xfedcba9876543210));
    const ibv_wc wc = succeeded(ends.send_cq);
    EXPECT(wc.wr_id == 0xfedcba9876543210 && wc.opcode == IBV_WC_RDMA_WRITE && wc.qp_num == ends.a->qp_num);
}

CASE(cq_poll, every_opcode_is_named) {
    Ends ends;
    const std::pair<ibv_wr_opcode, ibv_wc_opcode> opcodes[] = {{IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE},
                                                               {IBV_WR_RDMA_READ, IBV_WC_RDMA_READ},
                                                               {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD},
                                                               {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP},
                                                               {IBV_WR_SEND, IBV_WC_SEND},
                                                               {IBV_WR_SEND_WITH_IMM, IBV_WC_SEND},
                                                               {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE}};
    for (int i = 0; i < 3; ++i) post_recv(ends.b, {ends.remote.sge(4096, 64)});
    for (const auto& [request, completion] : opcodes) {
        post(ends.a, {.opcode = request,
                      .sges = {ends.local.sge(0, 8)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey()});
        const ibv_wc wc = succeeded(ends.send_cq);
        EXPECT(wc.opcode == completion, "request %d gives %d", request, wc.opcode);
    }
    EXPECT(succeeded(ends.peer_recv_cq).opcode == IBV_WC_RECV);
    EXPECT(succeeded(ends.peer_recv_cq).opcode == IBV_WC_RECV);
    EXPECT(succeeded(ends.peer_recv_cq).opcode == IBV_WC_RECV_RDMA_WITH_IMM);
}

CASE(cq_poll, a_receive_completion_has_length_and_qp) {
    Ends ends;
    post_recv(ends.b, {ends.remote.sge(0, 1000)}, 77);
    post(ends.a, {.sges = {ends.local.sge(0, 123)}});
    const ibv_wc wc = succeeded(ends.peer_recv_cq);
    EXPECT(wc.wr_id == 77 && wc.byte_len == 123 && wc.qp_num == ends.b->qp_num && wc.opcode == IBV_WC_RECV &&
           wc.wc_flags == 0);
}

// `man ibv_poll_cq`: byte_len of READs and atomics is the number of bytes written locally.
CASE(cq_poll, a_read_completion_has_its_length) {
    Ends ends;
    post(ends.a, {.opcode = IBV_WR_RDMA_READ,
                  .sges = {ends.local.sge(0, 3000)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    EXPECT(succeeded(ends.send_cq).byte_len == 3000);
    post(ends.a, {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                  .sges = {ends.local.sge(0, 8)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey(),
                  .compare_add = 1});
    EXPECT(succeeded(ends.send_cq).byte_len == 8);
}

CASE(cq_poll, an_unsignaled_request_gives_none) {
    Ends ends;
    post(ends.a, write_to(ends, 1, 0));
    post(ends.a, write_to(ends, 2, 0));
    post(ends.a, write_to(ends, 3));
    EXPECT(succeeded(ends.send_cq).wr_id == 3);
    stays_empty(ends.send_cq);
}

CASE(cq_poll, sq_sig_all_signals_every_request) {
    Ends ends({.sq_sig_all = 1});
    post(ends.a, write_to(ends, 1, 0));
    post(ends.a, write_to(ends, 2, 0));
    EXPECT(succeeded(ends.send_cq).wr_id == 1);
    EXPECT(succeeded(ends.send_cq).wr_id == 2);
}

// IBTA 10.8.2.1: a failed request completes, signaled or not. The requests behind it are flushed, and also complete.
CASE(cq_poll, failures_are_reported_though_unsignaled) {
    Ends ends;
    Work bad = write_to(ends, 1, 0);
    bad.rkey ^= 0x5a5a5a;
    post(ends.a, bad);
    post(ends.a, write_to(ends, 2, 0));
    EXPECT(next_is(ends.send_cq, IBV_WC_REM_ACCESS_ERR).wr_id == 1);
    const ibv_wc wc = next_is(ends.send_cq, IBV_WC_WR_FLUSH_ERR);
    EXPECT(wc.wr_id == 2 && wc.qp_num == ends.a->qp_num);
    stays_empty(ends.send_cq);
}

// `man ibv_post_send`: a signaled completion frees the unsignaled requests before it, so a ring with one signaled
// request in four never fills up.
CASE(cq_poll, unsignaled_requests_free_their_places) {
    Ends ends({.send_wr = 8});
    for (uint64_t i = 0; i < 400; ++i) {
        post(ends.a, write_to(ends, i, i % 4 == 3 ? IBV_SEND_SIGNALED : 0));
        if (i % 4 == 3) EXPECT(succeeded(ends.send_cq).wr_id == i);
    }
}

CASE(cq_poll, two_queues_may_share_a_cq) {
    Ends ends;
    Owned<ibv_cq> cq = make_cq();
    Owned<ibv_qp> a = make_qp(ends.pd, cq, cq), b = make_qp(ends.pd, cq, cq);
    connect(a, b, {});
    post_recv(b, {ends.remote.sge(0, 100)}, 2);
    post(a, {.sges = {ends.local.sge(0, 10)}, .id = 1});
    bool seen[3] = {};
    for (int i = 0; i < 2; ++i) {
        const ibv_wc wc = succeeded(cq);
        EXPECT(wc.wr_id <= 2 && !seen[wc.wr_id]);
        seen[wc.wr_id] = true;
        EXPECT(wc.qp_num == (wc.wr_id == 1 ? a->qp_num : b->qp_num));
    }
}

CASE(cq_poll, start_poll_of_an_empty_cq_is_ENOENT) {
    Owned<ibv_cq_ex> cq = make_cq_ex();
    ibv_poll_cq_attr attr{};
    EXPECT_ERROR(ibv_start_poll(cq, &attr), ENOENT);
    // `man ibv_start_poll`: comp_mask is checked.
    attr.comp_mask = 1;
    EXPECT_ERROR(ibv_start_poll(cq, &attr), EINVAL);
}

CASE(cq_poll, extended_poll_walks_the_completions) {
    Owned<ibv_cq_ex> cq = make_cq_ex();
    Ends ends;
    Owned<ibv_qp> a = make_qp(ends.pd, ibv_cq_ex_to_cq(cq), ends.recv_cq),
                  b = make_qp(ends.pd, ends.peer_send_cq, ibv_cq_ex_to_cq(cq));
    connect(a, b, {});
    post_recv(b, {ends.remote.sge(0, 100)}, 50);
    post(a, {.opcode = IBV_WR_SEND_WITH_IMM, .sges = {ends.local.sge(0, 33)}, .imm = 0xabcd1234, .id = 40});
    bool sent = false, received = false;
    for (int i = 0; i < 2; ++i) {
        EXPECT(start(cq) == 0);
        EXPECT(cq->status == IBV_WC_SUCCESS);
        if (cq->wr_id == 40) {
            EXPECT(ibv_wc_read_opcode(cq) == IBV_WC_SEND && ibv_wc_read_qp_num(cq) == a->qp_num);
            sent = true;
        } else {
            EXPECT(cq->wr_id == 50 && ibv_wc_read_opcode(cq) == IBV_WC_RECV && ibv_wc_read_byte_len(cq) == 33);
            EXPECT(ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM && be32toh(ibv_wc_read_imm_data(cq)) == 0xabcd1234);
            EXPECT(ibv_wc_read_qp_num(cq) == b->qp_num);
            received = true;
        }
        ibv_end_poll(cq);
    }
    EXPECT(sent && received);
}

CASE(cq_poll, next_poll_ends_with_ENOENT) {
    Owned<ibv_cq_ex> cq = make_cq_ex();
    Ends ends;
    Owned<ibv_qp> a = make_qp(ends.pd, ibv_cq_ex_to_cq(cq), ends.recv_cq),
                  b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
    connect(a, b, {});
    for (uint64_t i = 0; i < 5; ++i) post(a, write_to(ends, i));
    sleep_for(0.05);
    uint64_t seen = 0;
    EXPECT(poll_until([&] {
        if (start(cq, 0.1) != 0) return false;
        do EXPECT(cq->wr_id == seen++ && cq->status == IBV_WC_SUCCESS);
        while (ibv_next_poll(cq) == 0);
        ibv_end_poll(cq);
        return seen == 5;
    }));
}

CASE(cq_poll, completion_timestamps_grow) {
    Owned<ibv_cq_ex> cq = make_cq_ex(uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
    Ends ends;
    Owned<ibv_qp> a = make_qp(ends.pd, ibv_cq_ex_to_cq(cq), ends.recv_cq),
                  b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
    connect(a, b, {});
    uint64_t last = 0;
    for (int i = 0; i < 3; ++i) {
        post(a, write_to(ends, 1));
        EXPECT(start(cq) == 0);
        const uint64_t time = ibv_wc_read_completion_ts(cq);
        ibv_end_poll(cq);
        EXPECT(i == 0 || time > last, "%lu after %lu", time, last);
        last = time;
        sleep_for(0.002);
    }
}

// `man ibv_create_cq_ex`: the wall-clock time of the completion, not of the poll.
CASE(cq_poll, wallclock_timestamps_belong_to_their_completions) {
    Owned<ibv_cq_ex> cq = make_cq_ex(uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
    Ends ends;
    Owned<ibv_qp> a = make_qp(ends.pd, ibv_cq_ex_to_cq(cq), ends.recv_cq),
                  b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
    connect(a, b, {});
    const auto wall_ns = [] {
        timespec now{};
        clock_gettime(CLOCK_REALTIME, &now);
        return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
    };
    uint64_t last = wall_ns() - 1'000'000;
    int seen = 0;
    for (int batch = 0; batch < 100; ++batch) {
        for (int i = 0; i < 20; ++i) post(a, write_to(ends, 1));
        EXPECT(poll_until([&] {
            if (start(cq, 0.1) != 0) return false;
            do {
                const uint64_t time = ibv_wc_read_completion_wallclock_ns(cq);
                for (int i = 0; i < 3; ++i) EXPECT(ibv_wc_read_completion_wallclock_ns(cq) == time);
                EXPECT(time >= last, "%lu after %lu", time, last);
                last = time;
                ++seen;
            } while (ibv_next_poll(cq) == 0);
            ibv_end_poll(cq);
            return seen == 20 * (batch + 1);
        }));
    }
    EXPECT(last < wall_ns() + 1'000'000);
}
