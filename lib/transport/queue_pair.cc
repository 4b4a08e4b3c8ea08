// SPDX-License-Identifier: Apache-2.0
#include "transport/queue_pair.h"

#include <algorithm>
#include <bit>

namespace rove::transport {

void Responder::make_room(uint32_t requests) {
    const uint32_t size = std::bit_ceil(std::max<uint32_t>(2 * requests, 1));
    if (size > jobs.size()) {
        std::vector<ResponderJob> larger(size);
        for (uint32_t i = job_head; i != job_tail; ++i) larger[i & (size - 1)] = jobs[i & (jobs.size() - 1)];
        jobs = std::move(larger);
    }
    const uint32_t kept = std::max<uint32_t>(requests, 1);
    if (kept > atomics.size()) {
        // The oldest first: it is the first to be overwritten.
        if (!atomics.empty()) {
            std::rotate(atomics.begin(), atomics.begin() + next_atomic % atomics.size(), atomics.end());
        }
        next_atomic = static_cast<uint32_t>(atomics.size());
        atomics.resize(kept);
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
