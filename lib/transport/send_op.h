// SPDX-License-Identifier: Apache-2.0
// The operation that a packet of a SEND or WRITE names in its BTH, and what that says of the packet.
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

inline bool is_send(wire::Op op) {
    return op <= wire::Op::kSendOnlyImm || op == wire::Op::kSendLastInv || op == wire::Op::kSendOnlyInv;
}
inline bool is_middle(wire::Op op) {
    return op == wire::Op::kSendMiddle || op == wire::Op::kWriteMiddle || op == wire::Op::kReadResponseMiddle;
}
inline bool is_only(wire::Op op) {
    using wire::Op;
    return op == Op::kSendOnly || op == Op::kSendOnlyImm || op == Op::kSendOnlyInv || op == Op::kWriteOnly ||
           op == Op::kWriteOnlyImm;
}
inline bool is_first(wire::Op op) {
    return op == wire::Op::kSendFirst || op == wire::Op::kWriteFirst || is_only(op);
}
inline bool is_last(wire::Op op) {
    using wire::Op;
    return is_only(op) || op == Op::kSendLast || op == Op::kSendLastImm || op == Op::kSendLastInv ||
           op == Op::kWriteLast || op == Op::kWriteLastImm;
}
inline bool has_immediate(wire::Op op) {
    using wire::Op;
    return op == Op::kSendOnlyImm || op == Op::kSendLastImm || op == Op::kWriteOnlyImm || op == Op::kWriteLastImm;
}

}  // namespace rove::transport
