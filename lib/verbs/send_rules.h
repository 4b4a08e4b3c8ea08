// SPDX-License-Identifier: Apache-2.0
// Which send requests a QP takes. Both posting APIs ask these rules and no others, so that what one refuses the other
// refuses too. Units: bytes.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace rove::verbs {

// Made when the QP is created, from its type, its capabilities and its device. What a later ibv_modify_qp changes, it
// changes under the send queue's posting lock.
class SendRules {
  public:
    SendRules() = default;
    // `max_datagram_bytes`: what one packet of the device carries, and so the longest message of a UD QP.
    SendRules(ibv_qp_type type, const ibv_qp_cap& cap, uint32_t max_datagram_bytes);

    // As requester, the QP may have READs and atomics outstanding or may not: with max_rd_atomic 0 they would wait for
    // ever, and are refused.
    void allow_responses(bool allowed);

    bool takes_opcode(uint32_t opcode) const { return opcode < 32 && (opcodes_ >> opcode & 1) != 0; }
    uint32_t max_bytes() const { return max_bytes_; }  // of one message
    uint32_t max_sge() const { return max_sge_; }
    uint32_t max_inline() const { return max_inline_; }
    bool is_addressed() const { return is_addressed_; }  // each request names an address handle
    bool names_srq() const { return names_srq_; }        // each request names an SRQ of XRC

  private:
    uint32_t opcodes_ = 0;  // a bit each, by ibv_wr_opcode
    uint32_t max_bytes_ = 0;
    uint32_t max_sge_ = 0;
    uint32_t max_inline_ = 0;
    uint32_t type_opcodes_ = 0;  // as opcodes_, all that the type knows
    bool is_addressed_ = false;
    bool names_srq_ = false;
};

}  // namespace rove::verbs
