// SPDX-License-Identifier: Apache-2.0
// Shared by ibv_post_send() and the ibv_wr_* calls: checks of a request against its QP's rules (send_rules.h).
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>

#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

// Returns true if requests may be posted (IBTA 10.3.1): from RTS on, error and drain states included.
inline bool may_post_send(const transport::QueuePair& qp) {
    return qp.state.load(std::memory_order_relaxed) >= IBV_QPS_RTS;  // RTS, SQD, SQE, ERR
}

// Returns the QP's own Q_Key if the high bit of `qkey` is set, else `qkey` (IBTA 10.2.5).
inline uint32_t effective_qkey(const transport::QueuePair& qp, uint32_t qkey) {
    return (qkey & kQkeyOfQp) != 0 ? qp.qkey : qkey;
}

inline uint8_t effective_flags(const transport::QueuePair& qp, unsigned flags) {
    return static_cast<uint8_t>(flags | (qp.sq_sig_all ? IBV_SEND_SIGNALED : 0));
}

// Fills in a bind request. Returns 0, or EINVAL if it is wrong and that shows without the memory region. Local rights
// cannot be given to a window, and are ignored.
inline int fill_bind(transport::SendWqe& wqe, ibv_mw* mw, ibv_mw_type type, uint32_t rkey,
                     const ibv_mw_bind_info& info) {
    constexpr unsigned kGiven =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
    constexpr unsigned kIgnored = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | IBV_ACCESS_OPTIONAL_RANGE;
    const bool unbinds = type == IBV_MW_TYPE_1 && info.length == 0;
    if (mw == nullptr || mw->type != type) return EINVAL;
    if (!unbinds && (info.mr == nullptr || &from(info.mr->pd) != &from(mw->pd))) return EINVAL;
    if ((info.mw_access_flags & ~(kGiven | kIgnored)) != 0) return EINVAL;
    wqe.window = from(mw).window.key;
    wqe.immediate = rkey;
    wqe.rkey = unbinds ? 0 : info.mr->lkey;
    wqe.remote_addr = info.addr;
    wqe.swap = info.length;
    wqe.bind_access = static_cast<uint8_t>(info.mw_access_flags & kGiven);
    return 0;
}

// Returns true if a request of a UD QP may go to `ah`, which must be of the QP's protection domain and therefore of its
// device. IBTA 11.2.2.1 reports a violation when the request is processed; here it is found earlier.
inline bool may_address(const Qp& qp, const ibv_ah* ah) {
    return ah != nullptr && &from(ah->pd) == &from(qp.qp_base.pd);
}

// Checks a request that has all its parts. Returns 0 or EINVAL.
inline int check_request(const SendRules& rules, const transport::SendWqe& wqe) {
    if (wqe.is_atomic()) return wqe.length == sizeof(uint64_t) && !wqe.is_inline() ? 0 : EINVAL;
    if (wqe.is_read() && wqe.is_inline()) return EINVAL;
    if (wqe.is_atomic_write() && wqe.length != transport::kAtomicWriteBytes) return EINVAL;
    return wqe.length <= rules.max_bytes() ? 0 : EINVAL;
}

}  // namespace rove::verbs
