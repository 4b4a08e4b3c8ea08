// SPDX-License-Identifier: Apache-2.0
// The send queue drained state: IBTA 10.3.1.5. Not every device supports it.
#include <algorithm>

#include "verbs.h"

using namespace conformance;

namespace {

struct Drained {
    Ends ends;

    Work write(uint64_t id, unsigned flags = IBV_SEND_SIGNALED) {
        return {.opcode = IBV_WR_RDMA_WRITE,
                .sges = {ends.local.sge(0, 64)},
                .to = ends.remote.address(),
                .rkey = ends.remote.rkey(),
                .flags = flags,
                .id = id};
    }
    void to_sqd(bool notify = true) {
        drop_events(device().context);
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_SQD;
        attr.en_sqd_async_notify = notify;
        const int error = modify(ends.a, attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
        if (error != 0) skip("no SQD: %s", strerror(error));
    }
    bool drained(double patience = 3) { return event_comes(device().context, IBV_EVENT_SQ_DRAINED, ends.a, patience); }
};

}  // namespace

CASE(sqd, what_is_under_way_completes) {
    Drained t;
    for (uint64_t i = 0; i < 20; ++i) post(t.ends.a, t.write(i));
    t.to_sqd();
    EXPECT(t.drained());
    // A device may stop between two requests: some have completed, and the others wait.
    uint64_t done = 0;
    ibv_wc wc;
    while (ibv_poll_cq(t.ends.send_cq, 1, &wc) == 1) EXPECT(wc.status == IBV_WC_SUCCESS && wc.wr_id == done++);
    to_state(t.ends.a, IBV_QPS_RTS);
    for (; done < 20; ++done) EXPECT(succeeded(t.ends.send_cq).wr_id == done);
}

CASE(sqd, what_is_posted_waits_for_rts) {
    Drained t;
    fill(t.ends.local.at(), 64, 3);
    t.to_sqd();
    EXPECT(t.drained());
    post(t.ends.a, t.write(1));
    stays_empty(t.ends.send_cq);
    EXPECT(all_bytes(t.ends.remote.at(), 64, 0));
    to_state(t.ends.a, IBV_QPS_RTS);
    EXPECT(succeeded(t.ends.send_cq).wr_id == 1);
    EXPECT(matches(t.ends.remote.at(), 64, 3));
}

// The last request needs an acknowledgement, although it creates no completion.
CASE(sqd, an_unsignaled_last_request_drains_at_once) {
    Drained t;
    double worst = 0;
    for (int i = 0; i < 10; ++i) {
        post(t.ends.a, t.write(1, 0));
        const double begun = now();
        t.to_sqd();
        EXPECT(t.drained());
        worst = std::max(worst, now() - begun);
        to_state(t.ends.a, IBV_QPS_RTS);
    }
    EXPECT(worst < 0.5, "%.3f s", worst);
}

CASE(sqd, without_notification_no_event) {
    Drained t;
    t.to_sqd(false);
    EXPECT(!t.drained(0.1));
    EXPECT(state_of(t.ends.a) == IBV_QPS_SQD);
}

CASE(sqd, the_responder_goes_on) {
    Drained t;
    t.to_sqd();
    EXPECT(t.drained());
    fill(t.ends.remote.at(), 2000, 1);
    post(t.ends.b, {.opcode = IBV_WR_RDMA_WRITE,
                    .sges = {t.ends.remote.sge(0, 2000)},
                    .to = t.ends.local.address(),
                    .rkey = t.ends.local.rkey()});
    succeeded(t.ends.peer_send_cq);
    EXPECT(matches(t.ends.local.at(), 2000, 1));
}

// IBTA table of 11.2.5.2: in SQD, once drained, the timeouts and the path may be changed.
CASE(sqd, attributes_may_be_changed) {
    Drained t;
    t.to_sqd();
    EXPECT(t.drained());
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.timeout = 17;
    attr.retry_cnt = 3;
    attr.rnr_retry = 2;
    const int error = modify(t.ends.a, attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
    EXPECT(error == 0, "%s", strerror(error));
    ibv_qp_init_attr init;
    EXPECT_OK(ibv_query_qp(t.ends.a, &attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY, &init));
    EXPECT(attr.timeout == 17 && attr.retry_cnt == 3 && attr.rnr_retry == 2);
    to_state(t.ends.a, IBV_QPS_RTS);
    post(t.ends.a, t.write(1));
    succeeded(t.ends.send_cq);
}
