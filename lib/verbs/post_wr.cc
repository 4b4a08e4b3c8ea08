// SPDX-License-Identifier: Apache-2.0
// The ibv_wr_* calls. Requests are built in place between ibv_wr_start and ibv_wr_complete, and the first error is
// kept.
#include <cstring>

#include "verbs/send_request.h"

namespace rove::verbs {

namespace {

using transport::SendWqe;

// Checks the current request, which has all its parts: another one begins, or it is the last.
void finish_current(Qp& qp) {
    if (qp.wr_current == nullptr) return;
    const SendWqe& wqe = *qp.wr_current;
    const bool addressed = !qp.send_rules.is_addressed() || wqe.path != nullptr;
    if (qp.wr_error == 0 && (!addressed || check_request(qp.send_rules, wqe) != 0)) qp.wr_error = EINVAL;
}

// Returns a buffer for the parts of a refused request, which is never sent.
SendWqe* discarded() {
    static thread_local struct alignas(64) {
        uint8_t bytes[sizeof(SendWqe) + transport::kMaxSge * sizeof(ibv_sge) + transport::kMaxInlineBytes];
    } slot;
    return reinterpret_cast<SendWqe*>(slot.bytes);
}

SendWqe& begin(Qp& qp, ibv_wr_opcode opcode) {
    finish_current(qp);
    transport::QueuePair& t = qp.transport;
    if (qp.wr_error == 0) {
        if (!may_post_send(t) || !qp.send_rules.takes_opcode(opcode)) {
            qp.wr_error = EINVAL;
        } else if (qp.wr_pending == t.sq.room()) {
            qp.wr_error = ENOMEM;
        }
    }
    SendWqe& wqe = qp.wr_error == 0 ? t.sq.at(t.sq.produced() + qp.wr_pending++) : *discarded();
    qp.wr_current = &wqe;
    wqe.wr_id = qp.wr_id;
    wqe.opcode = static_cast<uint8_t>(opcode);
    wqe.send_flags = effective_flags(t, qp.wr_flags & ~static_cast<unsigned>(IBV_SEND_INLINE));
    wqe.num_sge = 0;
    wqe.length = 0;
    wqe.path = nullptr;
    wqe.xrc_srqn = 0;
    return wqe;
}

void set_target(SendWqe& wqe, uint32_t rkey, uint64_t remote_addr) {
    wqe.rkey = rkey;
    wqe.remote_addr = remote_addr;
}

void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) {
    set_target(begin(from(qp), IBV_WR_RDMA_WRITE), rkey, remote_addr);
}

void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, __be32 immediate) {
    SendWqe& wqe = begin(from(qp), IBV_WR_RDMA_WRITE_WITH_IMM);
    set_target(wqe, rkey, remote_addr);
    wqe.immediate = be32toh(immediate);
}

void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) {
    set_target(begin(from(qp), IBV_WR_RDMA_READ), rkey, remote_addr);
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t compare, uint64_t swap) {
    SendWqe& wqe = begin(from(qp), IBV_WR_ATOMIC_CMP_AND_SWP);
    set_target(wqe, rkey, remote_addr);
    wqe.compare_add = compare;
    wqe.swap = swap;
}

void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t add) {
    SendWqe& wqe = begin(from(qp), IBV_WR_ATOMIC_FETCH_AND_ADD);
    set_target(wqe, rkey, remote_addr);
    wqe.compare_add = add;
}

void wr_atomic_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, const void* word) {
    SendWqe& wqe = begin(from(qp), static_cast<ibv_wr_opcode>(transport::kWrAtomicWrite));
    set_target(wqe, rkey, remote_addr);
    std::memcpy(&wqe.compare_add, word, transport::kAtomicWriteBytes);
    wqe.length = transport::kAtomicWriteBytes;
}

void wr_flush(ibv_qp_ex* handle, uint32_t rkey, uint64_t remote_addr, size_t length, uint8_t placement,
              uint8_t selectivity) {
    constexpr uint8_t kPlacements = transport::kFlushGlobal | transport::kFlushPersistent;
    Qp& qp = from(handle);
    SendWqe& wqe = begin(qp, static_cast<ibv_wr_opcode>(transport::kWrFlush));
    set_target(wqe, rkey, remote_addr);
    if (placement == 0 || (placement & ~kPlacements) != 0 || selectivity > transport::kFlushRegion ||
        length > qp.send_rules.max_bytes()) {
        qp.wr_error = EINVAL;
        return;
    }
    wqe.length = static_cast<uint32_t>(length);
    wqe.immediate = uint32_t{selectivity} << 4 | placement;
}

void wr_send(ibv_qp_ex* qp) {
    begin(from(qp), IBV_WR_SEND);
}

void wr_send_imm(ibv_qp_ex* qp, __be32 immediate) {
    begin(from(qp), IBV_WR_SEND_WITH_IMM).immediate = be32toh(immediate);
}

void wr_send_inv(ibv_qp_ex* qp, uint32_t rkey) {
    begin(from(qp), IBV_WR_SEND_WITH_INV).immediate = rkey;
}

void wr_local_inv(ibv_qp_ex* qp, uint32_t rkey) {
    begin(from(qp), IBV_WR_LOCAL_INV).immediate = rkey;
}

void wr_bind_mw(ibv_qp_ex* handle, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
    Qp& qp = from(handle);
    SendWqe& wqe = begin(qp, IBV_WR_BIND_MW);
    const int error = fill_bind(wqe, mw, IBV_MW_TYPE_2, rkey, *info);
    if (qp.wr_error == 0) qp.wr_error = error;
}

void wr_set_ud_addr(ibv_qp_ex* handle, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) {
    Qp& qp = from(handle);
    SendWqe& wqe = *qp.wr_current;
    wqe.path = may_address(qp, ah) ? &from(ah).path : nullptr;
    wqe.remote_qpn = remote_qpn;
    wqe.remote_qkey = effective_qkey(qp.transport, remote_qkey);
}

void wr_set_xrc_srqn(ibv_qp_ex* qp, uint32_t remote_srqn) {
    from(qp).wr_current->xrc_srqn = remote_srqn;
}

void wr_set_sge_list(ibv_qp_ex* handle, size_t count, const ibv_sge* sges) {
    Qp& qp = from(handle);
    SendWqe& wqe = *qp.wr_current;
    uint64_t length = 0;
    if (count > qp.send_rules.max_sge()) {
        qp.wr_error = EINVAL;
        return;
    }
    for (size_t i = 0; i < count; ++i) {
        wqe.sges()[i] = sges[i];
        length += sges[i].length;
    }
    wqe.num_sge = static_cast<uint8_t>(count);
    wqe.length = static_cast<uint32_t>(length);
    if (length > qp.send_rules.max_bytes()) qp.wr_error = EINVAL;
}

void wr_set_sge(ibv_qp_ex* handle, uint32_t lkey, uint64_t addr, uint32_t length) {
    Qp& qp = from(handle);
    SendWqe& wqe = *qp.wr_current;
    if (qp.send_rules.max_sge() == 0) {
        qp.wr_error = EINVAL;
        return;
    }
    wqe.sges()[0] = {.addr = addr, .length = length, .lkey = lkey};
    wqe.num_sge = 1;
    wqe.length = length;
}

void wr_set_inline_data_list(ibv_qp_ex* handle, size_t count, const ibv_data_buf* buffers) {
    Qp& qp = from(handle);
    SendWqe& wqe = *qp.wr_current;
    size_t length = 0;
    for (size_t i = 0; i < count; ++i) {
        if (buffers[i].length > qp.send_rules.max_inline() - length) {
            qp.wr_error = EINVAL;
            return;
        }
        std::memcpy(wqe.inline_data() + length, buffers[i].addr, buffers[i].length);
        length += buffers[i].length;
    }
    wqe.send_flags |= IBV_SEND_INLINE;
    wqe.length = static_cast<uint32_t>(length);
}

void wr_set_inline_data(ibv_qp_ex* qp, void* addr, size_t length) {
    const ibv_data_buf buffer{.addr = addr, .length = length};
    wr_set_inline_data_list(qp, 1, &buffer);
}

void wr_start(ibv_qp_ex* handle) {
    Qp& qp = from(handle);
    const bool inherited = qp.runtime->in_forked_child();
    if (!inherited) qp.transport.sq.posting.lock();
    qp.wr_error = inherited ? ENODEV : 0;
    qp.wr_pending = 0;
    qp.wr_current = nullptr;
}

int wr_complete(ibv_qp_ex* handle) {
    Qp& qp = from(handle);
    if (qp.runtime->in_forked_child()) [[unlikely]]
        return with_errno(ENODEV);
    finish_current(qp);
    const int error = qp.wr_error;
    if (error == 0) qp.transport.sq.publish(qp.wr_pending);
    qp.transport.sq.posting.unlock();
    if (error == 0) qp.runtime->post(qp.transport);
    return error;
}

void wr_abort(ibv_qp_ex* qp) {
    if (!from(qp).runtime->in_forked_child()) from(qp).transport.sq.posting.unlock();
}

}  // namespace

void set_wr_functions(ibv_qp_ex& qp) {
    qp.wr_rdma_write = wr_rdma_write;
    qp.wr_rdma_write_imm = wr_rdma_write_imm;
    qp.wr_rdma_read = wr_rdma_read;
    qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
    qp.wr_atomic_write = wr_atomic_write;
    from(&qp).wr_flush = wr_flush;
    qp.wr_send = wr_send;
    qp.wr_send_imm = wr_send_imm;
    qp.wr_send_inv = wr_send_inv;
    qp.wr_local_inv = wr_local_inv;
    qp.wr_bind_mw = wr_bind_mw;
    qp.wr_set_ud_addr = wr_set_ud_addr;
    qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
    qp.wr_set_sge = wr_set_sge;
    qp.wr_set_sge_list = wr_set_sge_list;
    qp.wr_set_inline_data = wr_set_inline_data;
    qp.wr_set_inline_data_list = wr_set_inline_data_list;
    qp.wr_start = wr_start;
    qp.wr_complete = wr_complete;
    qp.wr_abort = wr_abort;
}

}  // namespace rove::verbs
