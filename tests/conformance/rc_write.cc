// SPDX-License-Identifier: Apache-2.0
// RDMA WRITE over RC: IBTA 9.4.3.
#include <sys/mman.h>
#include <unistd.h>

#include "verbs.h"

using namespace conformance;

CASE(rc_write, every_size_and_alignment_arrives_whole) {
    Ends ends;
    for (uint32_t bytes : {1u, 2u, 7u, 63u, 256u, 1023u, 1024u, 1025u, 4095u, 4096u, 4097u, 20001u}) {
        for (size_t offset : {size_t{0}, size_t{1}, size_t{3}, size_t{4093}}) {
            std::memset(ends.remote.at(), 0, 65536);
            fill(ends.local.at(offset), bytes, bytes + static_cast<uint32_t>(offset));
            post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                          .sges = {ends.local.sge(offset, bytes)},
                          .to = ends.remote.address(offset + 2),
                          .rkey = ends.remote.rkey()});
            succeeded(ends.send_cq);
            EXPECT(matches(ends.remote.at(offset + 2), bytes, bytes + static_cast<uint32_t>(offset)), "%u bytes at %zu",
                   bytes, offset);
            EXPECT(ends.remote.at()[offset + 1] == 0 && ends.remote.at()[offset + 2 + bytes] == 0);
        }
    }
}

CASE(rc_write, at_every_path_mtu) {
    for (int mtu = IBV_MTU_256; mtu <= device().port_attr.active_mtu; ++mtu) {
        Ends ends({.mtu = static_cast<ibv_mtu>(mtu)});
        fill(ends.local.at(), 30000, static_cast<uint32_t>(mtu));
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                      .sges = {ends.local.sge(0, 30000)},
                      .to = ends.remote.address(1),
                      .rkey = ends.remote.rkey()});
        succeeded(ends.send_cq);
        EXPECT(matches(ends.remote.at(1), 30000, static_cast<uint32_t>(mtu)));
    }
}

CASE(rc_write, by_every_gid) {
    const Device ours = device();
    for (int index = 0; index < ours.port_attr.gid_tbl_len && index < 16; ++index) {
        ibv_gid_entry entry;
        if (ibv_query_gid_ex(ours.context, ours.port, static_cast<uint32_t>(index), &entry, 0) != 0) continue;
        Owned<ibv_pd> pd = make_pd();
        Owned<ibv_cq> cq = make_cq(), other = make_cq();
        Buffer source(pd, 4096), target(pd, 4096);
        Owned<ibv_qp> a = make_qp(pd, cq, cq), b = make_qp(pd, other, other);
        for (auto [qp, to] : {std::pair<ibv_qp*, ibv_qp*>{a, b}, {b, a}}) {
            to_init(qp);
            ibv_qp_attr attr = rtr_attr({}, entry.gid, to->qp_num);
            attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(index);
            EXPECT_OK(modify(qp, attr, rtr_mask(IBV_QPT_RC)));
            to_rts(qp, {});
        }
        fill(source.at(), 4096, static_cast<uint32_t>(index));
        post(a, {.opcode = IBV_WR_RDMA_WRITE,
                 .sges = {source.sge(0, 4096)},
                 .to = target.address(),
                 .rkey = target.rkey()});
        succeeded(cq);
        EXPECT(matches(target.at(), 4096, static_cast<uint32_t>(index)), "GID %d", index);
    }
}

CASE(rc_write, gathered_from_elements) {
    Ends ends;
    fill(ends.local.at(), 10000, 1);
    post(ends.a,
         {.opcode = IBV_WR_RDMA_WRITE,
          .sges = {ends.local.sge(0, 1), ends.local.sge(1, 2047), ends.local.sge(2048, 3), ends.local.sge(2051, 7949)},
          .to = ends.remote.address(),
          .rkey = ends.remote.rkey()});
    succeeded(ends.send_cq);
    EXPECT(matches(ends.remote.at(), 10000, 1));
}

// IBTA 9.5: WRITEs of one QP are executed in order, so the last one determines the result.
CASE(rc_write, later_writes_win) {
    Ends ends;
    for (uint32_t i = 0; i < 40; ++i) {
        fill(ends.local.at(), 1000, i);
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                      .sges = {ends.local.sge(0, 1000)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey()});
        succeeded(ends.send_cq);
    }
    EXPECT(matches(ends.remote.at(), 1000, 39));
    for (uint8_t i = 0; i < 60; ++i) {
        ends.local.at()[i] = i;
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                      .sges = {ends.local.sge(i, 1)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey()});
    }
    for (int i = 0; i < 60; ++i) succeeded(ends.send_cq);
    EXPECT(ends.remote.at()[0] == 59);
}

CASE(rc_write, immediate_data_takes_a_receive) {
    Ends ends;
    post_recv(ends.b, {ends.remote.sge(40000, 100)}, 7);
    fill(ends.local.at(), 3000, 1);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                  .sges = {ends.local.sge(0, 3000)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey(),
                  .imm = 42});
    succeeded(ends.send_cq);
    const ibv_wc wc = succeeded(ends.peer_recv_cq);
    EXPECT(wc.wr_id == 7 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 3000 &&
           be32toh(wc.imm_data) == 42);
    EXPECT(matches(ends.remote.at(), 3000, 1));
    EXPECT(all_bytes(ends.remote.at(40000), 100, 0), "the receive's own memory is not used");
}

// A message with a bad key fails at its first packet. The receive completes in error or is flushed, but never succeeds.
CASE(rc_write, immediate_with_a_bad_key_fails_the_receive) {
    Ends ends;
    post_recv(ends.b, {ends.remote.sge(40000, 100)}, 7);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                  .sges = {ends.local.sge(0, 100)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey() ^ 0x5a5a5a,
                  .imm = 42});
    next_is(ends.send_cq, IBV_WC_REM_ACCESS_ERR);
    const ibv_wc wc = next(ends.peer_recv_cq);
    EXPECT(wc.wr_id == 7 && wc.status != IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
    EXPECT(all_bytes(ends.remote.at(), 200, 0));
}

CASE(rc_write, a_message_of_1_gib_arrives) {
    Ends ends({.mtu = IBV_MTU_4096});
    constexpr uint32_t kBytes = 1u << 30;
    constexpr size_t kPiece = 16u << 20;
    if (device().port_attr.max_msg_sz < kBytes) skip("max_msg_sz is %u", device().port_attr.max_msg_sz);
    Memory source(kBytes), target(kBytes);  // maps 16 MiB each 64 times, to use little memory
    const int files[2] = {memfd_create("source", 0), memfd_create("target", 0)};
    Memory* memories[2] = {&source, &target};
    for (int i = 0; i < 2; ++i) {
        EXPECT(ftruncate(files[i], kPiece) == 0);
        for (size_t at = 0; at < kBytes; at += kPiece)
            EXPECT(mmap(memories[i]->at(at), kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, files[i], 0) !=
                   MAP_FAILED);
        close(files[i]);
    }
    fill(source.at(), kPiece, 1);
    Owned<ibv_mr> from = make_mr(ends.pd, source.at(), kBytes), to = make_mr(ends.pd, target.at(), kBytes);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {{reinterpret_cast<uintptr_t>(source.at()), kBytes, from->lkey}},
                  .to = reinterpret_cast<uintptr_t>(target.at()),
                  .rkey = to->rkey});
    succeeded(ends.send_cq, 55);
    EXPECT(matches(target.at(), kPiece, 1));
}

PAIR(rc_write, to_another_process) {
    Half half(peer);
    fill(half.memory.at(), 20000, peer.first ? 1 : 2);
    post(half.qp, {.opcode = IBV_WR_RDMA_WRITE,
                   .sges = {half.memory.sge(0, 20000)},
                   .to = half.theirs.address + 30000,
                   .rkey = half.theirs.rkey});
    succeeded(half.send_cq);
    peer.barrier();
    EXPECT(matches(half.memory.at(30000), 20000, peer.first ? 2 : 1));
    peer.barrier();
}

// A NIC serves its peers even while its program computes.
PAIR(rc_write, a_target_that_computes_is_served) {
    Half half(peer);
    if (!peer.first) {
        volatile uint64_t work = 0;
        while (!peer.has_input())
            for (int i = 0; i < 100000; ++i) work = work + 1;
        peer.barrier();
        return;
    }
    for (uint32_t i = 0; i < 200; ++i) {
        fill(half.memory.at(), 64, i);
        post(half.qp, {.opcode = IBV_WR_RDMA_WRITE,
                       .sges = {half.memory.sge(0, 64)},
                       .to = half.theirs.address,
                       .rkey = half.theirs.rkey});
        succeeded(half.send_cq);
        post(half.qp, {.opcode = IBV_WR_RDMA_READ,
                       .sges = {half.memory.sge(1000, 64)},
                       .to = half.theirs.address,
                       .rkey = half.theirs.rkey});
        succeeded(half.send_cq);
        EXPECT(matches(half.memory.at(1000), 64, i));
    }
    peer.barrier();
}
