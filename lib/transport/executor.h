// SPDX-License-Identifier: Apache-2.0
// Executes a peer's requests: rights, bounds, receive requests, memory, completions. The order in which packets may
// take effect is decided by the responders of rc, uc and mp, which all use this. Units: bytes.
#pragma once

#include "transport/core.h"
#include "transport/outcome.h"
#include "transport/send_op.h"

namespace rove::transport {

template <class S>
class Executor {
  public:
    Executor(Core<S>& core, QueuePair& qp) : core_(core), qp_(qp), slot_(qp.slot) {}

    // Returns the packets of a message, or of the answer to a READ, of that many bytes.
    [[gnu::always_inline]] uint32_t packets(uint32_t bytes) const {
        return bytes <= qp_.mtu ? 1 : (bytes + qp_.mtu - 1) / qp_.mtu;
    }

    // Checks IBTA 9.7.4.1.6: all packets but the last have the path MTU; the last is not empty and not longer.
    [[gnu::always_inline]] bool payload_fits(const wire::ParsedFrame& frame, wire::Op op) const {
        if (!is_last(op)) return frame.payload_bytes == qp_.mtu;
        return frame.payload_bytes <= qp_.mtu && (is_only(op) || frame.payload_bytes != 0);
    }
    // Gives the message a receive request unless it holds one. One may be held already: it was taken for a message that
    // never ended.
    [[gnu::always_inline]] Outcome take_receive() {
        if (slot_.taken || core_.take_receive(qp_) == Core<S>::ReceiveLookup::kYes) return Outcome::kDone;
        return Outcome::kNoReceive;
    }
    // Places the payload of a SEND's packet at `offset` of the held receive request.
    [[gnu::always_inline]] Outcome place_send(const wire::ParsedFrame& frame, uint64_t offset) {
        if (offset + frame.payload_bytes > slot_.wqe.length) return Outcome::kTooLong;
        BytesReader payload{frame.payload};
        const ibv_wc_status status = core_.scatter(slot_.sges.get(), slot_.wqe.num_sge, static_cast<uint32_t>(offset),
                                                   payload, frame.payload_bytes, qp_.recv_pd);
        return status == IBV_WC_SUCCESS ? Outcome::kDone : Outcome::kLocalProtection;
    }
    // Completes a SEND of `bytes` after its last packet was placed.
    [[gnu::always_inline]] Outcome finish_send(const wire::Headers& headers, wire::Op op, uint32_t bytes) {
        if ((op == wire::Op::kSendLastInv || op == wire::Op::kSendOnlyInv) &&
            !core_.memory.invalidate(headers.invalidate_rkey, qp_)) {
            return Outcome::kBadInvalidate;
        }
        complete_message(headers, op, IBV_WC_RECV, bytes);
        return Outcome::kDone;
    }
    // Checks IBTA 9.4.1, and that both ends can tell its packets from those before and after (half of the PSNs are
    // "before").
    [[gnu::always_inline]] bool is_length_valid(uint32_t bytes) const {
        return bytes <= kMaxMessageBytes && packets(bytes) <= kMaxMessagePackets;
    }
    bool may_write() const { return (qp_.access & IBV_ACCESS_REMOTE_WRITE) != 0; }
    // Returns the destination of `bytes` of a WRITE, or null if the peer may not write there.
    [[gnu::always_inline]] uint8_t* write_target(uint32_t rkey, uint64_t va, uint32_t bytes) const {
        return core_.memory.translate(rkey, va, bytes, IBV_ACCESS_REMOTE_WRITE, qp_.pd, &qp_);
    }
    // Completes a WRITE of `bytes` after its last packet was placed. A WRITE with immediate has taken its receive
    // request.
    [[gnu::always_inline]] void finish_write(const wire::Headers& headers, wire::Op op, uint32_t bytes) {
        if (has_immediate(op)) complete_message(headers, op, IBV_WC_RECV_RDMA_WITH_IMM, bytes);
    }
    // Returns the source of a READ's data, or null if the peer may not read it.
    const uint8_t* read_source(uint32_t rkey, uint64_t va, uint32_t bytes, const void* pd) const {
        return core_.memory.translate(rkey, va, bytes, IBV_ACCESS_REMOTE_READ, pd, &qp_);
    }
    Outcome check_read(const wire::Reth& reth, const void* pd) const {
        if ((qp_.access & IBV_ACCESS_REMOTE_READ) == 0) return Outcome::kInvalidRequest;
        if (!is_length_valid(reth.length) || qp_.max_dest_rd_atomic == 0) return Outcome::kInvalidRequest;
        return read_source(reth.rkey, reth.va, reth.length, pd) != nullptr ? Outcome::kDone : Outcome::kRemoteAccess;
    }
    // Executes a compare-and-swap or fetch-and-add. `original` gets the previous word.
    Outcome execute_atomic(const wire::AtomicEth& request, wire::Op op, uint64_t& original) {
        if ((qp_.access & IBV_ACCESS_REMOTE_ATOMIC) == 0 || qp_.max_dest_rd_atomic == 0)
            return Outcome::kInvalidRequest;
        if (request.va % 8 != 0) return Outcome::kInvalidRequest;
        uint8_t* target = core_.memory.translate(request.rkey, request.va, 8, IBV_ACCESS_REMOTE_ATOMIC, qp_.pd, &qp_);
        if (target == nullptr) return Outcome::kRemoteAccess;
        // A zero-based or offset region can make an aligned iova an unaligned address.
        if (reinterpret_cast<uintptr_t>(target) % 8 != 0) return Outcome::kInvalidRequest;
        std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(target));
        if (op == wire::Op::kFetchAdd) {
            original = word.fetch_add(request.swap_or_add);
        } else {
            original = request.compare;
            word.compare_exchange_strong(original, request.swap_or_add);
        }
        return Outcome::kDone;
    }
    // Writes a word as a whole. Its bytes are in the order of the peer's memory.
    Outcome execute_atomic_write(const wire::ParsedFrame& frame) {
        const wire::Reth& reth = frame.headers.reth;
        if (!may_write() || qp_.max_dest_rd_atomic == 0) return Outcome::kInvalidRequest;
        if (reth.length != kAtomicWriteBytes || frame.payload_bytes != kAtomicWriteBytes || reth.va % 8 != 0)
            return Outcome::kInvalidRequest;
        uint8_t* target = write_target(reth.rkey, reth.va, kAtomicWriteBytes);
        if (target == nullptr) return Outcome::kRemoteAccess;
        if (reinterpret_cast<uintptr_t>(target) % 8 != 0) return Outcome::kInvalidRequest;
        uint64_t word;
        std::memcpy(&word, frame.payload, sizeof(word));
        std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(target)).store(word, std::memory_order_release);
        return Outcome::kDone;
    }
    // Executes a FLUSH: all threads see the WRITEs before it already, so it only has to be acknowledged.
    Outcome execute_flush(const wire::Headers& headers) const {
        const wire::Feth& feth = headers.feth;
        const wire::Reth& reth = headers.reth;
        const int needed = (feth.placement & kFlushGlobal ? kAccessFlushGlobal : 0) |
                           (feth.placement & kFlushPersistent ? kAccessFlushPersistent : 0);
        if (needed == 0 || (qp_.access & static_cast<uint32_t>(needed)) != static_cast<uint32_t>(needed) ||
            feth.placement > (kFlushGlobal | kFlushPersistent) || feth.selectivity > kFlushRegion ||
            qp_.max_dest_rd_atomic == 0) {
            return Outcome::kInvalidRequest;
        }
        const bool granted = feth.selectivity == kFlushRegion ? core_.memory.grants(reth.rkey, needed, qp_.pd)
                                                              : core_.memory.translate(reth.rkey, reth.va, reth.length,
                                                                                       needed, qp_.pd, &qp_) != nullptr;
        if (!granted) return Outcome::kRemoteAccess;
        std::atomic_thread_fence(std::memory_order_seq_cst);
        return Outcome::kDone;
    }
    // Applies the consequences of an outcome to the QP and its receive request. The responder answers the peer.
    void apply(const Consequence& consequence) {
        if (consequence.has_event) core_.sink.event(consequence.event, qp_);
        core_.fail_receive(qp_, consequence.receive);
    }

  private:
    // Completes a SEND or WRITE with immediate that was received whole; `headers` and `op` are its last packet's.
    void complete_message(const wire::Headers& headers, wire::Op op, ibv_wc_opcode opcode, uint32_t bytes) {
        core_.complete_receive(qp_, headers.bth.solicited(), [&](ibv_wc& wc) {
            wc.opcode = opcode;
            wc.byte_len = bytes;
            wc.src_qp = qp_.remote_qpn;
            if (has_immediate(op)) {
                wc.wc_flags = IBV_WC_WITH_IMM;
                wc.imm_data = htobe32(headers.immediate);
            } else if (op == wire::Op::kSendLastInv || op == wire::Op::kSendOnlyInv) {
                wc.wc_flags = IBV_WC_WITH_INV;
                wc.invalidated_rkey = headers.invalidate_rkey;
            }
        });
    }

    Core<S>& core_;
    QueuePair& qp_;
    ReceiveSlot& slot_;
};

}  // namespace rove::transport
