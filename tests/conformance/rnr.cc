// SPDX-License-Identifier: Apache-2.0
// Receiver not ready: IBTA 9.7.5.2.8. min_rnr_timer 16 is 2.56 ms, 20 is 10.24 ms; rnr_retry 7 retries forever.
#include "verbs.h"

using namespace conformance;

CASE(rnr, no_retry_fails_at_once) {
    Ends ends({.rnr_retry = 0, .min_rnr_timer = 20});
    const double begun = now();
    post(ends.a, {.sges = {ends.local.sge(0, 8)}});
    next_is(ends.send_cq, IBV_WC_RNR_RETRY_EXC_ERR);
    EXPECT(now() - begun < 0.5);
    EXPECT(state_of(ends.a) == IBV_QPS_ERR);
    EXPECT(state_of(ends.b) == IBV_QPS_RTS, "the responder has done nothing wrong");
}

CASE(rnr, retries_wait_for_the_timer) {
    Ends ends({.rnr_retry = 2, .min_rnr_timer = 20});
    const double begun = now();
    post(ends.a, {.sges = {ends.local.sge(0, 8)}});
    next_is(ends.send_cq, IBV_WC_RNR_RETRY_EXC_ERR);
    EXPECT(now() - begun > 0.018, "after %.4f s, two timers are 0.0205 s", now() - begun);
    EXPECT(now() - begun < 1);
}

CASE(rnr, retry_7_waits_for_ever) {
    Ends ends({.rnr_retry = 7, .min_rnr_timer = 16});
    fill(ends.local.at(), 3000, 2);
    post(ends.a, {.sges = {ends.local.sge(0, 3000)}});
    stays_empty(ends.send_cq, 0.5);
    post_recv(ends.b, {ends.remote.sge(0, 4000)});
    succeeded(ends.send_cq);
    EXPECT(succeeded(ends.peer_recv_cq).byte_len == 3000);
    EXPECT(matches(ends.remote.at(), 3000, 2));
}

// Retries are counted per message, not per connection.
CASE(rnr, progress_renews_the_retries) {
    Ends ends({.rnr_retry = 3, .min_rnr_timer = 20});
    for (uint32_t i = 0; i < 8; ++i) {  // each message waits for a timer of 10 ms; together they exceed 3 retries
        fill(ends.local.at(), 100, i);
        post(ends.a, {.sges = {ends.local.sge(0, 100)}});
        sleep_for(0.0005);
        post_recv(ends.b, {ends.remote.sge(0, 100)});
        succeeded(ends.send_cq);
        succeeded(ends.peer_recv_cq);
        EXPECT(matches(ends.remote.at(), 100, i));
    }
}

CASE(rnr, a_write_with_immediate_needs_a_receive) {
    Ends ends({.rnr_retry = 0});
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                  .sges = {ends.local.sge(0, 8)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    next_is(ends.send_cq, IBV_WC_RNR_RETRY_EXC_ERR);
}

CASE(rnr, a_plain_write_needs_none) {
    Ends ends({.rnr_retry = 0});
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 8)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    succeeded(ends.send_cq);
}

// Requests behind a message that waits for a receive stay in order.
CASE(rnr, order_is_kept_while_waiting) {
    Ends ends({.min_rnr_timer = 12});
    for (uint32_t i = 0; i < 10; ++i) {
        fill(ends.local.at(i * 64), 64, i);
        post(ends.a, {.sges = {ends.local.sge(i * 64, 64)}, .id = i});
    }
    sleep_for(0.02);
    for (uint64_t i = 0; i < 10; ++i) post_recv(ends.b, {ends.remote.sge(i * 64, 64)}, i);
    for (uint32_t i = 0; i < 10; ++i) {
        EXPECT(succeeded(ends.send_cq).wr_id == i && succeeded(ends.peer_recv_cq).wr_id == i);
        EXPECT(matches(ends.remote.at(i * 64), 64, i));
    }
}
