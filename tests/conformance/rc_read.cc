// SPDX-License-Identifier: Apache-2.0
// RDMA READ over RC: IBTA 9.4.4, 9.7.3.. (limits of READs in flight).
#include "verbs.h"

using namespace conformance;

CASE(rc_read, every_size_and_alignment_arrives_whole) {
    Ends ends;
    for (uint32_t bytes : {1u, 7u, 256u, 1023u, 1024u, 1025u, 4097u, 20001u}) {
        for (size_t offset : {size_t{0}, size_t{1}, size_t{4093}}) {
            std::memset(ends.local.at(), 0, 65536);
            fill(ends.remote.at(offset), bytes, bytes);
            post(ends.a, {.opcode = IBV_WR_RDMA_READ,
                          .sges = {ends.local.sge(offset + 3, bytes)},
                          .to = ends.remote.address(offset),
                          .rkey = ends.remote.rkey()});
            succeeded(ends.send_cq);
            EXPECT(matches(ends.local.at(offset + 3), bytes, bytes), "%u bytes at %zu", bytes, offset);
            EXPECT(ends.local.at()[offset + 2] == 0 && ends.local.at()[offset + 3 + bytes] == 0);
        }
    }
}

CASE(rc_read, scattered_to_elements) {
    Ends ends;
    fill(ends.remote.at(), 9000, 4);
    post(ends.a, {.opcode = IBV_WR_RDMA_READ,
                  .sges = {ends.local.sge(0, 1), ends.local.sge(1, 3000), ends.local.sge(3001, 5999)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    succeeded(ends.send_cq);
    EXPECT(matches(ends.local.at(), 9000, 4));
}

// READs beyond the limit of the peer wait at the requester, and no READ is refused.
CASE(rc_read, more_than_the_limit_wait) {
    Ends ends({.rd_atomic = 1});
    fill(ends.remote.at(), 64 * 1000, 4);
    for (uint32_t i = 0; i < 60; ++i)
        post(ends.a, {.opcode = IBV_WR_RDMA_READ,
                      .sges = {ends.local.sge(i * 1000, 1000)},
                      .to = ends.remote.address(i * 1000),
                      .rkey = ends.remote.rkey(),
                      .id = i});
    for (uint32_t i = 0; i < 60; ++i) EXPECT(succeeded(ends.send_cq).wr_id == i);
    EXPECT(matches(ends.local.at(), 60000, 4));
}

// IBTA 9.7.3: a responder without resources for READs refuses a READ. A requester whose own limit is 0 cannot post one.
// Devices refuse it at posting, or complete it in error.
CASE(rc_read, without_responder_resources_is_an_error) {
    Ends ends;
    Owned<ibv_qp> a = make_qp(ends.pd, ends.send_cq, ends.recv_cq),
                  b = make_qp(ends.pd, ends.peer_send_cq, ends.peer_recv_cq);
    to_init(a);
    to_init(b);
    to_rtr(a, {}, device().gid, b->qp_num);
    to_rtr(b, {.rd_atomic = 0}, device().gid, a->qp_num);
    to_rts(a, {});
    to_rts(b, {});
    post(a, {.opcode = IBV_WR_RDMA_READ,
             .sges = {ends.local.sge(0, 8)},
             .to = ends.remote.address(),
             .rkey = ends.remote.rkey()});
    const ibv_wc_status status = next(ends.send_cq).status;
    EXPECT(status == IBV_WC_REM_INV_REQ_ERR, "%s", ibv_wc_status_str(status));
}

CASE(rc_read, reads_the_state_after_earlier_writes) {
    Ends ends;
    for (uint32_t i = 0; i < 50; ++i) {
        fill(ends.local.at(), 2000, i);
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                      .sges = {ends.local.sge(0, 2000)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey(),
                      .flags = 0});
        post(ends.a, {.opcode = IBV_WR_RDMA_READ,
                      .sges = {ends.local.sge(32768, 2000)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey()});
        succeeded(ends.send_cq);
        EXPECT(matches(ends.local.at(32768), 2000, i));
    }
}

PAIR(rc_read, from_another_process) {
    Half half(peer);
    fill(half.memory.at(), 20000, peer.first ? 1 : 2);
    peer.barrier();
    post(half.qp, {.opcode = IBV_WR_RDMA_READ,
                   .sges = {half.memory.sge(30000, 20000)},
                   .to = half.theirs.address,
                   .rkey = half.theirs.rkey});
    succeeded(half.send_cq);
    EXPECT(matches(half.memory.at(30000), 20000, peer.first ? 2 : 1));
    peer.barrier();
}
