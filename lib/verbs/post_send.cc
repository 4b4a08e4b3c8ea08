// SPDX-License-Identifier: Apache-2.0
// ibv_post_send: requests are checked and written straight into the slots of the send queue. A list is published as a
// whole.
#include <cstring>
#include <mutex>

#include "verbs/send_request.h"

namespace rove::verbs {

namespace {

using transport::QueuePair;
using transport::SendWqe;

// Copies the data behind the request. Returns false if it is longer than the QP's max_inline_data.
bool copy_inline(const SendRules& rules, const ibv_send_wr& wr, SendWqe& wqe) {
    uint32_t length = 0;
    for (int i = 0; i < wr.num_sge; ++i) {
        const ibv_sge& sge = wr.sg_list[i];
        if (sge.length > rules.max_inline() - length) return false;
        std::memcpy(wqe.inline_data() + length, reinterpret_cast<const void*>(sge.addr), sge.length);
        length += sge.length;
    }
    wqe.num_sge = 0;
    wqe.length = length;
    return true;
}

// Copies the gather list. Returns false if the sum is longer than a message of the QP may be.
bool copy_sges(const SendRules& rules, const ibv_send_wr& wr, SendWqe& wqe) {
    uint64_t length = 0;
    for (int i = 0; i < wr.num_sge; ++i) {
        wqe.sges()[i] = wr.sg_list[i];
        length += wr.sg_list[i].length;
    }
    wqe.num_sge = static_cast<uint8_t>(wr.num_sge);
    wqe.length = static_cast<uint32_t>(length);
    return length <= rules.max_bytes();
}

// Fills in a slot. Returns 0 or EINVAL.
int fill(const Qp& qp, const ibv_send_wr& wr, SendWqe& wqe) {
    const SendRules& rules = qp.send_rules;
    if (!rules.takes_opcode(wr.opcode)) return EINVAL;
    if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > rules.max_sge()) return EINVAL;
    wqe.wr_id = wr.wr_id;
    wqe.opcode = static_cast<uint8_t>(wr.opcode);
    wqe.send_flags = effective_flags(qp.transport, wr.send_flags);
    switch (static_cast<unsigned>(wr.opcode)) {
        case transport::kWrFlush:
            return EINVAL;  // an ibv_send_wr has no space for its arguments; use ibv_wr_flush()
        case IBV_WR_SEND_WITH_INV:
        case IBV_WR_LOCAL_INV:
            wqe.immediate = wr.invalidate_rkey;
            break;
        default:
            wqe.immediate = be32toh(wr.imm_data);
            break;
    }
    if (wr.opcode == IBV_WR_BIND_MW) {
        wqe.num_sge = 0;
        wqe.length = 0;
        return fill_bind(wqe, wr.bind_mw.mw, IBV_MW_TYPE_2, wr.bind_mw.rkey, wr.bind_mw.bind_info);
    }
    if (rules.names_srq()) wqe.xrc_srqn = wr.qp_type.xrc.remote_srqn;
    if (rules.is_addressed()) {
        if (!may_address(qp, wr.wr.ud.ah)) return EINVAL;
        wqe.path = &from(wr.wr.ud.ah).path;
        wqe.remote_qpn = wr.wr.ud.remote_qpn;
        wqe.remote_qkey = effective_qkey(qp.transport, wr.wr.ud.remote_qkey);
    } else if (wqe.is_atomic()) {
        wqe.remote_addr = wr.wr.atomic.remote_addr;
        wqe.rkey = wr.wr.atomic.rkey;
        wqe.compare_add = wr.wr.atomic.compare_add;
        wqe.swap = wr.wr.atomic.swap;
    } else {
        wqe.remote_addr = wr.wr.rdma.remote_addr;
        wqe.rkey = wr.wr.rdma.rkey;
    }
    const bool copied = wqe.is_inline() ? copy_inline(rules, wr, wqe) : copy_sges(rules, wr, wqe);
    return copied ? check_request(rules, wqe) : EINVAL;
}

}  // namespace

int post_send(ibv_qp* handle, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
    Qp& qp = from(handle);
    QueuePair& t = qp.transport;
    int error = 0;
    {
        std::lock_guard guard(t.sq.posting);
        const uint32_t first = t.sq.produced();
        const uint32_t room = t.sq.room();
        uint32_t count = 0;
        if (!may_post_send(t)) error = EINVAL;
        for (; wr != nullptr && error == 0; wr = wr->next) {
            error = count == room ? ENOMEM : fill(qp, *wr, t.sq.at(first + count));
            if (error != 0) break;
            ++count;
        }
        if (error != 0) *bad_wr = wr;
        if (count == 0) return error;
        t.sq.publish(count);
    }
    // This applies to every state: in SQD the request waits, after an error the worker flushes it.
    qp.runtime->post(t);
    return error;
}

}  // namespace rove::verbs
