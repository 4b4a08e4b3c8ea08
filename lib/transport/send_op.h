// SPDX-License-Identifier: Apache-2.0
// The operation that a packet of a SEND or WRITE names in its BTH.
#pragma once

#include <infiniband/verbs.h>

#include "wire/headers.h"

namespace rove::transport {

// Of a request with the ibv_wr_opcode `opcode`: its first packet, its last, both, or neither.
inline wire::Op send_op(uint8_t opcode, bool first, bool last) {
    using wire::Op;
    if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        const bool imm = opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
        if (last) return first ? (imm ? Op::kWriteOnlyImm : Op::kWriteOnly) : (imm ? Op::kWriteLastImm : Op::kWriteLast);
        return first ? Op::kWriteFirst : Op::kWriteMiddle;
    }
    if (!last) return first ? Op::kSendFirst : Op::kSendMiddle;
    switch (opcode) {
        case IBV_WR_SEND_WITH_IMM: return first ? Op::kSendOnlyImm : Op::kSendLastImm;
        case IBV_WR_SEND_WITH_INV: return first ? Op::kSendOnlyInv : Op::kSendLastInv;
        default: return first ? Op::kSendOnly : Op::kSendLast;
    }
}

}  // namespace rove::transport
