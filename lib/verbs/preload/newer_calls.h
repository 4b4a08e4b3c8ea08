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

// struct ibv_mr_init_attr of rdma-core 59.
struct MrInitAttr {
    size_t length;
    int access;
    uint64_t comp_mask;  // which of the members that follow are set
    uint64_t iova;
    void* addr;
    int fd;
    uint64_t fd_offset;
    ibv_dmah* dmah;
};

// enum ibv_mr_init_attr_mask
inline constexpr uint64_t kMrHasIova = 1 << 0, kMrHasAddress = 1 << 1, kMrHasFd = 1 << 2, kMrHasFdOffset = 1 << 3;

ibv_mr* reg_mr_ex(ibv_pd* pd, const MrInitAttr& attr);

}  // namespace rove::verbs
