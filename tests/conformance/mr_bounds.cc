// SPDX-License-Identifier: Apache-2.0
// The bounds of a region, its protection domain and its lifetime: IBTA 10.6.3, 9.7.4.1.5 (R_Key violation), C10-37
// (L_Key).
#include <sys/mman.h>
#include <unistd.h>

#include "verbs.h"

using namespace conformance;

namespace {

constexpr size_t kSize = 12288;  // bytes of the region; the page before it and the page after it must stay 0

// A region in the middle of five pages, so that a byte written outside is detected.
struct Framed {
    Ends ends;
    Memory memory{kSize + 2 * 4096};
    Owned<ibv_mr> mr = make_mr(ends.pd, memory.at(4096), kSize);

    uint64_t address(size_t offset = 0) const { return reinterpret_cast<uintptr_t>(memory.at(4096)) + offset; }
    // Runs a request between the region and 16 KiB of a pattern, and returns its status.
    ibv_wc_status run(ibv_wr_opcode opcode, uint64_t to, uint32_t length) {
        fill(ends.local.at(), 16384, 7);
        post(ends.a, {.opcode = opcode, .sges = {ends.local.sge(0, length)}, .to = to, .rkey = mr->rkey});
        return next(ends.send_cq).status;
    }
    bool untouched() const { return all_bytes(memory.at(), memory.bytes(), 0); }
};

}  // namespace

CASE(mr_bounds, the_whole_region_can_be_written) {
    Framed f;
    EXPECT(f.run(IBV_WR_RDMA_WRITE, f.address(), kSize) == IBV_WC_SUCCESS);
    EXPECT(matches(f.memory.at(4096), kSize, 7));
    EXPECT(all_bytes(f.memory.at(), 4096, 0) && all_bytes(f.memory.at(4096 + kSize), 4096, 0));
}

CASE(mr_bounds, the_last_byte_can_be_written) {
    Framed f;
    EXPECT(f.run(IBV_WR_RDMA_WRITE, f.address(kSize - 1), 1) == IBV_WC_SUCCESS);
    EXPECT(matches(f.memory.at(4096 + kSize - 1), 1, 7) && f.memory.at()[4096 + kSize] == 0 &&
           f.memory.at()[4096 + kSize - 2] == 0);
}

// The RETH contains the whole length, so even the part within the region is not written.
CASE(mr_bounds, write_one_byte_past_the_end_changes_nothing) {
    Framed f;
    EXPECT(f.run(IBV_WR_RDMA_WRITE, f.address(1), kSize) == IBV_WC_REM_ACCESS_ERR);
    EXPECT(f.untouched());
    EXPECT(state_of(f.ends.a) == IBV_QPS_ERR);
}

CASE(mr_bounds, write_one_byte_before_the_start_changes_nothing) {
    Framed f;
    EXPECT(f.run(IBV_WR_RDMA_WRITE, f.address() - 1, 100) == IBV_WC_REM_ACCESS_ERR);
    EXPECT(f.untouched());
}

CASE(mr_bounds, write_whose_address_wraps_changes_nothing) {
    Framed f;
    EXPECT(f.run(IBV_WR_RDMA_WRITE, 0 - uint64_t{8}, 4096) == IBV_WC_REM_ACCESS_ERR);
    EXPECT(f.untouched());
}

CASE(mr_bounds, read_past_the_end_is_refused) {
    Framed f;
    EXPECT(f.run(IBV_WR_RDMA_READ, f.address(kSize - 10), 11) == IBV_WC_REM_ACCESS_ERR);
    EXPECT(matches(f.ends.local.at(), 16384, 7), "the local memory changed");
}

CASE(mr_bounds, atomic_past_the_end_is_refused) {
    Framed f;
    EXPECT(f.run(IBV_WR_ATOMIC_FETCH_AND_ADD, f.address(kSize), 8) == IBV_WC_REM_ACCESS_ERR);
    EXPECT(f.untouched());
}

// IBTA C9-88: a request of zero bytes is not checked against a key or an address.
CASE(mr_bounds, write_of_no_bytes_needs_no_key) {
    Framed f;
    post(f.ends.a, {.opcode = IBV_WR_RDMA_WRITE, .to = 0x1234, .rkey = 0xdead});
    succeeded(f.ends.send_cq);
    post(f.ends.a, {.opcode = IBV_WR_RDMA_READ, .to = 0x1234, .rkey = 0xdead});
    succeeded(f.ends.send_cq);
    EXPECT(f.untouched());
}

CASE(mr_bounds, sge_past_the_end_is_a_local_protection_error) {
    Ends ends;
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(65535, 2)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    next_is(ends.send_cq, IBV_WC_LOC_PROT_ERR);
    EXPECT(all_bytes(ends.remote.at(), 65536, 0));
    EXPECT(state_of(ends.a) == IBV_QPS_ERR);
    EXPECT(state_of(ends.b) == IBV_QPS_RTS, "a local error is no business of the peer");
}

CASE(mr_bounds, sge_with_an_unknown_lkey_is_a_local_protection_error) {
    Ends ends;
    ibv_sge sge = ends.local.sge(0, 8);
    sge.lkey ^= 0x5a5a5a;
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE, .sges = {sge}, .to = ends.remote.address(), .rkey = ends.remote.rkey()});
    next_is(ends.send_cq, IBV_WC_LOC_PROT_ERR);
    EXPECT(all_bytes(ends.remote.at(), 8, 0));
}

// With one bad element among several, no data of the good elements may arrive.
CASE(mr_bounds, one_bad_sge_spoils_the_request) {
    Ends ends;
    fill(ends.local.at(), 100, 2);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 100), {ends.local.address(), 100, ends.local.lkey() ^ 0x777700}},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    next_is(ends.send_cq, IBV_WC_LOC_PROT_ERR);
    EXPECT(all_bytes(ends.remote.at(), 4096, 0));
}

CASE(mr_bounds, unknown_rkey_is_a_remote_access_error) {
    Ends ends;
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 8)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey() ^ 0x5a5a5a});
    next_is(ends.send_cq, IBV_WC_REM_ACCESS_ERR);
}

CASE(mr_bounds, lkey_of_another_pd_is_a_local_protection_error) {
    Ends ends;
    Owned<ibv_pd> other = make_pd();
    Buffer buffer(other, 4096);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {buffer.sge(0, 8)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    next_is(ends.send_cq, IBV_WC_LOC_PROT_ERR);
}

CASE(mr_bounds, rkey_of_another_pd_is_a_remote_access_error) {
    Ends ends;
    Owned<ibv_pd> other = make_pd();
    Buffer buffer(other, 4096);
    post(ends.a,
         {.opcode = IBV_WR_RDMA_WRITE, .sges = {ends.local.sge(0, 8)}, .to = buffer.address(), .rkey = buffer.rkey()});
    next_is(ends.send_cq, IBV_WC_REM_ACCESS_ERR);
    EXPECT(all_bytes(buffer.at(), 4096, 0));
}

CASE(mr_bounds, a_deregistered_rkey_is_dead) {
    Ends ends;
    Memory memory(4096);
    Owned<ibv_mr> mr = make_mr(ends.pd, memory.at(), 4096);
    const uint32_t rkey = mr->rkey;
    EXPECT_OK(mr.destroy());
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 8)},
                  .to = reinterpret_cast<uintptr_t>(memory.at()),
                  .rkey = rkey});
    next_is(ends.send_cq, IBV_WC_REM_ACCESS_ERR);
}

CASE(mr_bounds, a_deregistered_lkey_is_dead) {
    Ends ends;
    Memory memory(4096);
    Owned<ibv_mr> mr = make_mr(ends.pd, memory.at(), 4096);
    const uint32_t lkey = mr->lkey;
    EXPECT_OK(mr.destroy());
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {{reinterpret_cast<uintptr_t>(memory.at()), 8, lkey}},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    next_is(ends.send_cq, IBV_WC_LOC_PROT_ERR);
}

CASE(mr_bounds, regions_may_overlap) {
    Ends ends;
    Memory memory(8192);
    Owned<ibv_mr> all = make_mr(ends.pd, memory.at(), 8192);
    Owned<ibv_mr> half = make_mr(ends.pd, memory.at(4096), 4096, IBV_ACCESS_REMOTE_READ);
    fill(ends.local.at(), 64, 4);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 64)},
                  .to = reinterpret_cast<uintptr_t>(memory.at(4090)),
                  .rkey = all->rkey});
    succeeded(ends.send_cq);
    EXPECT(matches(memory.at(4090), 64, 4));
    EXPECT_OK(half.destroy());  // the other region still has the memory
    post(ends.a, {.opcode = IBV_WR_RDMA_READ,
                  .sges = {ends.local.sge(1000, 64)},
                  .to = reinterpret_cast<uintptr_t>(memory.at(4090)),
                  .rkey = all->rkey});
    succeeded(ends.send_cq);
    EXPECT(matches(ends.local.at(1000), 64, 4));
}

CASE(mr_bounds, a_region_of_3_gib_is_whole) {
    Ends ends;
    constexpr size_t kBytes = 3ull << 30, kPiece = 64ull << 20;
    const int file = memfd_create("3 GiB", 0);
    EXPECT(ftruncate(file, kPiece) == 0);
    {
        Memory address_space(kBytes);
        for (size_t at = 0; at < kBytes; at += kPiece)  // maps the same 64 MiB 48 times
            EXPECT(mmap(address_space.at(at), kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
                   MAP_FAILED);
        Owned<ibv_mr> mr = make_mr(ends.pd, address_space.at(), kBytes);
        const uint64_t end = reinterpret_cast<uintptr_t>(address_space.at()) + kBytes;
        fill(ends.local.at(), 4096, 8);
        post(ends.a,
             {.opcode = IBV_WR_RDMA_WRITE, .sges = {ends.local.sge(0, 4096)}, .to = end - 4096, .rkey = mr->rkey});
        succeeded(ends.send_cq);
        EXPECT(matches(address_space.at(kBytes - 4096), 4096, 8) && address_space.at()[kBytes - 4097] == 0);
        post(ends.a,
             {.opcode = IBV_WR_RDMA_READ, .sges = {ends.local.sge(8192, 4096)}, .to = end - 4096, .rkey = mr->rkey});
        succeeded(ends.send_cq);
        EXPECT(matches(ends.local.at(8192), 4096, 8));
        post(ends.a,
             {.opcode = IBV_WR_RDMA_READ, .sges = {ends.local.sge(8192, 4096)}, .to = end - 4095, .rkey = mr->rkey});
        next_is(ends.send_cq, IBV_WC_REM_ACCESS_ERR);
    }
    close(file);
}
