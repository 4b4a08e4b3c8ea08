// SPDX-License-Identifier: Apache-2.0
// Unreliable connections: IBTA 9.8.3: a message that cannot be executed is dropped silently, and the QP continues.
#include "verbs.h"

using namespace conformance;

namespace {
constexpr QpOptions kUc{.type = IBV_QPT_UC};
}

CASE(uc, sends_and_writes_arrive) {
    Ends ends(kUc);
    fill(ends.local.at(), 20000, 1);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 20000)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    post_recv(ends.b, {ends.remote.sge(32768, 30000)});
    post(ends.a, {.opcode = IBV_WR_SEND_WITH_IMM, .sges = {ends.local.sge(0, 20000)}, .imm = 9});
    succeeded(ends.send_cq);
    succeeded(ends.send_cq);
    const ibv_wc wc = succeeded(ends.peer_recv_cq);
    EXPECT(wc.byte_len == 20000 && be32toh(wc.imm_data) == 9);
    EXPECT(matches(ends.remote.at(), 20000, 1) && matches(ends.remote.at(32768), 20000, 1));
}

CASE(uc, a_write_with_a_bad_key_is_dropped) {
    Ends ends(kUc);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 5000)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey() ^ 0x5a5a5a});
    succeeded(ends.send_cq);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 5000)},
                  .to = ends.remote.address(65536 - 8),
                  .rkey = ends.remote.rkey()});
    succeeded(ends.send_cq);
    fill(ends.local.at(), 100, 3);
    post_recv(ends.b, {ends.remote.sge(0, 100)});
    post(ends.a, {.sges = {ends.local.sge(0, 100)}});
    succeeded(ends.peer_recv_cq);
    EXPECT(matches(ends.remote.at(), 100, 3) && all_bytes(ends.remote.at(100), 65536 - 100, 0));
    EXPECT(state_of(ends.b) == IBV_QPS_RTS);
}

CASE(uc, a_send_without_a_receive_is_dropped) {
    Ends ends(kUc);
    post(ends.a, {.sges = {ends.local.sge(0, 100)}});
    succeeded(ends.send_cq);
    sleep_for(0.05);
    fill(ends.local.at(), 64, 6);
    post_recv(ends.b, {ends.remote.sge(0, 100)}, 5);
    post(ends.a, {.sges = {ends.local.sge(0, 64)}});
    const ibv_wc wc = succeeded(ends.peer_recv_cq);
    EXPECT(wc.wr_id == 5 && wc.byte_len == 64 && matches(ends.remote.at(), 64, 6));
    stays_empty(ends.peer_recv_cq);
}

// IBTA 9.8.3: a SEND that is too long is dropped (and its receive completes in error on some devices).
CASE(uc, a_send_longer_than_its_receive_is_dropped) {
    Ends ends(kUc);
    post_recv(ends.b, {ends.remote.sge(0, 1000)});
    fill(ends.local.at(), 4000, 1);
    post(ends.a, {.sges = {ends.local.sge(0, 4000)}});
    succeeded(ends.send_cq);
    sleep_for(0.05);
    EXPECT(all_bytes(ends.remote.at(1000), 8000, 0));
    ibv_wc wc;
    if (ibv_poll_cq(ends.peer_recv_cq, 1, &wc) == 1)
        EXPECT(wc.status == IBV_WC_LOC_LEN_ERR, "%s", ibv_wc_status_str(wc.status));
}

CASE(uc, local_errors_are_reported) {
    Ends ends(kUc);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(65535, 2)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    next_is(ends.send_cq, IBV_WC_LOC_PROT_ERR);
    // IBTA 10.3.1.7: only the send queue is in error (SQE), or the whole QP on devices without that state.
    const ibv_qp_state state = state_of(ends.a);
    EXPECT(state == IBV_QPS_SQE || state == IBV_QPS_ERR, "%d", state);
}

CASE(uc, requests_complete_without_a_peer) {
    Ends ends(kUc);
    EXPECT_OK(ends.b.destroy());
    for (uint64_t i = 0; i < 20; ++i) {
        post(ends.a, {.sges = {ends.local.sge(0, 3000)}, .id = i});
        EXPECT(succeeded(ends.send_cq).wr_id == i);
    }
}

PAIR(uc, to_another_process) {
    Half half(peer, kUc);
    fill(half.memory.at(), 20000, peer.first ? 1 : 2);
    post_recv(half.qp, {half.memory.sge(30000, 30000)});
    peer.barrier();
    sleep_for(0.05);  // the link may have just come up
    post(half.qp, {.sges = {half.memory.sge(0, 20000)}});
    succeeded(half.send_cq);
    EXPECT(succeeded(half.recv_cq).byte_len == 20000);
    EXPECT(matches(half.memory.at(30000), 20000, peer.first ? 2 : 1));
    peer.barrier();
}

// The network may lose, duplicate or reorder packets. A message that arrives is complete, arrives once, and in order
// (IBTA 9.8.2).
PAIR(uc, what_arrives_is_whole_and_in_order) {
    constexpr uint32_t kMessages = 500, kBytes = 3000, kPlaces = 16;
    Half half(peer, kUc);
    if (peer.first) {
        peer.barrier();
        for (uint32_t i = 1; i <= kMessages; ++i) {
            std::memcpy(half.memory.at(), &i, 4);
            fill(half.memory.at(4), kBytes - 4, i);
            post(half.qp, {.sges = {half.memory.sge(0, kBytes)}});
            succeeded(half.send_cq);
            if (i % 8 == 0) sleep_for(0.0005);
        }
        sleep_for(0.2);
        peer.barrier();
        return;
    }
    for (uint32_t i = 0; i < kPlaces; ++i) post_recv(half.qp, {half.memory.sge(i * 4096, 4096)}, i);
    peer.barrier();
    uint32_t last = 0, received = 0;
    while (!peer.has_input()) {
        ibv_wc wc;
        if (ibv_poll_cq(half.recv_cq, 1, &wc) != 1) continue;
        EXPECT(wc.status == IBV_WC_SUCCESS && wc.byte_len == kBytes, "%s, %u bytes", ibv_wc_status_str(wc.status),
               wc.byte_len);
        uint32_t number;
        std::memcpy(&number, half.memory.at(wc.wr_id * 4096), 4);
        EXPECT(number > last && number <= kMessages, "message %u after %u", number, last);
        EXPECT(matches(half.memory.at(wc.wr_id * 4096 + 4), kBytes - 4, number));
        last = number;
        ++received;
        post_recv(half.qp, {half.memory.sge(wc.wr_id * 4096, 4096)}, wc.wr_id);
    }
    peer.barrier();
    EXPECT(received >= kMessages / 4, "%u of %u", received, kMessages);
}
