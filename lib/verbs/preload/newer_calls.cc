// SPDX-License-Identifier: Apache-2.0
// See newer_calls.h.
#include "verbs/preload/newer_calls.h"

#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

ibv_mr* reg_mr_ex(ibv_pd* pd, const MrInitAttr& attr) {
    const auto has = [&](uint64_t bit) { return (attr.comp_mask & bit) != 0; };
    // DMA handles, buffers of ibv_alloc_buf().
    if ((attr.comp_mask & ~(kMrHasIova | kMrHasAddress | kMrHasFd | kMrHasFdOffset)) != 0)
        return fail<ibv_mr>(EOPNOTSUPP);
    // Memory is named by an address or by a dma-buf.
    if (has(kMrHasAddress) == has(kMrHasFd) || (has(kMrHasFdOffset) && !has(kMrHasFd))) return fail<ibv_mr>(EINVAL);
    if (has(kMrHasFd)) {
        const uint64_t offset = has(kMrHasFdOffset) ? attr.fd_offset : 0;
        return reg_dmabuf_mr(pd, offset, attr.length, has(kMrHasIova) ? attr.iova : offset, attr.fd, attr.access);
    }
    const uint64_t iova = has(kMrHasIova) ? attr.iova : reinterpret_cast<uintptr_t>(attr.addr);
    return reg_mr(pd, attr.addr, attr.length, iova, static_cast<unsigned>(attr.access));
}

}  // namespace rove::verbs
