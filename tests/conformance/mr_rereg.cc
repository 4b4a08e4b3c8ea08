// SPDX-License-Identifier: Apache-2.0
// ibv_rereg_mr: `man ibv_rereg_mr`. Returns 0 or an enum ibv_rereg_mr_err_code. After IBV_REREG_MR_ERR_INPUT, the old
// region is still valid. On a device without the call, it fails like an unknown command.
#include "verbs.h"

using namespace conformance;

namespace {

// Returns true if a WRITE of 8 bytes to `to` succeeds. Uses its own QPs, because an error disables them.
bool writable(ibv_pd* pd, const void* to, uint32_t rkey) {
    Owned<ibv_cq> cq = make_cq(), other_cq = make_cq();
    Owned<ibv_qp> a = make_qp(pd, cq, cq), b = make_qp(pd, other_cq, other_cq);
    connect(a, b, {});
    Buffer source(pd, 4096);
    fill(source.at(), 8, 9);
    post(
        a,
        {.opcode = IBV_WR_RDMA_WRITE, .sges = {source.sge(0, 8)}, .to = reinterpret_cast<uintptr_t>(to), .rkey = rkey});
    const ibv_wc_status status = next(cq).status;
    if (status == IBV_WC_SUCCESS)
        EXPECT(matches(static_cast<const uint8_t*>(to), 8, 9));
    else
        EXPECT(status == IBV_WC_REM_ACCESS_ERR, "%s", ibv_wc_status_str(status));
    return status == IBV_WC_SUCCESS;
}

// Returns the result of ibv_rereg_mr, and skips the case on a device without the call.
int rereg(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t bytes, int access) {
    errno = 0;
    const int result = ibv_rereg_mr(mr, flags, pd, address, bytes, access);
    if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) skip("not offered: %s", strerror(errno));
    return result;
}

}  // namespace

CASE(mr_rereg, translation_moves_the_region) {
    Owned<ibv_pd> pd = make_pd();
    Memory old_memory(4096), new_memory(8192);
    Owned<ibv_mr> mr = make_mr(pd, old_memory.at(), 4096);
    EXPECT(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, new_memory.at(), 8192, 0) == 0);
    EXPECT(mr->addr == new_memory.at() && mr->length == 8192);
    EXPECT(writable(pd, new_memory.at(8184), mr->rkey));
    EXPECT(!writable(pd, old_memory.at(), mr->rkey));
}

CASE(mr_rereg, pd_moves_the_region) {
    Owned<ibv_pd> pd = make_pd(), other = make_pd();
    Memory memory(4096);
    Owned<ibv_mr> mr = make_mr(pd, memory.at(), 4096);
    EXPECT(rereg(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0) == 0);
    EXPECT(mr->pd == other);
    EXPECT(!writable(pd, memory.at(), mr->rkey));
    EXPECT(writable(other, memory.at(), mr->rkey));
    EXPECT_OK(pd.destroy());  // the old PD has no object left
}

CASE(mr_rereg, access_changes_what_is_allowed) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(4096);
    Owned<ibv_mr> mr = make_mr(pd, memory.at(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    EXPECT(!writable(pd, memory.at(), mr->rkey));
    EXPECT(rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, static_cast<int>(kAllAccess)) == 0);
    EXPECT(writable(pd, memory.at(), mr->rkey));
}

CASE(mr_rereg, no_change_is_an_input_error) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(4096);
    Owned<ibv_mr> mr = make_mr(pd, memory.at(), 4096);
    const int result = rereg(mr, 0, nullptr, nullptr, 0, 0);
    // libibverbs only checks for unknown flags. The kernel refuses a command without any flag.
    EXPECT(result == 0 || result == IBV_REREG_MR_ERR_INPUT || result == IBV_REREG_MR_ERR_CMD, "%d", result);
    if (result != IBV_REREG_MR_ERR_CMD) EXPECT(writable(pd, memory.at(), mr->rkey));
}

CASE(mr_rereg, unknown_flags_are_an_input_error) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(4096);
    Owned<ibv_mr> mr = make_mr(pd, memory.at(), 4096);
    EXPECT(rereg(mr, 1 << 10, nullptr, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT);
    EXPECT(errno == EINVAL, "%s", strerror(errno));
    EXPECT(writable(pd, memory.at(), mr->rkey));
}

CASE(mr_rereg, no_address_is_an_input_error) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(4096);
    Owned<ibv_mr> mr = make_mr(pd, memory.at(), 4096);
    EXPECT(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 4096, 0) == IBV_REREG_MR_ERR_INPUT);
    EXPECT(writable(pd, memory.at(), mr->rkey));
    EXPECT(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory.at(), 0, 0) == IBV_REREG_MR_ERR_INPUT);
    EXPECT(writable(pd, memory.at(), mr->rkey));
}

// The rules for a new region apply. `man ibv_rereg_mr`: the region may be lost (IBV_REREG_MR_ERR_CMD), but can be
// deregistered. After IBV_REREG_MR_ERR_INPUT it is unchanged.
CASE(mr_rereg, remote_write_without_local_write_is_refused) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(4096);
    Owned<ibv_mr> mr = make_mr(pd, memory.at(), 4096);
    const int result = rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE);
    EXPECT(result == IBV_REREG_MR_ERR_INPUT || result == IBV_REREG_MR_ERR_CMD, "%d", result);
    if (result == IBV_REREG_MR_ERR_INPUT) EXPECT(writable(pd, memory.at(), mr->rkey));
    EXPECT_OK(mr.destroy());
}
