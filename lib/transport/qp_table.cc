// SPDX-License-Identifier: Apache-2.0
#include "transport/qp_table.h"

namespace rove::transport {

QueuePairTable::QueuePairTable(const Secret& secret, GracePeriod& grace)
    : entries_(kEntries), generations_(kEntries), groups_(grace) {
    for (uint32_t index = 0; index < kEntries; ++index) generations_[index] = static_cast<uint8_t>(secret.hash(index));
    const uint64_t random = secret.hash(kEntries);
    next_ = static_cast<uint32_t>(random) % kEntries;
    step_ = static_cast<uint32_t>(random >> 32) % kEntries | 1;  // odd, so that it leads to each index
}

bool QueuePairTable::insert(QueuePair& qp) {
    const std::lock_guard lock(mutex_);
    for (uint32_t tried = 0; tried < kEntries; ++tried) {
        const uint32_t index = next_;
        next_ = (next_ + step_) % kEntries;
        if (index < kFirst || index == kEntries - 1 || entries_[index].load(std::memory_order_relaxed) != nullptr)
            continue;
        qp.qpn = static_cast<uint32_t>(generations_[index]++) << 16 | index;
        entries_[index].store(&qp, std::memory_order_release);
        return true;
    }
    return false;
}

bool QueuePairTable::insert_gsi(QueuePair& qp) {
    const std::lock_guard lock(mutex_);
    if (qp.port >= kMaxPorts || gsi_[qp.port].load(std::memory_order_relaxed) != nullptr) return false;
    qp.qpn = kGsiQpn;
    gsi_[qp.port].store(&qp, std::memory_order_release);
    return true;
}

void QueuePairTable::remove(QueuePair& qp) {
    const std::lock_guard lock(mutex_);
    if (qp.qpn == kGsiQpn) return gsi_[qp.port].store(nullptr, std::memory_order_release);
    entries_[qp.qpn & (kEntries - 1)].store(nullptr, std::memory_order_release);
}

}  // namespace rove::transport
