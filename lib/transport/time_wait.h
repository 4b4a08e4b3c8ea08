// SPDX-License-Identifier: Apache-2.0
// RC's TIME_WAIT: QPs that were destroyed or reset, and what they had received.
//
// A program ends as soon as its own last completion is in. If the ACK of its peer's last request was lost, nobody would
// answer the repetition, and the peer's request would fail although it was executed (a NIC has the same hole). So what
// a QP acknowledged is acknowledged again for a while after it was destroyed.
//
// Not so READs and atomics. Verbs promises nothing of a QP that is destroyed, and a program cannot fall into this hole
// by them: it is told of a SEND, but not of a READ or an atomic, so it learns that its peer needs no more of these from
// the peer, which says so when it has the answer. And to execute a READ again would be wrong: whoever destroys a QP has
// taken back what it gave its peer to see, and may have put other things there.
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
    Psn epsn;  // all before it was received
    uint32_t msn = 0;
    wire::Service service = wire::Service::kRc;
    uint64_t since_ns = 0;
};

// One for all workers, since any of them may receive the repetition. Any thread.
class TimeWaitTable {
  public:
    // Control call: the QP, which speaks rc, mp or XRC, is destroyed or reset.
    void insert(const QueuePair& qp, uint64_t now_ns) {
        const std::lock_guard lock(lock_);
        while (!order_.empty() && (order_.front().second + kRememberNs < now_ns || order_.size() >= kMost)) {
            const auto [qpn, since_ns] = order_.front();
            // a QP that was reset and is destroyed later stands in the order twice
            const auto entry = entries_.find(qpn);
            if (entry != entries_.end() && entry->second.since_ns == since_ns) entries_.erase(entry);
            order_.pop_front();
        }
        const Rc* rc = qp.rc_or_xrc();
        Path path = qp.path;
        if (path.next_hop != nullptr) {  // what nobody uses any more need not be asked where it is
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
    // many tail probes; a timeout of the verbs' usual 67 ms or less
    static constexpr uint64_t kRememberNs = 1'000'000'000;
    static constexpr size_t kMost = 1 << 16;
    mutable SpinLock lock_;  // of control calls, and of frames for nobody
    std::unordered_map<uint32_t, TimeWait> entries_;
    std::deque<std::pair<uint32_t, uint64_t>> order_;  // QPN, time
};

}  // namespace rove::transport
