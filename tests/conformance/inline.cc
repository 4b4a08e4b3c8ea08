// SPDX-License-Identifier: Apache-2.0
// IBV_SEND_INLINE: `man ibv_post_send`: the data is copied at posting, and its lkeys are ignored.
#include "verbs.h"

using namespace conformance;

namespace {

constexpr uint32_t kWanted = 220;  // the value that UCX requests

struct Inline {
    Ends ends{QpOptions{.inline_bytes = kWanted}};
    uint32_t limit;
    std::vector<uint8_t> bytes;  // not registered

    Inline() {
        ibv_qp_attr attr;
        ibv_qp_init_attr init;
        EXPECT_OK(ibv_query_qp(ends.a, &attr, IBV_QP_CAP, &init));
        limit = init.cap.max_inline_data;
        EXPECT(limit >= kWanted, "%u", limit);
        bytes.resize(limit + 1);
        fill(bytes.data(), bytes.size(), 4);
    }
    ibv_sge sge(size_t offset, uint32_t length) {
        return {reinterpret_cast<uintptr_t>(bytes.data() + offset), length, 0};
    }
    Work write(std::vector<ibv_sge> sges) {
        return {.opcode = IBV_WR_RDMA_WRITE,
                .sges = std::move(sges),
                .to = ends.remote.address(),
                .rkey = ends.remote.rkey(),
                .flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED};
    }
};

}  // namespace

CASE(inline, as_much_as_was_promised_is_taken) {
    Inline t;
    post(t.ends.a, t.write({t.sge(0, t.limit)}));
    std::fill(t.bytes.begin(), t.bytes.end(), 0);  // already copied
    succeeded(t.ends.send_cq);
    EXPECT(matches(t.ends.remote.at(), t.limit, 4));
}

CASE(inline, one_byte_more_is_refused) {
    Inline t;
    const int error = try_post(t.ends.a, t.write({t.sge(0, t.limit + 1)}));
    EXPECT(error == EINVAL || error == ENOMEM, "%s", strerror(error));
    post(t.ends.a, t.write({t.sge(0, 8)}));  // the QP still works
    succeeded(t.ends.send_cq);
}

CASE(inline, elements_are_joined) {
    Inline t;
    post(t.ends.a, t.write({t.sge(0, 100), t.sge(7, 0), t.sge(100, 100), t.sge(200, 20)}));
    succeeded(t.ends.send_cq);
    EXPECT(matches(t.ends.remote.at(), 220, 4) && t.ends.remote.at()[220] == 0);
}

CASE(inline, lengths_whose_sum_wraps_are_refused) {
    Inline t;
    const int error = try_post(t.ends.a, t.write({t.sge(0, 0x80000000), t.sge(0, 0x80000000)}));
    EXPECT(error == EINVAL || error == ENOMEM, "%s", strerror(error));
}

CASE(inline, send_carries_it) {
    Inline t;
    post_recv(t.ends.b, {t.ends.remote.sge(0, 1000)});
    post(t.ends.a, {.sges = {t.sge(0, 77)}, .flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED});
    EXPECT(succeeded(t.ends.peer_recv_cq).byte_len == 77);
    EXPECT(matches(t.ends.remote.at(), 77, 4));
}

CASE(inline, no_bytes_are_a_message_too) {
    Inline t;
    post_recv(t.ends.b, {});
    post(t.ends.a, {.flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED});
    EXPECT(succeeded(t.ends.peer_recv_cq).byte_len == 0);
}

CASE(inline, datagrams_carry_it) {
    Ends ends({.type = IBV_QPT_UD});
    Owned<ibv_ah> ah = make_ah(ends.pd);
    uint8_t bytes[64];
    fill(bytes, 64, 9);
    post_recv(ends.b, {ends.remote.sge(0, 1000)});
    post(ends.a, {.sges = {{reinterpret_cast<uintptr_t>(bytes), 64, 0}},
                  .flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED,
                  .ah = ah,
                  .qpn = ends.b->qp_num});
    EXPECT(succeeded(ends.peer_recv_cq).byte_len == 40 + 64);
    EXPECT(matches(ends.remote.at(40), 64, 9));
}

// A READ has no data to send inline: `man ibv_post_send` names only SEND and RDMA WRITE. mlx5 ignores the flag.
CASE(inline, a_read_is_refused_or_reads) {
    Inline t;
    fill(t.ends.remote.at(), 8, 2);
    const int error = try_post(t.ends.a, {.opcode = IBV_WR_RDMA_READ,
                                          .sges = {t.ends.local.sge(0, 8)},
                                          .to = t.ends.remote.address(),
                                          .rkey = t.ends.remote.rkey(),
                                          .flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED});
    if (error != 0)
        EXPECT(error == EINVAL, "%s", strerror(error));
    else if (next(t.ends.send_cq).status == IBV_WC_SUCCESS)
        EXPECT(matches(t.ends.local.at(), 8, 2));
}
