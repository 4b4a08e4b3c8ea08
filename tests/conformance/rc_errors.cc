// SPDX-License-Identifier: Apache-2.0
// RC connections whose peer is absent or refuses requests: IBTA 9.7.6, 9.9, 10.3.1.6.
#include <unistd.h>

#include <csignal>

#include "verbs.h"

using namespace conformance;

namespace {

// A short timeout: 2 x (4.096 us x 2^12 = 17 ms), if the device can keep it.
constexpr QpOptions kImpatient{.timeout = 12, .retry = 1};

Work write_of(Ends& ends, uint64_t id = 1, unsigned flags = IBV_SEND_SIGNALED) {
    return {.opcode = IBV_WR_RDMA_WRITE,
            .sges = {ends.local.sge(0, 8)},
            .to = ends.remote.address(),
            .rkey = ends.remote.rkey(),
            .flags = flags,
            .id = id};
}

}  // namespace

CASE(rc_errors, a_peer_that_is_gone_is_noticed) {
    Ends ends(kImpatient);
    EXPECT_OK(ends.b.destroy());
    const double begun = now();
    post(ends.a, write_of(ends));
    next_is(ends.send_cq, IBV_WC_RETRY_EXC_ERR, 15);
    EXPECT(now() - begun > 0.015, "given up after %.4f s", now() - begun);
    EXPECT(state_of(ends.a) == IBV_QPS_ERR);
}

// IBTA 9.7.6.1.3 (C9-141): a timeout takes between Tr and 4 Tr, here Tr = 67.1 ms, and six timeouts end the request
// (9.9.2.1). This also holds for a program that polls rarely. The limit is 1.61 s, and one second more for a busy
// machine.
CASE(rc_errors, a_silent_peer_is_noticed_in_time_by_who_seldom_polls) {
    Ends ends({.timeout = 14, .retry = 5});
    to_state(ends.b, IBV_QPS_ERR);
    const double begun = now();
    post(ends.a, write_of(ends));
    ibv_wc wc{};
    EXPECT(poll_until([&] { return sleep_for(0.01), ibv_poll_cq(ends.send_cq, 1, &wc) == 1; }, 15));
    EXPECT(wc.status == IBV_WC_RETRY_EXC_ERR, "%s", ibv_wc_status_str(wc.status));
    EXPECT(now() - begun > 6 * 0.067 && now() - begun < 6 * 4 * 0.0672 + 1, "after %.2f s", now() - begun);
}

CASE(rc_errors, requests_behind_a_failure_are_flushed) {
    Ends ends(kImpatient);
    to_state(ends.b, IBV_QPS_RESET);
    for (uint64_t i = 0; i < 5; ++i) post(ends.a, write_of(ends, i, i == 0 ? IBV_SEND_SIGNALED : 0));
    post_recv(ends.a, {ends.local.sge(0, 8)}, 50);
    EXPECT(next_is(ends.send_cq, IBV_WC_RETRY_EXC_ERR, 15).wr_id == 0);
    for (uint64_t i = 1; i < 5; ++i) EXPECT(next_is(ends.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == i);
    EXPECT(next_is(ends.recv_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 50);
}

// IBTA 9.7.6.1.3: with timeout 0 the requester waits forever.
CASE(rc_errors, timeout_0_does_not_give_up) {
    Ends ends({.timeout = 0, .retry = 0});
    EXPECT_OK(ends.b.destroy());
    post(ends.a, write_of(ends));
    stays_empty(ends.send_cq, 0.7);
    EXPECT(state_of(ends.a) == IBV_QPS_RTS);
}

// A peer that returns in time is reached again, and no data is lost.
CASE(rc_errors, a_peer_that_comes_late_is_reached) {
    Ends ends;
    Owned<ibv_qp> a = make_qp(ends.pd, ends.send_cq, ends.recv_cq),
                  b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
    bring_up(a, {}, device().gid, b->qp_num);
    fill(ends.local.at(), 8, 6);
    post(a, write_of(ends));
    sleep_for(0.15);
    bring_up(b, {}, device().gid, a->qp_num);
    succeeded(ends.send_cq);
    EXPECT(matches(ends.remote.at(), 8, 6));
}

// IBTA 9.9.2.4.1 and 9.7.5.2: a request that the responder's QP does not allow.
CASE(rc_errors, an_access_the_qp_does_not_allow) {
    const std::pair<ibv_wr_opcode, unsigned> requests[] = {{IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE},
                                                           {IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ},
                                                           {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC}};
    for (const auto& [opcode, right] : requests) {
        Ends ends({.access = kAllAccess & ~right});
        Work work = write_of(ends);
        work.opcode = opcode;
        post(ends.a, work);
        const ibv_wc_status status = next(ends.send_cq).status;
        // IBTA specifies an invalid request (the QP does not support the operation). rxe and mlx5 report an access
        // error for some.
        EXPECT(status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR, "opcode %d: %s", opcode,
               ibv_wc_status_str(status));
        EXPECT(all_bytes(ends.remote.at(), 64, 0));
    }
}

CASE(rc_errors, other_connections_go_on) {
    Ends ends(kImpatient), others;
    EXPECT_OK(ends.b.destroy());
    for (uint64_t i = 0; i < 5; ++i) post(ends.a, write_of(ends, i));
    for (uint32_t i = 0; i < 100; ++i) {
        fill(others.local.at(), 2000, i);
        post(others.a, {.opcode = IBV_WR_RDMA_WRITE,
                        .sges = {others.local.sge(0, 2000)},
                        .to = others.remote.address(),
                        .rkey = others.remote.rkey()});
        succeeded(others.send_cq);
        EXPECT(matches(others.remote.at(), 2000, i));
    }
}

// Requests before the failed one are executed; requests behind it are not.
CASE(rc_errors, what_was_before_the_failure_is_done) {
    Ends ends;
    fill(ends.local.at(), 64, 1);
    Work works[3] = {write_of(ends, 0), write_of(ends, 1), write_of(ends, 2)};
    works[1].rkey ^= 0x5a5a5a;
    works[2].to += 512;
    for (const Work& work : works) post(ends.a, work);
    EXPECT(succeeded(ends.send_cq).wr_id == 0);
    EXPECT(next_is(ends.send_cq, IBV_WC_REM_ACCESS_ERR).wr_id == 1);
    EXPECT(next_is(ends.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 2);
    EXPECT(matches(ends.remote.at(), 8, 1) && all_bytes(ends.remote.at(512), 8, 0));
}

// A connection accepts packets of its own peer only (IBTA 9.6.1.. : the packet's source and the QP's pair).
CASE(rc_errors, a_stranger_is_not_answered) {
    Ends ends;
    Owned<ibv_qp> stranger = make_qp(ends.pd, ends.send_cq, ends.recv_cq);
    bring_up(stranger, {.psn = 0x500000, .timeout = 12, .retry = 1}, device().gid, ends.b->qp_num);
    fill(ends.local.at(), 8, 9);
    post(stranger, {.opcode = IBV_WR_RDMA_WRITE,
                    .sges = {ends.local.sge(0, 8)},
                    .to = ends.remote.address(),
                    .rkey = ends.remote.rkey(),
                    .id = 5});
    next_is(ends.send_cq, IBV_WC_RETRY_EXC_ERR, 15);
    EXPECT(all_bytes(ends.remote.at(), 8, 0));
    post(ends.a, write_of(ends));  // the stranger has done no harm
    succeeded(ends.send_cq);
    EXPECT(matches(ends.remote.at(), 8, 9));
}

DOOMED(rc_errors, a_killed_peer_is_noticed) {
    QpOptions options = kImpatient;
    Half half(peer, options);
    const pid_t pid = peer.exchange(getpid());
    if (!peer.first) {
        sleep_for(30);
        fail("nobody killed us");
    }
    post(half.qp, {.opcode = IBV_WR_RDMA_WRITE,
                   .sges = {half.memory.sge(0, 8)},
                   .to = half.theirs.address,
                   .rkey = half.theirs.rkey});
    succeeded(half.send_cq);
    EXPECT(kill(pid, SIGKILL) == 0);
    sleep_for(0.05);
    for (uint64_t i = 0; i < 3; ++i)
        post(half.qp, {.opcode = IBV_WR_RDMA_WRITE,
                       .sges = {half.memory.sge(0, 8)},
                       .to = half.theirs.address,
                       .rkey = half.theirs.rkey,
                       .id = i});
    EXPECT(next_is(half.send_cq, IBV_WC_RETRY_EXC_ERR, 15).wr_id == 0);
    EXPECT(next_is(half.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 1);
    EXPECT(next_is(half.send_cq, IBV_WC_WR_FLUSH_ERR).wr_id == 2);
    EXPECT(state_of(half.qp) == IBV_QPS_ERR);
}

// The peer's program moves its QP to the error state during traffic.
PAIR(rc_errors, a_peer_in_error_is_noticed) {
    Half half(peer, kImpatient);
    if (!peer.first) {
        to_state(half.qp, IBV_QPS_ERR);
        peer.barrier();
        peer.barrier();
        return;
    }
    peer.barrier();
    post(half.qp, {.opcode = IBV_WR_RDMA_WRITE,
                   .sges = {half.memory.sge(0, 8)},
                   .to = half.theirs.address,
                   .rkey = half.theirs.rkey});
    next_is(half.send_cq, IBV_WC_RETRY_EXC_ERR, 15);
    peer.barrier();
}

// 0.3 s of silence are less than 8 x 67 ms, so the connection continues where it stopped. (A NIC answers in the
// meantime in place of its program.)
PAIR(rc_errors, a_peer_that_stands_still_for_a_while_is_awaited) {
    Half half(peer, {.timeout = 14, .retry = 7});
    const pid_t pid = peer.exchange(getpid());
    if (!peer.first) {
        peer.barrier();
        EXPECT(matches(half.memory.at(), 30000, 19));
        peer.barrier();
        return;
    }
    for (uint32_t i = 0; i < 20; ++i) {
        if (i == 10) {
            EXPECT(kill(pid, SIGSTOP) == 0);
            post(half.qp, {.opcode = IBV_WR_RDMA_WRITE,
                           .sges = {half.memory.sge(0, 30000)},
                           .to = half.theirs.address,
                           .rkey = half.theirs.rkey});
            sleep_for(0.3);
            EXPECT(kill(pid, SIGCONT) == 0);
            succeeded(half.send_cq);
        }
        fill(half.memory.at(), 30000, i);
        post(half.qp, {.opcode = IBV_WR_RDMA_WRITE,
                       .sges = {half.memory.sge(0, 30000)},
                       .to = half.theirs.address,
                       .rkey = half.theirs.rkey});
        succeeded(half.send_cq);
    }
    peer.barrier();
    peer.barrier();
}
