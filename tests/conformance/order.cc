// SPDX-License-Identifier: Apache-2.0
// The order in which requests of an RC QP take effect: IBTA 9.5, 10.8.3 (table 76, and the fence).
#include <memory>

#include "verbs.h"

using namespace conformance;

CASE(order, completions_of_different_opcodes_keep_it) {
    Ends ends;
    for (int i = 0; i < 20; ++i) post_recv(ends.b, {ends.remote.sge(40000, 100)});
    for (uint64_t i = 0; i < 60; ++i) {
        static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND};
        post(ends.a, {.opcode = kOpcodes[i % 3],
                      .sges = {ends.local.sge(0, i % 3 == 0 ? 8000 : 100)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey(),
                      .id = i});
    }
    for (uint64_t i = 0; i < 60; ++i) EXPECT(succeeded(ends.send_cq).wr_id == i);
}

// A request with IBV_SEND_FENCE waits for the READs before it, so it may send the data that they fetched.
CASE(order, a_fenced_request_sees_what_was_read) {
    Ends ends;
    for (uint32_t i = 0; i < 100; ++i) {
        fill(ends.remote.at(), 8000, i);
        post(ends.a, {.opcode = IBV_WR_RDMA_READ,
                      .sges = {ends.local.sge(0, 8000)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey(),
                      .flags = 0});
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                      .sges = {ends.local.sge(0, 8000)},
                      .to = ends.remote.address(20000),
                      .rkey = ends.remote.rkey(),
                      .flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED});
        succeeded(ends.send_cq);
        EXPECT(matches(ends.remote.at(20000), 8000, i), "round %u", i);
    }
}

CASE(order, a_fenced_request_sees_an_atomics_result) {
    Ends ends;
    auto& value = *reinterpret_cast<uint64_t*>(ends.remote.at());
    for (uint64_t i = 0; i < 100; ++i) {
        value = i * 7;
        post(ends.a, {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                      .sges = {ends.local.sge(0, 8)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey(),
                      .flags = 0,
                      .compare_add = 1});
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                      .sges = {ends.local.sge(0, 8)},
                      .to = ends.remote.address(64),
                      .rkey = ends.remote.rkey(),
                      .flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED});
        succeeded(ends.send_cq);
        EXPECT(*reinterpret_cast<uint64_t*>(ends.remote.at(64)) == i * 7 && value == i * 7 + 1);
    }
}

// IBTA 9.5, C9-..: a receive completion means that the WRITEs before the SEND are in memory.
CASE(order, a_receive_shows_the_writes_before_it) {
    Ends ends;
    for (uint32_t i = 0; i < 200; ++i) {
        post_recv(ends.b, {ends.remote.sge(60000, 8)});
        fill(ends.local.at(), 12000, i);
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                      .sges = {ends.local.sge(0, 12000)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey(),
                      .flags = 0});
        post(ends.a, {.sges = {ends.local.sge(0, 8)}});
        succeeded(ends.peer_recv_cq);
        EXPECT(matches(ends.remote.at(), 12000, i), "round %u", i);
        succeeded(ends.send_cq);
    }
}

CASE(order, immediate_data_shows_the_writes_before_it) {
    Ends ends;
    for (uint32_t i = 0; i < 200; ++i) {
        post_recv(ends.b, {});
        fill(ends.local.at(), 12000, i);
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                      .sges = {ends.local.sge(0, 6000)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey(),
                      .flags = 0});
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                      .sges = {ends.local.sge(6000, 6000)},
                      .to = ends.remote.address(6000),
                      .rkey = ends.remote.rkey(),
                      .imm = i});
        EXPECT(be32toh(succeeded(ends.peer_recv_cq).imm_data) == i);
        EXPECT(matches(ends.remote.at(), 12000, i), "round %u", i);
        succeeded(ends.send_cq);
    }
}

CASE(order, a_later_atomic_sees_an_earlier_write) {
    Ends ends;
    auto& word = *reinterpret_cast<uint64_t*>(ends.local.at());
    for (uint64_t i = 1; i < 100; ++i) {
        word = i << 32;
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                      .sges = {ends.local.sge(0, 8)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey(),
                      .flags = 0});
        post(ends.a, {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                      .sges = {ends.local.sge(64, 8)},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey(),
                      .compare_add = 5});
        succeeded(ends.send_cq);
        EXPECT(*reinterpret_cast<uint64_t*>(ends.local.at(64)) == i << 32);
        EXPECT(*reinterpret_cast<uint64_t*>(ends.remote.at()) == (i << 32) + 5);
    }
}

PAIR(order, a_receive_shows_the_writes_of_another_process) {
    Half half(peer);
    for (uint32_t i = 0; i < 100; ++i) {
        if (peer.first) {
            peer.barrier();
            fill(half.memory.at(), 12000, i);
            post(half.qp, {.opcode = IBV_WR_RDMA_WRITE,
                           .sges = {half.memory.sge(0, 12000)},
                           .to = half.theirs.address,
                           .rkey = half.theirs.rkey,
                           .flags = 0});
            post(half.qp, {.opcode = IBV_WR_SEND_WITH_IMM, .sges = {half.memory.sge(0, 8)}, .imm = i});
            succeeded(half.send_cq);
        } else {
            post_recv(half.qp, {half.memory.sge(60000, 8)});
            peer.barrier();
            EXPECT(be32toh(succeeded(half.recv_cq).imm_data) == i);
            EXPECT(matches(half.memory.at(), 12000, i), "round %u", i);
        }
    }
    peer.barrier();
}

// Low service levels are acknowledged although higher ones keep the port full.
PAIR(order, high_service_levels_do_not_starve_low_ones) {
    Half low(peer, {.mtu = IBV_MTU_4096, .timeout = 13, .retry = 7, .sl = 0});
    std::vector<std::unique_ptr<Half>> high;
    for (int i = 0; i < 4; ++i)
        high.push_back(std::make_unique<Half>(peer, QpOptions{.mtu = IBV_MTU_4096, .timeout = 16, .sl = 7}));
    if (peer.first) {
        // The other process answers our LOW WRITEs between its own HIGH WRITEs, which keep its port full.
        int done = 0;
        for (const double end = now() + 1.5; now() < end; ++done) {
            fill(low.memory.at(), 64, static_cast<uint32_t>(done));
            post(low.qp, {.opcode = IBV_WR_RDMA_WRITE,
                          .sges = {low.memory.sge(0, 64)},
                          .to = low.theirs.address,
                          .rkey = low.theirs.rkey});
            succeeded(low.send_cq, 5);
        }
        EXPECT(done >= 10, "%d", done);
        peer.barrier();
        return;
    }
    std::vector<int> under_way(high.size());
    while (!peer.has_input()) {
        for (size_t i = 0; i < high.size(); ++i) {
            for (; under_way[i] < 16; ++under_way[i])
                post(high[i]->qp, {.opcode = IBV_WR_RDMA_WRITE,
                                   .sges = {high[i]->memory.sge(0, 65536)},
                                   .to = high[i]->theirs.address,
                                   .rkey = high[i]->theirs.rkey});
            ibv_wc wc;
            while (ibv_poll_cq(high[i]->send_cq, 1, &wc) == 1) {
                EXPECT(wc.status == IBV_WC_SUCCESS, "HIGH: %s", ibv_wc_status_str(wc.status));
                --under_way[i];
            }
        }
    }
    peer.barrier();
}
