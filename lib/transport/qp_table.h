// SPDX-License-Identifier: Apache-2.0
// All QPs of a process by number; of the numbers that each port has once, by port too. Control calls change it while workers look QPs up: a slot is one pointer that is
// stored with release and loaded with acquire order. Whoever takes a QP out waits for a grace period before its memory
// goes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/multicast.h"
#include "transport/queue_pair.h"
#include "transport/secret.h"
#include "transport/standstill.h"

namespace rove::transport {

// A number is an index (low 16 bits) and a generation (high 8 bits). The first index and the step from one to the next
// are random, and so is each index's first generation. An index comes again when all others had their turn, with the
// next generation, so that late packets of a destroyed QP do not find its successor.
class QueuePairTable {
  public:
    static constexpr uint32_t kEntries = 1u << 16;
    static constexpr uint32_t kFirst = 16;  // 0 and 1 are special, IBTA 3.5.3; the rest reserved for ours
    static constexpr uint32_t kGsiQpn = 1;  // IBTA 3.5.3: general services, which each port has
    static constexpr uint16_t kMaxPorts = 32;  // RTE_MAX_ETHPORTS
    // The last index is left out: with generation 255 it would be the multicast QPN.
    static constexpr uint32_t kCapacity = kEntries - 1 - kFirst;

    explicit QueuePairTable(const Secret& secret, GracePeriod& grace = NoReaders::instance());
    // Gives `qp` a number and publishes it: all else that workers read of it is set. False when all numbers are taken.
    bool insert(QueuePair& qp);
    // As insert(), but `qp` becomes the port's QP 1. False when the port has one.
    bool insert_gsi(QueuePair& qp);
    // Takes it out of sight.
    void remove(QueuePair& qp);
    // Whom a frame that came by `port` is for.
    QueuePair* find(uint32_t qpn, uint16_t port) const {
        if (qpn < kFirst) [[unlikely]]
            return qpn == kGsiQpn && port < kMaxPorts ? gsi_[port].load(std::memory_order_acquire) : nullptr;
        return find(qpn);
    }
    // One that is not special.
    QueuePair* find(uint32_t qpn) const {
        QueuePair* qp = entries_[qpn & (kEntries - 1)].load(std::memory_order_acquire);  // pairs with insert()
        return qp != nullptr && qp->qpn == qpn ? qp : nullptr;
    }
    // Calls `visit(QueuePair&)` for each. QPs are only destroyed by who holds their worker.
    void for_each(const Paused&, auto&& visit) const {
        for (const auto& entry : entries_)
            if (QueuePair* qp = entry.load(std::memory_order_acquire)) visit(*qp);
        for (const auto& entry : gsi_)
            if (QueuePair* qp = entry.load(std::memory_order_acquire)) visit(*qp);
    }
    // The same for the QPs of `worker`, during a round of it: none of them is destroyed before that has ended.
    void for_each_of(uint16_t worker, auto&& visit) const {
        for (const auto& entry : entries_)
            if (QueuePair* qp = entry.load(std::memory_order_acquire); qp != nullptr && qp->worker == worker)
                visit(*qp);
        for (const auto& entry : gsi_)
            if (QueuePair* qp = entry.load(std::memory_order_acquire); qp != nullptr && qp->worker == worker)
                visit(*qp);
    }

    // A QP leaves its groups before it is removed.
    MulticastGroups& groups() { return groups_; }
    const MulticastGroups& groups() const { return groups_; }

  private:
    std::vector<std::atomic<QueuePair*>> entries_;
    std::array<std::atomic<QueuePair*>, kMaxPorts> gsi_{};
    std::mutex mutex_;  // among control calls, for what follows
    std::vector<uint8_t> generations_;
    uint32_t next_, step_;
    MulticastGroups groups_;
};

}  // namespace rove::transport
