// SPDX-License-Identifier: Apache-2.0
#include "transport/queue_pair.h"

#include <algorithm>

namespace rove::transport {

uint32_t QueuePair::next_psn() const {
    if (const Rc* rc = this->rc(); rc != nullptr) return rc->requester.next_psn.value();
    if (const Mp* mp = this->mp(); mp != nullptr) return mp->requests.nxt.value();
    if (const Uc* uc = std::get_if<Uc>(&protocol); uc != nullptr) return uc->next_psn.value();
    if (const Ud* ud = std::get_if<Ud>(&protocol); ud != nullptr) return ud->next_psn.value();
    return 0;
}

uint32_t QueuePair::expected_psn() const {
    if (const Rc* rc = this->rc(); rc != nullptr) return rc->responder.epsn.value();
    if (const Mp* mp = this->mp(); mp != nullptr) return mp->requests_in.expected.value();
    if (const Uc* uc = std::get_if<Uc>(&protocol); uc != nullptr) return uc->epsn.value();
    return 0;
}

void QueuePair::make_room() {
    if (Rc* rc = this->rc(); rc != nullptr) rc->responder.make_room(max_dest_rd_atomic);
    if (Mp* mp = this->mp(); mp != nullptr) {
        mp->jobs.make_room(2 * max_dest_rd_atomic);
        mp->reads.make_room(max_rd_atomic);
    }
}

QueuePairTable::QueuePairTable() : entries_(kEntries, nullptr), generations_(kEntries, 0) {}

bool QueuePairTable::insert(QueuePair& qp) {
    for (uint32_t tried = 0; tried < kEntries - kFirst; ++tried) {
        const uint32_t index = next_;
        // The last index is left out: with generation 255 it would be the multicast QPN.
        next_ = next_ + 1 == kEntries - 1 ? kFirst : next_ + 1;
        if (entries_[index] != nullptr) continue;
        qp.qpn = static_cast<uint32_t>(generations_[index]++) << 16 | index;
        entries_[index] = &qp;
        return true;
    }
    return false;
}

void QueuePairTable::remove(QueuePair& qp) {
    if (qp.type == IBV_QPT_UD) groups_.remove(qp);
    entries_[qp.qpn & (kEntries - 1)] = nullptr;
}

}  // namespace rove::transport
