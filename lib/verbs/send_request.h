// SPDX-License-Identifier: Apache-2.0
// What ibv_post_send and the ibv_wr_* calls share: which requests a QP takes.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>

#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

// Opcodes by QP type (IBTA table 38), as bits.
constexpr uint32_t legal_opcodes(ibv_qp_type type) {
    constexpr auto bit = [](ibv_wr_opcode opcode) { return 1u << opcode; };
    constexpr uint32_t ud = bit(IBV_WR_SEND) | bit(IBV_WR_SEND_WITH_IMM);
    constexpr uint32_t uc = ud | bit(IBV_WR_RDMA_WRITE) | bit(IBV_WR_RDMA_WRITE_WITH_IMM);
    constexpr uint32_t rc = uc | bit(IBV_WR_RDMA_READ) | bit(IBV_WR_ATOMIC_CMP_AND_SWP) |
                            bit(IBV_WR_ATOMIC_FETCH_AND_ADD) | bit(IBV_WR_SEND_WITH_INV) | bit(IBV_WR_LOCAL_INV) |
                            bit(IBV_WR_BIND_MW);
    return type == IBV_QPT_RC ? rc : type == IBV_QPT_UC ? uc : ud;
}

inline bool is_legal(const transport::QueuePair& qp, uint32_t opcode) {
    // With max_rd_atomic 0 these would wait for ever.
    constexpr uint32_t kAwaiting =
        1u << IBV_WR_RDMA_READ | 1u << IBV_WR_ATOMIC_CMP_AND_SWP | 1u << IBV_WR_ATOMIC_FETCH_AND_ADD;
    const uint32_t legal = legal_opcodes(qp.type) & ~(qp.max_rd_atomic == 0 ? kAwaiting : 0);
    return opcode < 32 && (legal >> opcode & 1) != 0;
}

// Whether requests may be posted (IBTA 10.3.1): from RTS on, errors and drains included.
inline bool may_post_send(const transport::QueuePair& qp) {
    return qp.state.load(std::memory_order_relaxed) >= IBV_QPS_RTS;  // RTS, SQD, SQE, ERR
}

// A Q_Key with its high bit set stands for the QP's own (IBTA 10.2.5).
inline uint32_t effective_qkey(const transport::QueuePair& qp, uint32_t qkey) {
    return (qkey & kQkeyOfQp) != 0 ? qp.qkey : qkey;
}

inline uint8_t effective_flags(const transport::QueuePair& qp, unsigned flags) {
    return static_cast<uint8_t>(flags | (qp.sq_sig_all ? IBV_SEND_SIGNALED : 0));
}

// A bind request. Returns 0, or EINVAL when it can be seen to be wrong without looking at the region.
inline int fill_bind(transport::SendWqe& wqe, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info& info) {
    constexpr unsigned kAllowed =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
    if (mw == nullptr || mw->type != IBV_MW_TYPE_2 || info.mr == nullptr || info.mr->pd != mw->pd) return EINVAL;
    if ((info.mw_access_flags & ~kAllowed) != 0) return EINVAL;
    wqe.window = &from(mw).region;
    wqe.immediate = rkey;
    wqe.rkey = info.mr->lkey;
    wqe.remote_addr = info.addr;
    wqe.swap = info.length;
    wqe.bind_access = static_cast<uint8_t>(info.mw_access_flags);
    return 0;
}

// Whether a UD request says where to, by an address handle of the QP's own device.
inline bool is_addressed(const transport::QueuePair& qp, const transport::Path* path) {
    return path != nullptr && path->port == qp.port;
}

// What can only be judged when a request has all its parts. Returns 0 or EINVAL.
inline int check_request(const transport::SendWqe& wqe) {
    if (wqe.is_atomic()) return wqe.length == sizeof(uint64_t) && !wqe.is_inline() ? 0 : EINVAL;
    if (wqe.is_read() && wqe.is_inline()) return EINVAL;
    return wqe.length <= kMaxMessageBytes ? 0 : EINVAL;
}

}  // namespace rove::verbs
