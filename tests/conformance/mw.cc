// SPDX-License-Identifier: Apache-2.0
// Memory windows: `man ibv_alloc_mw`, ibv_bind_mw, IBTA 10.6.7. A type 2 window is bound by a request, and then belongs
// to the QP of that request.
#include "verbs.h"

using namespace conformance;

namespace {

struct Windowed {
    Ends ends;
    Buffer target;
    Owned<ibv_mw> mw;

    explicit Windowed(unsigned access = kAllAccess | IBV_ACCESS_MW_BIND) : target(ends.pd, 16384, access) {
        ibv_mw* made = ibv_alloc_mw(ends.pd, IBV_MW_TYPE_2);
        if (made == nullptr) skip("no windows of type 2: %s", strerror(errno));
        mw = Owned<ibv_mw>(made);
    }
    // Binds the window to `length` bytes at `offset` through b, which owns the memory, and returns the status. `key` is
    // bind_mw.rkey.
    ibv_wc_status bind(uint32_t key, size_t offset, uint64_t length, unsigned access) {
        ibv_send_wr wr{}, *bad;
        wr.wr_id = 5;
        wr.opcode = IBV_WR_BIND_MW;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.bind_mw.mw = mw;
        wr.bind_mw.rkey = key;
        wr.bind_mw.bind_info = {target.mr, target.address(offset), length, access};
        EXPECT_OK(ibv_post_send(ends.b, &wr, &bad));
        return next(ends.peer_send_cq).status;
    }
    // Binds the window and returns its key. The case fails if the bind fails.
    uint32_t bound(size_t offset, uint64_t length, unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ) {
        const uint32_t key = ibv_inc_rkey(mw->rkey);
        const ibv_wc_status status = bind(key, offset, length, access);
        EXPECT(status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(status));
        return key;
    }
    ibv_wc_status write(uint32_t key, size_t offset, uint32_t length) {
        return request(IBV_WR_RDMA_WRITE, key, offset, length);
    }
    ibv_wc_status request(ibv_wr_opcode opcode, uint32_t key, size_t offset, uint32_t length) {
        fill(ends.local.at(), 16384, 21);
        post(ends.a,
             {.opcode = opcode, .sges = {ends.local.sge(0, length)}, .to = target.address(offset), .rkey = key});
        return next(ends.send_cq).status;
    }
};

}  // namespace

CASE(mw, bound_window_lets_its_range_be_written) {
    Windowed w;
    const uint32_t key = w.bound(4096, 4096);
    EXPECT(w.write(key, 4096, 4096) == IBV_WC_SUCCESS);
    EXPECT(matches(w.target.at(4096), 4096, 21));
    EXPECT(all_bytes(w.target.at(), 4096, 0) && all_bytes(w.target.at(8192), 8192, 0));
}

CASE(mw, outside_its_range_a_window_is_refused) {
    Windowed w;
    const uint32_t key = w.bound(4096, 4096);
    EXPECT(w.write(key, 4097, 4096) == IBV_WC_REM_ACCESS_ERR);
    EXPECT(all_bytes(w.target.at(), 16384, 0));
}

CASE(mw, window_needs_its_own_access_flags) {
    Windowed w;
    const uint32_t key = w.bound(0, 4096, IBV_ACCESS_REMOTE_READ);
    EXPECT(w.request(IBV_WR_RDMA_READ, key, 0, 100) == IBV_WC_SUCCESS);
    EXPECT(w.write(key, 0, 100) == IBV_WC_REM_ACCESS_ERR);
}

CASE(mw, a_window_before_its_bind_is_dead) {
    Windowed w;
    EXPECT(w.write(w.mw->rkey, 0, 8) == IBV_WC_REM_ACCESS_ERR);
    EXPECT(all_bytes(w.target.at(), 8, 0));
}

// IBTA C10-75: the region must allow windows.
CASE(mw, bind_needs_the_flag_of_the_region) {
    Windowed w(kAllAccess);
    EXPECT(w.bind(ibv_inc_rkey(w.mw->rkey), 0, 4096, IBV_ACCESS_REMOTE_READ) == IBV_WC_MW_BIND_ERR);
}

// IBTA C10-76, C10-77: a window cannot exceed the region or its rights.
CASE(mw, bind_beyond_the_region_is_refused) {
    Windowed w;
    EXPECT(w.bind(ibv_inc_rkey(w.mw->rkey), 8192, 8193, IBV_ACCESS_REMOTE_READ) == IBV_WC_MW_BIND_ERR);
}

CASE(mw, bind_for_remote_write_needs_local_write_of_the_region) {
    Windowed w(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
    EXPECT(w.bind(ibv_inc_rkey(w.mw->rkey), 0, 4096, IBV_ACCESS_REMOTE_WRITE) == IBV_WC_MW_BIND_ERR);
}

CASE(mw, after_a_bind_error_other_qps_go_on) {
    Windowed w(kAllAccess);
    EXPECT(w.bind(ibv_inc_rkey(w.mw->rkey), 0, 4096, IBV_ACCESS_REMOTE_READ) == IBV_WC_MW_BIND_ERR);
    Ends others;
    fill(others.local.at(), 100, 2);
    post(others.a, {.opcode = IBV_WR_RDMA_WRITE,
                    .sges = {others.local.sge(0, 100)},
                    .to = others.remote.address(),
                    .rkey = others.remote.rkey()});
    succeeded(others.send_cq);
    EXPECT(matches(others.remote.at(), 100, 2));
}

// `man ibv_bind_mw`, IBTA 10.6.7.2.2: the consumer chooses only the lowest 8 bits of the key. The index belongs to the
// window.
CASE(mw, of_the_key_only_the_consumers_8_bits_count) {
    Windowed w;
    const uint32_t index = w.mw->rkey & ~0xffu;
    EXPECT(w.bind((~index & ~0xffu) | 0x5a, 0, 4096, IBV_ACCESS_REMOTE_WRITE) == IBV_WC_SUCCESS);
    EXPECT(w.write(index | 0x5a, 0, 8) == IBV_WC_SUCCESS);
    EXPECT(matches(w.target.at(), 8, 21));
}

CASE(mw, local_write_among_its_flags_is_ignored) {
    Windowed w;
    const uint32_t key = w.bound(0, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    EXPECT(w.write(key, 0, 8) == IBV_WC_SUCCESS);
}

// IBTA 10.6.7.2.2 (type 2B): the window belongs to the QP that bound it.
CASE(mw, window_of_type_2_belongs_to_its_qp) {
    if ((device().attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A) != 0)
        skip("its windows belong to QP numbers only");
    Windowed w;
    const uint32_t key = w.bound(0, 4096);
    Owned<ibv_cq> cq = make_cq(), other_cq = make_cq();
    Owned<ibv_qp> c = make_qp(w.ends.pd, cq, cq), d = make_qp(w.ends.pd, other_cq, other_cq);
    connect(c, d, {});
    post(c, {.opcode = IBV_WR_RDMA_WRITE, .sges = {w.ends.local.sge(0, 8)}, .to = w.target.address(), .rkey = key});
    next_is(cq, IBV_WC_REM_ACCESS_ERR);
    EXPECT(w.write(key, 0, 8) == IBV_WC_SUCCESS);
}

CASE(mw, local_invalidate_ends_a_window) {
    Windowed w;
    const uint32_t key = w.bound(0, 4096);
    EXPECT(w.write(key, 0, 8) == IBV_WC_SUCCESS);
    post(w.ends.b, {.opcode = IBV_WR_LOCAL_INV, .imm = key});
    const ibv_wc wc = succeeded(w.ends.peer_send_cq);
    EXPECT(wc.opcode == IBV_WC_LOCAL_INV, "opcode %d", wc.opcode);
    std::memset(w.target.at(), 0, 8);
    EXPECT(w.write(key, 0, 8) == IBV_WC_REM_ACCESS_ERR);
    EXPECT(all_bytes(w.target.at(), 8, 0));
}

CASE(mw, send_with_invalidate_ends_a_window) {
    Windowed w;
    const uint32_t key = w.bound(0, 4096);
    post_recv(w.ends.b, {w.ends.remote.sge(0, 100)});
    post(w.ends.a, {.opcode = IBV_WR_SEND_WITH_INV, .sges = {w.ends.local.sge(0, 10)}, .imm = key});
    succeeded(w.ends.send_cq);
    const ibv_wc wc = succeeded(w.ends.peer_recv_cq);
    EXPECT((wc.wc_flags & IBV_WC_WITH_INV) != 0 && wc.invalidated_rkey == key, "flags %#x, key %#x", wc.wc_flags,
           wc.invalidated_rkey);
    EXPECT(w.write(key, 0, 8) == IBV_WC_REM_ACCESS_ERR);
}

// IBTA 9.9.6.3, 10.6.7: the responder sends a NAK for a remote access error, and its receive fails. Soft-RoCE has
// already acknowledged the SEND, and reports the error only at the responder.
CASE(mw, send_with_invalidate_of_a_bad_key_fails_the_receive) {
    Windowed w;
    post_recv(w.ends.b, {w.ends.remote.sge(0, 100)});
    post(w.ends.a, {.opcode = IBV_WR_SEND_WITH_INV, .sges = {w.ends.local.sge(0, 10)}, .imm = w.mw->rkey ^ 0x123400});
    const ibv_wc receive = next(w.ends.peer_recv_cq), sent = next(w.ends.send_cq);
    EXPECT(receive.status != IBV_WC_SUCCESS);
    const bool soft = std::strncmp(ibv_get_device_name(device().context->device), "rxe", 3) == 0;
    EXPECT(sent.status == IBV_WC_REM_ACCESS_ERR || (soft && sent.status == IBV_WC_SUCCESS), "%s",
           ibv_wc_status_str(sent.status));
    EXPECT(state_of(w.ends.b) == IBV_QPS_ERR);
}

// `man ibv_dereg_mr`: fails if any memory window is still bound.
CASE(mw, a_region_with_a_bound_window_stays) {
    Windowed w;
    w.bound(0, 4096);
    EXPECT(ibv_dereg_mr(w.target.mr) != 0);
    EXPECT_OK(w.mw.destroy());
}

CASE(mw, a_deallocated_window_is_dead) {
    Windowed w;
    const uint32_t key = w.bound(0, 4096);
    EXPECT_OK(w.mw.destroy());
    EXPECT(w.write(key, 0, 8) == IBV_WC_REM_ACCESS_ERR);
    EXPECT(all_bytes(w.target.at(), 8, 0));
}

CASE(mw, unknown_type_is_refused) {
    Owned<ibv_pd> pd = make_pd();
    EXPECT_REFUSED(ibv_alloc_mw(pd, static_cast<ibv_mw_type>(3)), EINVAL, EOPNOTSUPP);
}

// IBTA 11.2.1.2: the device reports its window types, and programs check this before they allocate a window.
CASE(mw, the_types_that_are_offered_are_told) {
    Owned<ibv_pd> pd = make_pd();
    const unsigned told = device().attr.device_cap_flags;
    constexpr unsigned kType2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    for (const auto& [type, flags] :
         {std::pair{IBV_MW_TYPE_1, unsigned{IBV_DEVICE_MEM_WINDOW}}, std::pair{IBV_MW_TYPE_2, kType2}}) {
        Owned<ibv_mw> mw(ibv_alloc_mw(pd, type));
        EXPECT((mw != nullptr) == ((told & flags) != 0), "type %d, flags %#x", type, told);
    }
}

// IBTA 10.6.7.2.1: any QP of the PD may use a window of type 1. A bind of length 0 invalidates it.
CASE(mw, window_of_type_1_is_bound_by_ibv_bind_mw) {
    Ends ends;
    ibv_mw* made = ibv_alloc_mw(ends.pd, IBV_MW_TYPE_1);
    if (made == nullptr) skip("no windows of type 1: %s", strerror(errno));
    Owned<ibv_mw> mw(made);
    Buffer target(ends.pd, 8192, kAllAccess | IBV_ACCESS_MW_BIND);
    ibv_mw_bind bind{};
    bind.wr_id = 9;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {target.mr, target.address(4096), 4096, IBV_ACCESS_REMOTE_WRITE};
    EXPECT_OK(ibv_bind_mw(ends.b, mw, &bind));
    const ibv_wc wc = succeeded(ends.peer_send_cq);
    EXPECT(wc.wr_id == 9 && wc.opcode == IBV_WC_BIND_MW);
    fill(ends.local.at(), 100, 6);
    post(ends.a,
         {.opcode = IBV_WR_RDMA_WRITE, .sges = {ends.local.sge(0, 100)}, .to = target.address(4096), .rkey = mw->rkey});
    succeeded(ends.send_cq);
    EXPECT(matches(target.at(4096), 100, 6));
    const uint32_t old = mw->rkey;
    bind.bind_info.length = 0;
    EXPECT_OK(ibv_bind_mw(ends.b, mw, &bind));
    succeeded(ends.peer_send_cq);
    post(ends.a,
         {.opcode = IBV_WR_RDMA_WRITE, .sges = {ends.local.sge(0, 100)}, .to = target.address(4096), .rkey = old});
    next_is(ends.send_cq, IBV_WC_REM_ACCESS_ERR);
}
