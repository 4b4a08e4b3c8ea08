// SPDX-License-Identifier: Apache-2.0
// Declarations for the calls that rdma-core 44 lacks (symbols.def, ROVE_NEWER_CALL). Newer headers define these
// structs, and this file must compile with both.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

namespace rove::verbs {

// struct ibv_mr_init_attr of rdma-core's HEAD. `buf` was added after rdma-core 64; programs set its bit if they have
// it.
struct MrInitAttr {
    size_t length;
    int access;
    uint64_t comp_mask;  // bits for the members below that are set
    uint64_t iova;
    void* addr;
    int fd;
    uint64_t fd_offset;
    ibv_dmah* dmah;
    ibv_buf* buf;
};

// enum ibv_mr_init_attr_mask
inline constexpr uint64_t kMrHasIova = 1 << 0, kMrHasAddress = 1 << 1, kMrHasFd = 1 << 2, kMrHasFdOffset = 1 << 3,
                          kMrHasBuffer = 1 << 5;

ibv_mr* reg_mr_ex(ibv_pd* pd, const MrInitAttr& attr);

// Buffers are memory of the process, as libibverbs provides them for every driver without buffers of its own.
void* alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buf);
void free_buf(ibv_buf* buf);
ibv_mr* reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* address, size_t length, int access);
// Returns true if alloc_buf() made the buffer. A buffer does not name its context at an offset that libibverbs
// guarantees.
bool is_ours(const ibv_buf* buf);

}  // namespace rove::verbs
