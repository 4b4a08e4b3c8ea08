// SPDX-License-Identifier: Apache-2.0
// The BTH operation of a packet of a SEND or WRITE, and the properties that it implies.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <initializer_list>

#include "transport/work_queue.h"
#include "wire/headers.h"

namespace rove::transport {

// Returns the operation of a packet of a request with the ibv_wr_opcode `opcode`: its first, its last, both, or
// neither.
inline wire::Op send_op(uint8_t opcode, bool first, bool last) {
    using wire::Op;
    static constexpr auto kOps = [] {
        std::array<std::array<Op, 4>, IBV_WR_SEND_WITH_INV + 1> ops{};  // indexed by opcode; middle, last, first, only
        ops[IBV_WR_RDMA_WRITE] = {Op::kWriteMiddle, Op::kWriteLast, Op::kWriteFirst, Op::kWriteOnly};
        ops[IBV_WR_RDMA_WRITE_WITH_IMM] = {Op::kWriteMiddle, Op::kWriteLastImm, Op::kWriteFirst, Op::kWriteOnlyImm};
        ops[IBV_WR_SEND] = {Op::kSendMiddle, Op::kSendLast, Op::kSendFirst, Op::kSendOnly};
        ops[IBV_WR_SEND_WITH_IMM] = {Op::kSendMiddle, Op::kSendLastImm, Op::kSendFirst, Op::kSendOnlyImm};
        ops[IBV_WR_SEND_WITH_INV] = {Op::kSendMiddle, Op::kSendLastInv, Op::kSendFirst, Op::kSendOnlyInv};
        return ops;
    }();
    return kOps[opcode][2u * first + last];
}

// Returns the operation of a packet of READ data: the first that a request asked for, the last, both, or neither.
inline wire::Op read_response_op(bool first, bool last) {
    using enum wire::Op;
    if (last) return first ? kReadResponseOnly : kReadResponseLast;
    return first ? kReadResponseFirst : kReadResponseMiddle;
}

// Returns the completion opcode of a request with the ibv_wr_opcode `opcode`.
inline ibv_wc_opcode completion_opcode(uint8_t opcode) {
    switch (opcode) {
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            return IBV_WC_RDMA_WRITE;
        case IBV_WR_RDMA_READ:
            return IBV_WC_RDMA_READ;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            return IBV_WC_COMP_SWAP;
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return IBV_WC_FETCH_ADD;
        case kWrFlush:
            return kWcFlush;
        case kWrAtomicWrite:
            return kWcAtomicWrite;
        case IBV_WR_LOCAL_INV:
            return IBV_WC_LOCAL_INV;
        case IBV_WR_BIND_MW:
            return IBV_WC_BIND_MW;
        default:
            return IBV_WC_SEND;
    }
}

// Returns BTH's flag for a request that must wake a receiver which waits for solicited completions only.
inline uint8_t solicited_flag(const SendWqe& wqe) {
    return (wqe.send_flags & IBV_SEND_SOLICITED) != 0 ? wire::Bth::kSolicited : 0;
}

// A set of operations as a bit mask: a test is one instruction.
class OpSet {
  public:
    constexpr OpSet(std::initializer_list<wire::Op> ops) {
        for (const wire::Op op : ops) bits_ |= 1u << static_cast<uint8_t>(op);
    }
    constexpr bool has(wire::Op op) const { return bits_ >> (static_cast<uint8_t>(op) & 31) & 1; }

  private:
    uint32_t bits_ = 0;
};

// Returns true for operations that are answered in the order of requests, each by a response of its own.
inline bool asks_for_response(wire::Op op) {
    using enum wire::Op;
    static constexpr OpSet kAsking{kReadRequest, kCompareSwap, kFetchAdd, kFlush, kAtomicWrite};
    return kAsking.has(op);
}
inline bool is_send(wire::Op op) {
    using enum wire::Op;
    static constexpr OpSet kSends{kSendFirst, kSendMiddle,  kSendLast,    kSendLastImm,
                                  kSendOnly,  kSendOnlyImm, kSendLastInv, kSendOnlyInv};
    return kSends.has(op);
}
inline bool is_middle(wire::Op op) {
    using enum wire::Op;
    static constexpr OpSet kMiddles{kSendMiddle, kWriteMiddle, kReadResponseMiddle};
    return kMiddles.has(op);
}
inline bool is_only(wire::Op op) {
    using enum wire::Op;
    static constexpr OpSet kOnlies{kSendOnly, kSendOnlyImm, kSendOnlyInv, kWriteOnly, kWriteOnlyImm};
    return kOnlies.has(op);
}
inline bool is_first(wire::Op op) {
    using enum wire::Op;
    static constexpr OpSet kFirsts{kSendFirst,   kWriteFirst, kSendOnly,    kSendOnlyImm,
                                   kSendOnlyInv, kWriteOnly,  kWriteOnlyImm};
    return kFirsts.has(op);
}
inline bool is_last(wire::Op op) {
    using enum wire::Op;
    static constexpr OpSet kLasts{kSendLast, kSendLastImm, kSendLastInv, kWriteLast, kWriteLastImm,
                                  kSendOnly, kSendOnlyImm, kSendOnlyInv, kWriteOnly, kWriteOnlyImm};
    return kLasts.has(op);
}
inline bool has_immediate(wire::Op op) {
    using enum wire::Op;
    static constexpr OpSet kImmediates{kSendOnlyImm, kSendLastImm, kWriteOnlyImm, kWriteLastImm};
    return kImmediates.has(op);
}

}  // namespace rove::transport
