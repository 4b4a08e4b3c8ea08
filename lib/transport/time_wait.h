// SPDX-License-Identifier: Apache-2.0
// RC's TIME_WAIT: QPs that were destroyed or reset, and the packets that they had received.
//
// A program ends as soon as its own last completion is in. If the ACK of its peer's last request was lost, no QP would
// answer the repetition, and the peer's request would fail although it was executed (NICs have the same gap). So
// everything that a QP acknowledged is acknowledged again for a while after it was destroyed.
//
// READs and atomics are excluded. Verbs guarantees nothing about a destroyed QP, and a program cannot fall into this
// gap by them: it sees a SEND, but not a READ or an atomic, so it learns from the peer that it needs no more of them,
// which the peer reports when it has the answer. And another execution of a READ would be wrong: a program that
// destroys a QP has taken back the memory it exposed, and may have put other data there.
#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/spin_lock.h"
#include "transport/queue_pair.h"

namespace rove::transport {

struct TimeWait {
    Path path;
    uint32_t remote_qpn = 0;
    uint16_t pkey = 0;
    uint16_t port = 0;
    Psn epsn;  // everything before it was received
    uint32_t msn = 0;
    wire::Service service = wire::Service::kRc;
    uint64_t since_ns = 0;
};

// One table for all workers, since any of them may receive the repetition. Any thread may call it.
class TimeWaitTable {
  public:
    // Records a QP that speaks rc, mp or XRC and is destroyed or reset. A control call.
    void insert(const QueuePair& qp, uint64_t now_ns) {
        const std::lock_guard lock(lock_);
        while (!order_.empty() && (order_.front().second + kRememberNs < now_ns || order_.size() >= kMost)) {
            const auto [qpn, since_ns] = order_.front();
            // A QP that was reset and is destroyed later is in the order twice.
            const auto entry = entries_.find(qpn);
            if (entry != entries_.end() && entry->second.since_ns == since_ns) entries_.erase(entry);
            order_.pop_front();
        }
        const Rc* rc = qp.rc_or_xrc();
        Path path = qp.path;
        if (path.next_hop != nullptr) {  // an unused address need not be resolved any more
            path.next_hop->write(path.headers.bytes.data());
            path.next_hop = nullptr;
        }
        entries_[qp.qpn] = {.path = std::move(path),
                            .remote_qpn = qp.remote_qpn,
                            .pkey = qp.pkey,
                            .port = qp.port,
                            .epsn = Psn(qp.expected_psn()),
                            .msn = rc != nullptr ? rc->responder.msn : 0,
                            .service = qp.service(),
                            .since_ns = now_ns};
        order_.emplace_back(qp.qpn, now_ns);
    }
    std::optional<TimeWait> find(uint32_t qpn) const {
        const std::lock_guard lock(lock_);
        const auto found = entries_.find(qpn);
        if (found == entries_.end()) return std::nullopt;
        return found->second;
    }

  private:
    // The time of many tail probes, and of a timeout of the verbs' usual 67 ms or less.
    static constexpr uint64_t kRememberNs = 1'000'000'000;
    static constexpr size_t kMost = 1 << 16;
    mutable SpinLock lock_;  // for control calls, and for frames without a QP
    std::unordered_map<uint32_t, TimeWait> entries_;
    std::deque<std::pair<uint32_t, uint64_t>> order_;  // QPN, time
};

}  // namespace rove::transport
