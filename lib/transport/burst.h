// SPDX-License-Identifier: Apache-2.0
// A burst of one-packet requests that differ only in their addresses, as programs post them in lists. Everything that
// they share is looked up once. Units: bytes.
#pragma once

#include "transport/memory.h"
#include "transport/queue_pair.h"
#include "transport/send_op.h"

namespace rove::transport {

class Burst {
  public:
    // Starts a burst with the requests in `qp`'s send queue from `index` on. There are at least two, and the first
    // is_plain(). Returns false if they must be sent one by one.
    bool begin(QueuePair& qp, uint32_t index, const MemoryTable& memory) {
        SendWqe& first = qp.sq.at(index);
        kind_ = first.kind();
        length_ = first.length;
        const SendWqe& second = qp.sq.at(index + 1);
        if (length_ > qp.mtu || second.kind() != kind_ || second.length != length_) return false;
        region_ = first.is_inline() ? nullptr : memory.open(first.sges()->lkey, 0, qp.pd);
        return region_ != nullptr || first.is_inline();
    }
    uint32_t length() const { return length_; }
    // Returns the data of `wqe`, or null if it differs from the others or its data may not be read.
    const void* data(SendWqe& wqe) const {
        if (wqe.kind() != kind_ || wqe.length != length_) return nullptr;
        if (region_ == nullptr) return wqe.inline_data();
        const ibv_sge& sge = *wqe.sges();
        return sge.lkey == region_->key ? region_->at(sge.addr, length_) : nullptr;
    }
    // Fills in the BTH of their first packet.
    static void fill(const QueuePair& qp, const SendWqe& first, Psn psn, wire::Headers& h) {
        h.bth.opcode = wire::opcode(qp.service(), send_op(first.opcode, true, true));
        h.bth.flags |= solicited_flag(first);
        h.bth.pkey = qp.pkey;
        h.bth.dest_qpn = qp.remote_qpn;
        h.bth.psn = psn.value();
    }
    // Fills in the headers behind BTH for the packet of `wqe`.
    void fill_behind(const SendWqe& wqe, wire::Headers& h) const {
        h.reth = {wqe.remote_addr, wqe.rkey, length_};
        h.immediate = h.invalidate_rkey = wqe.immediate;
    }

  private:
    uint32_t kind_, length_;
    const Region* region_;  // holds all their data; null if it is inline
};

}  // namespace rove::transport
