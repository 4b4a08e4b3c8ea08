// SPDX-License-Identifier: Apache-2.0
// SEND over RC: IBTA 9.4.1, 9.7.
#include "verbs.h"

using namespace conformance;

CASE(rc_send, every_size_arrives_whole) {
    for (uint32_t bytes : {0u, 1u, 3u, 255u, 256u, 1023u, 1024u, 1025u, 4096u, 4097u, 30001u}) {
        Ends ends;
        fill(ends.local.at(), bytes, bytes);
        post_recv(ends.b, {ends.remote.sge(0, 60000)});
        post(ends.a, {.sges = {ends.local.sge(0, bytes)}});
        succeeded(ends.send_cq);
        EXPECT(succeeded(ends.peer_recv_cq).byte_len == bytes);
        EXPECT(matches(ends.remote.at(), bytes, bytes) && ends.remote.at()[bytes] == 0);
    }
}

CASE(rc_send, receives_are_used_in_order) {
    Ends ends;
    for (uint64_t i = 0; i < 30; ++i) post_recv(ends.b, {ends.remote.sge(i * 100, 100)}, i);
    for (uint32_t i = 0; i < 30; ++i) {
        fill(ends.local.at(i * 100), i + 1, i);
        post(ends.a, {.sges = {ends.local.sge(i * 100, i + 1)}});
    }
    for (uint32_t i = 0; i < 30; ++i) {
        const ibv_wc wc = succeeded(ends.peer_recv_cq);
        EXPECT(wc.wr_id == i && wc.byte_len == i + 1);
        EXPECT(matches(ends.remote.at(i * 100), i + 1, i) && ends.remote.at()[i * 100 + i + 1] == 0);
    }
}

CASE(rc_send, gathered_and_scattered) {
    Ends ends;
    fill(ends.local.at(), 9000, 3);
    post_recv(ends.b, {ends.remote.sge(0, 1), ends.remote.sge(1, 4095), ends.remote.sge(20000, 0),
                       ends.remote.sge(30000, 8000)});
    post(ends.a,
         {.sges = {ends.local.sge(0, 3), ends.local.sge(3, 4000), ends.local.sge(0, 0), ends.local.sge(4003, 4997)}});
    EXPECT(succeeded(ends.peer_recv_cq).byte_len == 9000);
    std::vector<uint8_t> joined(ends.remote.at(), ends.remote.at(4096));
    joined.insert(joined.end(), ends.remote.at(30000), ends.remote.at(30000 + 9000 - 4096));
    EXPECT(matches(joined.data(), 9000, 3));
    EXPECT(all_bytes(ends.remote.at(30000 + 9000 - 4096), 100, 0) && all_bytes(ends.remote.at(20000), 100, 0));
}

CASE(rc_send, immediate_data_is_not_part_of_the_length) {
    Ends ends;
    post_recv(ends.b, {ends.remote.sge(0, 100)});
    post(ends.a, {.opcode = IBV_WR_SEND_WITH_IMM, .sges = {ends.local.sge(0, 10)}, .imm = 0xdeadbeef});
    succeeded(ends.send_cq);
    const ibv_wc wc = succeeded(ends.peer_recv_cq);
    EXPECT(wc.byte_len == 10 && (wc.wc_flags & IBV_WC_WITH_IMM) != 0 && be32toh(wc.imm_data) == 0xdeadbeef);
}

// IBTA 9.7.5.2.. table 58: if the receive is too short, the responder gets a local length error and the requester an
// invalid request. (Soft-RoCE replies with a remote operational error instead.)
CASE(rc_send, longer_than_its_receive_is_an_invalid_request) {
    Ends ends;
    post_recv(ends.b, {ends.remote.sge(0, 1000)});
    fill(ends.local.at(), 4000, 1);
    post(ends.a, {.sges = {ends.local.sge(0, 4000)}});
    next_is(ends.peer_recv_cq, IBV_WC_LOC_LEN_ERR);
    const ibv_wc_status status = next(ends.send_cq).status;
    if (std::strncmp(ibv_get_device_name(device().context->device), "rxe", 3) == 0)
        EXPECT(status == IBV_WC_REM_OP_ERR || status == IBV_WC_REM_INV_REQ_ERR);
    else
        EXPECT(status == IBV_WC_REM_INV_REQ_ERR, "%s", ibv_wc_status_str(status));
    EXPECT(all_bytes(ends.remote.at(1000), 4000, 0), "memory behind the receive");
    EXPECT(state_of(ends.a) == IBV_QPS_ERR && state_of(ends.b) == IBV_QPS_ERR);
}

CASE(rc_send, a_receive_of_no_bytes_takes_a_message_of_none) {
    Ends ends;
    post_recv(ends.b, {});
    post(ends.a, {});
    succeeded(ends.send_cq);
    EXPECT(succeeded(ends.peer_recv_cq).byte_len == 0);
}

CASE(rc_send, both_ways_at_once) {
    Ends ends;
    for (int i = 0; i < 20; ++i) {
        post_recv(ends.a, {ends.local.sge(32768, 8000)});
        post_recv(ends.b, {ends.remote.sge(32768, 8000)});
    }
    fill(ends.local.at(), 8000, 1);
    fill(ends.remote.at(), 8000, 2);
    for (int i = 0; i < 20; ++i) {
        post(ends.a, {.sges = {ends.local.sge(0, 8000)}});
        post(ends.b, {.sges = {ends.remote.sge(0, 8000)}});
    }
    for (int i = 0; i < 20; ++i) {
        succeeded(ends.send_cq);
        succeeded(ends.peer_send_cq);
        EXPECT(succeeded(ends.recv_cq).byte_len == 8000 && succeeded(ends.peer_recv_cq).byte_len == 8000);
    }
    EXPECT(matches(ends.local.at(32768), 8000, 2) && matches(ends.remote.at(32768), 8000, 1));
}

PAIR(rc_send, to_another_process) {
    Half half(peer);
    fill(half.memory.at(), 20000, peer.first ? 1 : 2);
    post_recv(half.qp, {half.memory.sge(30000, 30000)});
    peer.barrier();
    post(half.qp, {.opcode = IBV_WR_SEND_WITH_IMM, .sges = {half.memory.sge(0, 20000)}, .imm = peer.first ? 10u : 20u});
    succeeded(half.send_cq);
    const ibv_wc wc = succeeded(half.recv_cq);
    EXPECT(wc.byte_len == 20000 && be32toh(wc.imm_data) == (peer.first ? 20 : 10));
    EXPECT(matches(half.memory.at(30000), 20000, peer.first ? 2 : 1));
    peer.barrier();
}
