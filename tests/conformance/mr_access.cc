// SPDX-License-Identifier: Apache-2.0
// ibv_reg_mr, ibv_dereg_mr, and the operations that the access flags of a region allow: `man ibv_reg_mr`, IBTA 10.6.3
// and 10.7.
#include <sys/mman.h>
#include <unistd.h>

#include "verbs.h"

using namespace conformance;

namespace {

// Posts one request of `opcode` to a region with `access`, over QPs that allow everything. Returns its status at the
// requester.
ibv_wc_status remote_status(ibv_wr_opcode opcode, unsigned access) {
    Ends ends;
    Buffer target(ends.pd, 4096, access);
    post(ends.a, {.opcode = opcode,
                  .sges = {ends.local.sge(0, 8)},
                  .to = target.address(),
                  .rkey = target.rkey(),
                  .compare_add = 1});
    const ibv_wc_status status = next(ends.send_cq).status;
    if (status != IBV_WC_SUCCESS) EXPECT(all_bytes(target.at(), 4096, 0), "memory changed");
    return status;
}

}  // namespace

CASE(mr_access, remote_write_needs_the_flag) {
    EXPECT(remote_status(IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) == IBV_WC_SUCCESS);
    EXPECT(remote_status(IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                                IBV_ACCESS_REMOTE_ATOMIC) == IBV_WC_REM_ACCESS_ERR);
}

CASE(mr_access, remote_read_needs_the_flag) {
    EXPECT(remote_status(IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ) == IBV_WC_SUCCESS);
    EXPECT(remote_status(IBV_WR_RDMA_READ, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                               IBV_ACCESS_REMOTE_ATOMIC) == IBV_WC_REM_ACCESS_ERR);
}

CASE(mr_access, remote_atomic_needs_the_flag) {
    EXPECT(remote_status(IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC) ==
           IBV_WC_SUCCESS);
    EXPECT(remote_status(IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                                          IBV_ACCESS_REMOTE_READ) == IBV_WC_REM_ACCESS_ERR);
}

// IBTA 10.6.3.1: reading local memory needs no flag, writing it needs one.
CASE(mr_access, local_read_needs_no_flag) {
    Ends ends;
    Buffer source(ends.pd, 4096, 0);
    fill(source.at(), 100, 1);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {source.sge(0, 100)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    succeeded(ends.send_cq);
    EXPECT(matches(ends.remote.at(), 100, 1));
}

CASE(mr_access, read_response_needs_local_write) {
    Ends ends;
    Buffer target(ends.pd, 4096, IBV_ACCESS_REMOTE_READ);
    post(ends.a, {.opcode = IBV_WR_RDMA_READ,
                  .sges = {target.sge(0, 8)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    next_is(ends.send_cq, IBV_WC_LOC_PROT_ERR);
    EXPECT(state_of(ends.a) == IBV_QPS_ERR);
}

// The responder's receive buffer. The requester gets an error for the responder's failure (IBTA 9.7.5.2.6: remote
// operation).
CASE(mr_access, receive_needs_local_write) {
    Ends ends;
    Buffer target(ends.pd, 4096, 0);
    post_recv(ends.b, {target.sge(0, 100)});
    fill(ends.local.at(), 50, 3);
    post(ends.a, {.sges = {ends.local.sge(0, 50)}});
    next_is(ends.peer_recv_cq, IBV_WC_LOC_PROT_ERR);
    next_is(ends.send_cq, IBV_WC_REM_OP_ERR);
    EXPECT(all_bytes(target.at(), 4096, 0));
}

// `man ibv_reg_mr`: "If IBV_ACCESS_REMOTE_WRITE or IBV_ACCESS_REMOTE_ATOMIC is set, then IBV_ACCESS_LOCAL_WRITE must be
// set too".
CASE(mr_access, remote_write_without_local_write_is_refused) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(4096);
    EXPECT_REFUSED(ibv_reg_mr(pd, memory.at(), 4096, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    EXPECT_REFUSED(ibv_reg_mr(pd, memory.at(), 4096, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
}

CASE(mr_access, unknown_flags_are_refused) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(4096);
    EXPECT_REFUSED(ibv_reg_mr(pd, memory.at(), 4096, IBV_ACCESS_LOCAL_WRITE | 1 << 15), EINVAL, EOPNOTSUPP);
}

// `man ibv_reg_mr`: a device may ignore optional flags (from IBV_ACCESS_OPTIONAL_FIRST on), but never refuses them.
CASE(mr_access, optional_flags_are_taken) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(4096);
    make_mr(pd, memory.at(), 4096, kAllAccess | IBV_ACCESS_RELAXED_ORDERING);
    make_mr(pd, memory.at(), 4096, kAllAccess | 1u << 29);
}

CASE(mr_access, an_mr_says_what_it_is) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(8192);
    Owned<ibv_mr> mr = make_mr(pd, memory.at(100), 5000);
    EXPECT(mr->addr == memory.at(100) && mr->length == 5000 && mr->pd == pd && mr->context == pd->context);
    Owned<ibv_mr> same = make_mr(pd, memory.at(100), 5000);  // a second region over the same memory, with other keys
    EXPECT(same->lkey != mr->lkey && same->rkey != mr->rkey);
}

// Linux ib_core and NICs refuse an empty region (EINVAL), though IBTA would allow it.
CASE(mr_access, an_empty_region_is_refused) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(4096);
    EXPECT_REFUSED(ibv_reg_mr(pd, memory.at(), 0, kAllAccess), EINVAL);
}

CASE(mr_access, memory_that_is_not_there_is_refused) {
    Owned<ibv_pd> pd = make_pd();
    Memory hole(3 * 4096);
    EXPECT(munmap(hole.at(4096), 4096) == 0);
    EXPECT_REFUSED(ibv_reg_mr(pd, hole.at(), 3 * 4096, kAllAccess), EFAULT);
    EXPECT_REFUSED(ibv_reg_mr(pd, nullptr, 4096, kAllAccess), EFAULT);
}

// ib_core checks for overflow first (EINVAL). Other implementations fail on pages that do not exist (EFAULT), or on too
// many pages (ENOMEM).
CASE(mr_access, a_length_that_wraps_is_refused) {
    Owned<ibv_pd> pd = make_pd();
    Memory memory(8192);
    EXPECT_REFUSED(ibv_reg_mr(pd, memory.at(), SIZE_MAX, kAllAccess), EINVAL, EFAULT, ENOMEM);
    EXPECT_REFUSED(ibv_reg_mr(pd, memory.at(4096), size_t{0} - reinterpret_cast<uintptr_t>(memory.at()), kAllAccess),
                   EINVAL, EFAULT, ENOMEM);
}

CASE(mr_access, a_read_only_mapping_can_be_read) {
    Ends ends;
    const int file = memfd_create("read-only", 0);
    EXPECT(ftruncate(file, 8192) == 0 && write(file, "hello", 5) == 5);
    void* mapping = mmap(nullptr, 8192, PROT_READ, MAP_SHARED, file, 0);
    EXPECT(mapping != MAP_FAILED);
    {
        Owned<ibv_mr> mr = make_mr(ends.pd, mapping, 8192, IBV_ACCESS_REMOTE_READ);
        post(ends.a, {.opcode = IBV_WR_RDMA_READ,
                      .sges = {ends.local.sge(0, 5)},
                      .to = reinterpret_cast<uintptr_t>(mapping),
                      .rkey = mr->rkey});
        succeeded(ends.send_cq);
        EXPECT(std::memcmp(ends.local.at(), "hello", 5) == 0);
        EXPECT_REFUSED(ibv_reg_mr(ends.pd, mapping, 8192, kAllAccess), EFAULT, EACCES);
    }
    munmap(mapping, 8192);
    close(file);
}

CASE(mr_access, iova_names_the_memory) {
    Ends ends;
    Memory memory(32768);
    const uint64_t iova = 0 - uint64_t{65536};  // ends just below 2^64
    Owned<ibv_mr> mr = OWN(ibv_reg_mr_iova(ends.pd, memory.at(), 32768, iova, kAllAccess));
    fill(ends.local.at(), 100, 5);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE, .sges = {ends.local.sge(0, 100)}, .to = iova + 32668, .rkey = mr->rkey});
    succeeded(ends.send_cq);
    EXPECT(matches(memory.at(32668), 100, 5) && all_bytes(memory.at(), 32668, 0));
    // Scatter/gather elements of the own process can also use this address.
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {{iova + 32668, 100, mr->lkey}},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    succeeded(ends.send_cq);
    EXPECT(matches(ends.remote.at(), 100, 5));
}

CASE(mr_access, zero_based_addresses_start_at_0) {
    Ends ends;
    Memory memory(8192);
    ibv_mr* region = ibv_reg_mr(ends.pd, memory.at(16), 4096, kAllAccess | IBV_ACCESS_ZERO_BASED);
    if (region == nullptr && (errno == EOPNOTSUPP || errno == EINVAL)) skip("not offered: %s", strerror(errno));
    Owned<ibv_mr> mr = OWN(region);
    fill(ends.local.at(), 10, 6);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE, .sges = {ends.local.sge(0, 10)}, .to = 100, .rkey = mr->rkey});
    succeeded(ends.send_cq);
    EXPECT(matches(memory.at(116), 10, 6));
}
