// SPDX-License-Identifier: Apache-2.0
// Registered memory that the program unmaps, protects or truncates before it deregisters the region.
//
// A NIC has pinned the pages and keeps using them, so a request may succeed. A device that copies through the program's
// own mapping cannot do this. IBTA then specifies a remote access error for the requester, and a local protection error
// for the owner of the memory. Both results are right here. The owner must not die, hang, or lose other connections.
#include <sys/mman.h>
#include <unistd.h>

#include <functional>

#include "verbs.h"

using namespace conformance;

namespace {

enum class How { kUnmapped, kProtected, kTruncated };

// 16 KiB of registered memory that can be taken away.
struct Vanishing {
    explicit Vanishing(ibv_pd* pd) {
        file = memfd_create("vanishing", 0);
        EXPECT(ftruncate(file, kBytes) == 0);
        data = static_cast<uint8_t*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
        EXPECT(data != MAP_FAILED);
        std::memset(data, 1, kBytes);
        mr = make_mr(pd, data, kBytes);
    }
    ~Vanishing() {
        if (!unmapped) munmap(data, kBytes);
        close(file);
    }
    void vanish(How how) {
        if (how == How::kUnmapped) {
            EXPECT(munmap(data, kBytes) == 0);
            unmapped = true;
        }
        if (how == How::kProtected) EXPECT(mprotect(data, kBytes, PROT_NONE) == 0);
        if (how == How::kTruncated) EXPECT(ftruncate(file, 0) == 0);
    }
    uint64_t address() const { return reinterpret_cast<uintptr_t>(data); }

    static constexpr size_t kBytes = 16384;
    int file;
    uint8_t* data;
    bool unmapped = false;
    Owned<ibv_mr> mr;
};

void expect_either(ibv_wc_status got, ibv_wc_status error) {
    EXPECT(got == IBV_WC_SUCCESS || got == error, "got '%s', not '%s'", ibv_wc_status_str(got),
           ibv_wc_status_str(error));
}

// Expects that another connection still moves data.
void others_go_on(Ends& ends) {
    fill(ends.local.at(), 5000, 11);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 5000)},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    succeeded(ends.send_cq);
    EXPECT(matches(ends.remote.at(), 5000, 11));
}

uint32_t bytes_of(ibv_wr_opcode opcode) {
    return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 10000;
}

// A peer in another process makes requests of `opcode` to memory that its owner has taken away.
void by_a_peer(Peer& peer, How how, ibv_wr_opcode opcode) {
    Half half(peer);
    if (!peer.first) {
        Vanishing memory(half.pd);
        if (opcode == IBV_WR_SEND) post_recv(half.qp, {{memory.address(), Vanishing::kBytes, memory.mr->lkey}});
        memory.vanish(how);
        peer.exchange(Address{{}, 0, memory.mr->rkey, memory.address()});
        peer.barrier();  // the request has completed
        if (opcode == IBV_WR_SEND) expect_either(next(half.recv_cq).status, IBV_WC_LOC_PROT_ERR);
        Ends ends;
        others_go_on(ends);
        EXPECT_OK(memory.mr.destroy());
        peer.barrier();
        return;
    }
    const Address target = peer.exchange(Address{});
    const bool send = opcode == IBV_WR_SEND;
    post(half.qp, {.opcode = opcode,
                   .sges = {half.memory.sge(0, bytes_of(opcode))},
                   .to = target.address,
                   .rkey = target.rkey,
                   .compare_add = 1});
    // A receive that cannot be written is the responder's own failure (IBTA 9.7.5.2.6). A dead key is an access error.
    expect_either(next(half.send_cq).status, send ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR);
    peer.barrier();
    peer.barrier();
}

// Tests the requester's own memory: the source of a request, or the target of a READ or an atomic. The peer is in
// another process.
void own_memory(Peer& peer, How how, ibv_wr_opcode opcode) {
    Half half(peer);
    if (!peer.first) {
        if (opcode == IBV_WR_SEND) post_recv(half.qp, {half.memory.sge(0, 65536)});
        peer.exchange(Address{{}, 0, half.memory.rkey(), half.memory.address()});
        peer.barrier();
        return;
    }
    const Address target = peer.exchange(Address{});
    Vanishing memory(half.pd);
    memory.vanish(how);
    post(half.qp, {.opcode = opcode,
                   .sges = {{memory.address(), bytes_of(opcode), memory.mr->lkey}},
                   .to = target.address,
                   .rkey = target.rkey,
                   .compare_add = 1});
    expect_either(next(half.send_cq).status, IBV_WC_LOC_PROT_ERR);
    Ends others;
    others_go_on(others);
    EXPECT_OK(memory.mr.destroy());
    peer.barrier();
}

}  // namespace

PAIR(mr_gone, peer_writes_to_unmapped_memory) {
    by_a_peer(peer, How::kUnmapped, IBV_WR_RDMA_WRITE);
}
PAIR(mr_gone, peer_reads_unmapped_memory) {
    by_a_peer(peer, How::kUnmapped, IBV_WR_RDMA_READ);
}
PAIR(mr_gone, peer_sends_to_unmapped_memory) {
    by_a_peer(peer, How::kUnmapped, IBV_WR_SEND);
}
PAIR(mr_gone, peer_adds_to_unmapped_memory) {
    by_a_peer(peer, How::kUnmapped, IBV_WR_ATOMIC_FETCH_AND_ADD);
}
PAIR(mr_gone, peer_writes_to_protected_memory) {
    by_a_peer(peer, How::kProtected, IBV_WR_RDMA_WRITE);
}
PAIR(mr_gone, peer_reads_protected_memory) {
    by_a_peer(peer, How::kProtected, IBV_WR_RDMA_READ);
}
PAIR(mr_gone, peer_sends_to_protected_memory) {
    by_a_peer(peer, How::kProtected, IBV_WR_SEND);
}
PAIR(mr_gone, peer_adds_to_protected_memory) {
    by_a_peer(peer, How::kProtected, IBV_WR_ATOMIC_FETCH_AND_ADD);
}
PAIR(mr_gone, peer_writes_to_truncated_memory) {
    by_a_peer(peer, How::kTruncated, IBV_WR_RDMA_WRITE);
}
PAIR(mr_gone, peer_reads_truncated_memory) {
    by_a_peer(peer, How::kTruncated, IBV_WR_RDMA_READ);
}
PAIR(mr_gone, peer_sends_to_truncated_memory) {
    by_a_peer(peer, How::kTruncated, IBV_WR_SEND);
}
PAIR(mr_gone, peer_adds_to_truncated_memory) {
    by_a_peer(peer, How::kTruncated, IBV_WR_ATOMIC_FETCH_AND_ADD);
}
PAIR(mr_gone, write_from_unmapped_memory) {
    own_memory(peer, How::kUnmapped, IBV_WR_RDMA_WRITE);
}
PAIR(mr_gone, read_into_unmapped_memory) {
    own_memory(peer, How::kUnmapped, IBV_WR_RDMA_READ);
}
PAIR(mr_gone, send_from_unmapped_memory) {
    own_memory(peer, How::kUnmapped, IBV_WR_SEND);
}
PAIR(mr_gone, add_into_unmapped_memory) {
    own_memory(peer, How::kUnmapped, IBV_WR_ATOMIC_FETCH_AND_ADD);
}
PAIR(mr_gone, write_from_protected_memory) {
    own_memory(peer, How::kProtected, IBV_WR_RDMA_WRITE);
}
PAIR(mr_gone, read_into_protected_memory) {
    own_memory(peer, How::kProtected, IBV_WR_RDMA_READ);
}
PAIR(mr_gone, send_from_protected_memory) {
    own_memory(peer, How::kProtected, IBV_WR_SEND);
}
PAIR(mr_gone, add_into_protected_memory) {
    own_memory(peer, How::kProtected, IBV_WR_ATOMIC_FETCH_AND_ADD);
}
PAIR(mr_gone, write_from_truncated_memory) {
    own_memory(peer, How::kTruncated, IBV_WR_RDMA_WRITE);
}
PAIR(mr_gone, read_into_truncated_memory) {
    own_memory(peer, How::kTruncated, IBV_WR_RDMA_READ);
}
PAIR(mr_gone, send_from_truncated_memory) {
    own_memory(peer, How::kTruncated, IBV_WR_SEND);
}
PAIR(mr_gone, add_into_truncated_memory) {
    own_memory(peer, How::kTruncated, IBV_WR_ATOMIC_FETCH_AND_ADD);
}

// Only a part is unmapped. The rest of the region may still work, but the missing data must not be invented.
CASE(mr_gone, write_to_memory_that_has_gone_in_part) {
    Ends ends, others;
    Vanishing memory(ends.pd);
    EXPECT(munmap(memory.data + 8192, 4096) == 0);
    fill(ends.local.at(), 16384, 5);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 16384)},
                  .to = memory.address(),
                  .rkey = memory.mr->rkey});
    expect_either(next(ends.send_cq).status, IBV_WC_REM_ACCESS_ERR);
    others_go_on(others);
    EXPECT_OK(memory.mr.destroy());
}

// An inline request is copied at posting, so a fault would be the program's own. The source may be unmapped immediately
// afterwards.
CASE(mr_gone, inline_source_may_go_after_posting) {
    Ends ends;
    {
        Memory source(4096);
        fill(source.at(), 60, 3);
        post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                      .sges = {{reinterpret_cast<uintptr_t>(source.at()), 60, 0}},
                      .to = ends.remote.address(),
                      .rkey = ends.remote.rkey(),
                      .flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED});
    }
    succeeded(ends.send_cq);
    EXPECT(matches(ends.remote.at(), 60, 3));
}
