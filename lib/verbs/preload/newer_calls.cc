// SPDX-License-Identifier: Apache-2.0
// See newer_calls.h.
#include "verbs/preload/newer_calls.h"

#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

ibv_mr* reg_mr_ex(ibv_pd* pd, const MrInitAttr& attr) {
    const auto has = [&](uint64_t bit) { return (attr.comp_mask & bit) != 0; };
    // Memory of a dma-buf, DMA handles, buffers of ibv_alloc_buf().
    if ((attr.comp_mask & ~(kMrHasIova | kMrHasAddress)) != 0) return fail<ibv_mr>(EOPNOTSUPP);
    if (!has(kMrHasAddress)) return fail<ibv_mr>(EINVAL);
    const uint64_t iova = has(kMrHasIova) ? attr.iova : reinterpret_cast<uintptr_t>(attr.addr);
    return reg_mr(pd, attr.addr, attr.length, iova, static_cast<unsigned>(attr.access));
}

}  // namespace rove::verbs
