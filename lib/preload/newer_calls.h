// SPDX-License-Identifier: Apache-2.0
// What the calls that rdma-core 44 does not have need to be declared (symbols.def, ROVE_NEWER_CALL). Newer headers
// define these structs; ours must compile with both.
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

// struct ibv_mr_init_attr of rdma-core's HEAD. `buf` came after rdma-core 64, which programs say by its bit.
struct MrInitAttr {
    size_t length;
    int access;
    uint64_t comp_mask;  // which of the members that follow are set
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

// Buffers are memory of the process, which is what libibverbs gives for every driver that has none of its own.
void* alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buf);
void free_buf(ibv_buf* buf);
ibv_mr* reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* address, size_t length, int access);
// Returns true if alloc_buf() made it. A buffer names no context at a place that libibverbs promises.
bool is_ours(const ibv_buf* buf);

}  // namespace rove::verbs
