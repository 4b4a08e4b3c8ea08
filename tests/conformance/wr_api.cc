// SPDX-License-Identifier: Apache-2.0
// ibv_wr_start ... ibv_wr_complete: `man ibv_wr_post`. These calls have the same results as ibv_post_send.
#include <functional>

#include "verbs.h"

using namespace conformance;

namespace {

constexpr uint64_t kRcOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
                            IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                            IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

struct Extended {
    Ends ends;
    ibv_qp_ex* qp;

    explicit Extended(QpOptions options = {.send_ops = kRcOps}) : ends(options), qp(ibv_qp_to_qp_ex(ends.a)) {
        EXPECT(qp != nullptr);
    }
    // Posts one signaled request that `build` creates.
    void one(const std::function<void()>& build, uint64_t id = 3) {
        ibv_wr_start(qp);
        qp->wr_id = id;
        qp->wr_flags = IBV_SEND_SIGNALED;
        build();
        EXPECT_OK(ibv_wr_complete(qp));
    }
};

}  // namespace

CASE(wr_api, write) {
    Extended t;
    fill(t.ends.local.at(), 5000, 1);
    t.one([&] {
        ibv_wr_rdma_write(t.qp, t.ends.remote.rkey(), t.ends.remote.address());
        ibv_wr_set_sge(t.qp, t.ends.local.lkey(), t.ends.local.address(), 5000);
    });
    const ibv_wc wc = succeeded(t.ends.send_cq);
    EXPECT(wc.wr_id == 3 && wc.opcode == IBV_WC_RDMA_WRITE);
    EXPECT(matches(t.ends.remote.at(), 5000, 1));
}

CASE(wr_api, send_with_immediate) {
    Extended t;
    post_recv(t.ends.b, {t.ends.remote.sge(0, 100)});
    fill(t.ends.local.at(), 60, 2);
    t.one([&] {
        ibv_wr_send_imm(t.qp, htobe32(0x01020304));
        const ibv_sge sges[2] = {t.ends.local.sge(0, 20), t.ends.local.sge(20, 40)};
        ibv_wr_set_sge_list(t.qp, 2, sges);
    });
    succeeded(t.ends.send_cq);
    const ibv_wc wc = succeeded(t.ends.peer_recv_cq);
    EXPECT(wc.byte_len == 60 && be32toh(wc.imm_data) == 0x01020304 && matches(t.ends.remote.at(), 60, 2));
}

CASE(wr_api, write_with_immediate) {
    Extended t;
    post_recv(t.ends.b, {});
    fill(t.ends.local.at(), 60, 2);
    t.one([&] {
        ibv_wr_rdma_write_imm(t.qp, t.ends.remote.rkey(), t.ends.remote.address(), htobe32(7));
        ibv_wr_set_sge(t.qp, t.ends.local.lkey(), t.ends.local.address(), 60);
    });
    succeeded(t.ends.send_cq);
    EXPECT(be32toh(succeeded(t.ends.peer_recv_cq).imm_data) == 7 && matches(t.ends.remote.at(), 60, 2));
}

CASE(wr_api, read) {
    Extended t;
    fill(t.ends.remote.at(), 5000, 8);
    t.one([&] {
        ibv_wr_rdma_read(t.qp, t.ends.remote.rkey(), t.ends.remote.address());
        ibv_wr_set_sge(t.qp, t.ends.local.lkey(), t.ends.local.address(), 5000);
    });
    succeeded(t.ends.send_cq);
    EXPECT(matches(t.ends.local.at(), 5000, 8));
}

CASE(wr_api, atomics) {
    Extended t;
    auto& value = *reinterpret_cast<uint64_t*>(t.ends.remote.at());
    const auto& before = *reinterpret_cast<uint64_t*>(t.ends.local.at());
    value = 100;
    t.one([&] {
        ibv_wr_atomic_fetch_add(t.qp, t.ends.remote.rkey(), t.ends.remote.address(), 11);
        ibv_wr_set_sge(t.qp, t.ends.local.lkey(), t.ends.local.address(), 8);
    });
    succeeded(t.ends.send_cq);
    EXPECT(value == 111 && before == 100);
    t.one([&] {
        ibv_wr_atomic_cmp_swp(t.qp, t.ends.remote.rkey(), t.ends.remote.address(), 111, 5);
        ibv_wr_set_sge(t.qp, t.ends.local.lkey(), t.ends.local.address(), 8);
    });
    succeeded(t.ends.send_cq);
    EXPECT(value == 5 && before == 111);
}

CASE(wr_api, inline_data) {
    Extended t;
    uint8_t bytes[60];
    fill(bytes, 60, 5);
    t.one([&] {
        ibv_wr_rdma_write(t.qp, t.ends.remote.rkey(), t.ends.remote.address());
        ibv_wr_set_inline_data(t.qp, bytes, 60);
    });
    succeeded(t.ends.send_cq);
    t.one([&] {
        ibv_wr_rdma_write(t.qp, t.ends.remote.rkey(), t.ends.remote.address(1000));
        const ibv_data_buf parts[2] = {{bytes, 10}, {bytes + 10, 50}};
        ibv_wr_set_inline_data_list(t.qp, 2, parts);
    });
    succeeded(t.ends.send_cq);
    EXPECT(matches(t.ends.remote.at(), 60, 5) && matches(t.ends.remote.at(1000), 60, 5));
}

CASE(wr_api, a_list_is_posted_at_complete) {
    Extended t;
    ibv_wr_start(t.qp);
    for (uint64_t i = 0; i < 10; ++i) {
        t.qp->wr_id = i;
        t.qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(t.qp, t.ends.remote.rkey(), t.ends.remote.address(i * 8));
        ibv_wr_set_sge(t.qp, t.ends.local.lkey(), t.ends.local.address(), 8);
    }
    stays_empty(t.ends.send_cq, 0.02);
    EXPECT_OK(ibv_wr_complete(t.qp));
    for (uint64_t i = 0; i < 10; ++i) EXPECT(succeeded(t.ends.send_cq).wr_id == i);
}

CASE(wr_api, abort_posts_nothing) {
    Extended t;
    fill(t.ends.local.at(), 8, 1);
    ibv_wr_start(t.qp);
    t.qp->wr_id = 1;
    t.qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(t.qp, t.ends.remote.rkey(), t.ends.remote.address());
    ibv_wr_set_sge(t.qp, t.ends.local.lkey(), t.ends.local.address(), 8);
    ibv_wr_abort(t.qp);
    stays_empty(t.ends.send_cq);
    EXPECT(all_bytes(t.ends.remote.at(), 8, 0));
    post(t.ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                    .sges = {t.ends.local.sge(0, 8)},
                    .to = t.ends.remote.address(),
                    .rkey = t.ends.remote.rkey(),
                    .id = 2});
    EXPECT(succeeded(t.ends.send_cq).wr_id == 2);
}

// "If an error occurs ... ibv_wr_complete returns it, and none of the work requests is posted".
CASE(wr_api, an_error_posts_none_of_the_list) {
    Extended t;
    ibv_wr_start(t.qp);
    for (uint64_t i = 0; i < 2; ++i) {
        t.qp->wr_id = i;
        t.qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(t.qp, t.ends.remote.rkey(), t.ends.remote.address());
        const std::vector<ibv_sge> sges(i == 0 ? 1 : 200, t.ends.local.sge(0, 1));
        ibv_wr_set_sge_list(t.qp, sges.size(), sges.data());
    }
    EXPECT(ibv_wr_complete(t.qp) != 0);
    stays_empty(t.ends.send_cq);
    EXPECT(state_of(t.ends.a) == IBV_QPS_RTS);
}

CASE(wr_api, a_full_queue_is_ENOMEM) {
    Extended t({.send_wr = 4, .send_ops = kRcOps});
    ibv_wr_start(t.qp);
    for (int i = 0; i < 4096; ++i) {
        t.qp->wr_id = 1;
        t.qp->wr_flags = 0;
        ibv_wr_rdma_write(t.qp, t.ends.remote.rkey(), t.ends.remote.address());
        ibv_wr_set_sge(t.qp, t.ends.local.lkey(), t.ends.local.address(), 8);
    }
    EXPECT_ERROR(ibv_wr_complete(t.qp), ENOMEM);
}

CASE(wr_api, datagram) {
    Extended t({.type = IBV_QPT_UD, .send_ops = IBV_QP_EX_WITH_SEND});
    Owned<ibv_ah> ah = make_ah(t.ends.pd);
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)});
    fill(t.ends.local.at(), 200, 1);
    t.one([&] {
        ibv_wr_send(t.qp);
        ibv_wr_set_ud_addr(t.qp, ah, t.ends.b->qp_num, kQkey);
        ibv_wr_set_sge(t.qp, t.ends.local.lkey(), t.ends.local.address(), 200);
    });
    succeeded(t.ends.send_cq);
    EXPECT(succeeded(t.ends.peer_recv_cq).byte_len == 240 && matches(t.ends.remote.at(40), 200, 1));
}
