// SPDX-License-Identifier: Apache-2.0
// The send requests that a QP accepts. Both posting APIs use these rules and no others, so they refuse the same
// requests. Units: bytes.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace rove::verbs {

// Created with the QP, from its type, its capabilities and its device. A later ibv_modify_qp() changes it under the
// send queue's posting lock.
class SendRules {
  public:
    SendRules() = default;
    // `max_datagram_bytes` is the payload of one packet of the device, and therefore the longest message of a UD QP.
    SendRules(ibv_qp_type type, const ibv_qp_cap& cap, uint32_t max_datagram_bytes);

    // Says whether the QP may have READs and atomics outstanding as requester. With max_rd_atomic 0 they would wait for
    // ever, so they are refused.
    void allow_responses(bool allowed);

    bool takes_opcode(uint32_t opcode) const { return opcode < 32 && (opcodes_ >> opcode & 1) != 0; }
    uint32_t max_bytes() const { return max_bytes_; }  // the longest message
    uint32_t max_sge() const { return max_sge_; }
    uint32_t max_inline() const { return max_inline_; }
    bool is_addressed() const { return is_addressed_; }  // each request names an address handle
    bool names_srq() const { return names_srq_; }        // each request names an XRC SRQ

  private:
    uint32_t opcodes_ = 0;  // one bit for each ibv_wr_opcode
    uint32_t max_bytes_ = 0;
    uint32_t max_sge_ = 0;
    uint32_t max_inline_ = 0;
    uint32_t type_opcodes_ = 0;  // bits for every opcode of the QP's type
    bool is_addressed_ = false;
    bool names_srq_ = false;
};

}  // namespace rove::verbs
