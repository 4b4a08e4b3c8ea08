// SPDX-License-Identifier: Apache-2.0
// See send_rules.h.
#include "verbs/send_rules.h"

#include <algorithm>

#include "transport/extended_verbs.h"
#include "verbs/verbs.h"

namespace rove::verbs {

namespace {

constexpr uint32_t bit(ibv_wr_opcode opcode) {
    return 1u << opcode;
}

constexpr uint32_t kAwaitResponse = bit(IBV_WR_RDMA_READ) | bit(IBV_WR_ATOMIC_CMP_AND_SWP) |
                                    bit(IBV_WR_ATOMIC_FETCH_AND_ADD) | 1u << transport::kWrFlush |
                                    1u << transport::kWrAtomicWrite;

// Returns the opcodes of a QP type (IBTA table 38), one bit each.
constexpr uint32_t opcodes_of(ibv_qp_type type) {
    constexpr uint32_t ud = bit(IBV_WR_SEND) | bit(IBV_WR_SEND_WITH_IMM);
    constexpr uint32_t uc = ud | bit(IBV_WR_RDMA_WRITE) | bit(IBV_WR_RDMA_WRITE_WITH_IMM);
    constexpr uint32_t rc =
        uc | kAwaitResponse | bit(IBV_WR_SEND_WITH_INV) | bit(IBV_WR_LOCAL_INV) | bit(IBV_WR_BIND_MW);
    switch (type) {
        case IBV_QPT_RC:
        case IBV_QPT_XRC_SEND:
            return rc;
        case IBV_QPT_UC:
            return uc;
        case IBV_QPT_UD:
            return ud;
        default:
            return 0;
    }
}

}  // namespace

SendRules::SendRules(ibv_qp_type type, const ibv_qp_cap& cap, uint32_t max_datagram_bytes)
    : max_bytes_(type == IBV_QPT_UD ? max_datagram_bytes : kMaxMessageBytes),
      max_sge_(cap.max_send_sge),
      max_inline_(std::min(cap.max_inline_data, max_bytes_)),
      type_opcodes_(opcodes_of(type)),
      is_addressed_(type == IBV_QPT_UD),
      names_srq_(type == IBV_QPT_XRC_SEND) {
    allow_responses(false);
}

void SendRules::allow_responses(bool allowed) {
    opcodes_ = allowed ? type_opcodes_ : type_opcodes_ & ~kAwaitResponse;
}

}  // namespace rove::verbs
