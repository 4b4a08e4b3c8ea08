// SPDX-License-Identifier: Apache-2.0
// All QPs of a process by number; of the numbers that each port has once, by port too. And what else packets name:
// multicast groups, and the SRQs of XRC.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "transport/multicast.h"
#include "transport/number_table.h"
#include "transport/queue_pair.h"

namespace rove::transport {

using XrcSrqTable = NumberTable<SharedRecvQueue, &SharedRecvQueue::number>;

// QPs are only destroyed by who holds their worker.
class QueuePairTable : public NumberTable<QueuePair, &QueuePair::qpn> {
    using Numbered = NumberTable<QueuePair, &QueuePair::qpn>;

  public:
    static constexpr uint32_t kGsiQpn = 1;  // IBTA 3.5.3: general services, which each port has
    static constexpr uint16_t kMaxPorts = 256;

    explicit QueuePairTable(const Secret& secret, GracePeriod& grace = NoReaders::instance())
        : Numbered(secret), groups_(grace), secret_(secret) {}

    // As insert(), but `qp` becomes the port's QP 1. False when the port has one.
    bool insert_gsi(QueuePair& qp) {
        QueuePair* none = nullptr;
        qp.qpn = kGsiQpn;
        return qp.port < kMaxPorts && gsi_[qp.port].compare_exchange_strong(none, &qp, std::memory_order_acq_rel);
    }
    // Takes it out of sight.
    void remove(QueuePair& qp) {
        if (qp.qpn == kGsiQpn) return gsi_[qp.port].store(nullptr, std::memory_order_release);
        Numbered::remove(qp);
    }
    // One that is not special.
    using Numbered::find;
    // Whom a frame that came by `port` is for.
    QueuePair* find(uint32_t qpn, uint16_t port) const {
        if (qpn < kFirst) [[unlikely]]
            return qpn == kGsiQpn && port < kMaxPorts ? gsi_[port].load(std::memory_order_acquire) : nullptr;
        return find(qpn);
    }
    // Calls `visit(QueuePair&)` for each.
    void for_each(const AllWorkersQuiesced& paused, auto&& visit) const {
        Numbered::for_each(paused, visit);
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

    // XRC (annex A14): gives the SRQ a number. False when all are taken.
    bool insert_xrc_srq(SharedRecvQueue& srq);
    // Takes it out of sight: after a grace period no QP joins it any more, and those that have leave it then
    // (dismiss_members()). A message that was on its way into it ends in an error when it goes on.
    void remove_xrc_srq(SharedRecvQueue& srq);
    // Null: there is none with this number.
    SharedRecvQueue* find_xrc_srq(uint32_t number) const {
        const XrcSrqTable* table = xrc_srqs_.load(std::memory_order_acquire);  // pairs with insert_xrc_srq()
        return table != nullptr ? table->find(number) : nullptr;
    }

  private:
    std::array<std::atomic<QueuePair*>, kMaxPorts> gsi_{};
    MulticastGroups groups_;
    const Secret secret_;
    std::mutex xrc_mutex_;                         // among control calls, for what follows
    std::unique_ptr<XrcSrqTable> owned_xrc_srqs_;  // made with the first of them: few programs have any
    std::atomic<XrcSrqTable*> xrc_srqs_{nullptr};
};

}  // namespace rove::transport
