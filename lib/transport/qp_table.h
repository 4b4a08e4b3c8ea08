// SPDX-License-Identifier: Apache-2.0
// All QPs of a process by number, and by port for numbers that each port has. Also the other targets of packets:
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

// A QP is destroyed only by a thread that holds its worker.
class QueuePairTable : public NumberTable<QueuePair, &QueuePair::qpn> {
    using Numbered = NumberTable<QueuePair, &QueuePair::qpn>;

  public:
    static constexpr uint32_t kGsiQpn = 1;  // IBTA 3.5.3: general services, which each port has
    static constexpr uint16_t kMaxPorts = 256;

    explicit QueuePairTable(const Secret& secret, GracePeriod& grace = NoReaders::instance())
        : Numbered(secret), groups_(grace), secret_(secret) {}

    // Does the same as insert(), but `qp` becomes the port's QP 1. Returns false if the port has one.
    bool insert_gsi(QueuePair& qp) {
        QueuePair* none = nullptr;
        qp.qpn = kGsiQpn;
        return qp.port < kMaxPorts && gsi_[qp.port].compare_exchange_strong(none, &qp, std::memory_order_acq_rel);
    }
    // Removes it from look-ups.
    void remove(QueuePair& qp) {
        if (qp.qpn == kGsiQpn) return gsi_[qp.port].store(nullptr, std::memory_order_release);
        Numbered::remove(qp);
    }
    // Finds a QP that is not special.
    using Numbered::find;
    // Returns the QP that a frame from `port` is for.
    QueuePair* find(uint32_t qpn, uint16_t port) const {
        if (qpn < kFirst) [[unlikely]]
            return qpn == kGsiQpn && port < kMaxPorts ? gsi_[port].load(std::memory_order_acquire) : nullptr;
        return find(qpn);
    }
    // Calls `visit(QueuePair&)` for each QP.
    void for_each(const AllWorkersQuiesced& paused, auto&& visit) const {
        Numbered::for_each(paused, visit);
        for (const auto& entry : gsi_)
            if (QueuePair* qp = entry.load(std::memory_order_acquire)) visit(*qp);
    }
    // Does the same for the QPs of `worker`, during its round: none of them is destroyed before the round has ended.
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

    // XRC (annex A14): gives the SRQ a number. Returns false if all are in use.
    bool insert_xrc_srq(SharedRecvQueue& srq);
    // Removes it from look-ups: after a grace period no QP joins it any more, and those that have leave it then
    // (dismiss_members()). A message that was on its way into it ends in an error when it continues.
    void remove_xrc_srq(SharedRecvQueue& srq);
    // Returns null if no SRQ has this number.
    SharedRecvQueue* find_xrc_srq(uint32_t number) const {
        const XrcSrqTable* table = xrc_srqs_.load(std::memory_order_acquire);  // pairs with insert_xrc_srq()
        return table != nullptr ? table->find(number) : nullptr;
    }

  private:
    std::array<std::atomic<QueuePair*>, kMaxPorts> gsi_{};
    MulticastGroups groups_;
    const Secret secret_;
    std::mutex xrc_mutex_;                         // among control calls, for the following
    std::unique_ptr<XrcSrqTable> owned_xrc_srqs_;  // made with the first one: few programs use XRC
    std::atomic<XrcSrqTable*> xrc_srqs_{nullptr};
};

}  // namespace rove::transport
