// SPDX-License-Identifier: Apache-2.0
// A burst of requests of one packet each that differ in nothing but place, as a program posts them in lists: what is
// the same for all is looked up once. Units: bytes.
#pragma once

#include "transport/memory.h"
#include "transport/queue_pair.h"
#include "transport/send_op.h"

namespace rove::transport {

class Burst {
  public:
    // Of the requests in `qp`'s send queue from `index` on, two at least, of which the first is_plain(). False: they go
    // one by one.
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
    // The data of `wqe`. Null: it is not like the others, or may not be read.
    const void* data(SendWqe& wqe) const {
        if (wqe.kind() != kind_ || wqe.length != length_) return nullptr;
        if (region_ == nullptr) return wqe.inline_data();
        const ibv_sge& sge = *wqe.sges();
        return sge.lkey == region_->key ? region_->at(sge.addr, length_) : nullptr;
    }
    // The BTH of their first packet.
    static void fill(const QueuePair& qp, const SendWqe& first, Psn psn, wire::Headers& h) {
        h.bth.opcode = wire::opcode(qp.service(), send_op(first.opcode, true, true));
        h.bth.flags |= solicited_flag(first);
        h.bth.pkey = qp.pkey;
        h.bth.dest_qpn = qp.remote_qpn;
        h.bth.psn = psn.value();
    }
    // What the packet of `wqe` says behind BTH.
    void fill_behind(const SendWqe& wqe, wire::Headers& h) const {
        h.reth = {wqe.remote_addr, wqe.rkey, length_};
        h.immediate = h.invalidate_rkey = wqe.immediate;
    }

  private:
    uint32_t kind_, length_;
    const Region* region_;  // of all their data; null: it is inline
};

}  // namespace rove::transport
