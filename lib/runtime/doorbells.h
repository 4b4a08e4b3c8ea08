// SPDX-License-Identifier: Apache-2.0
// QPs whose doorbell was rung and that their worker has not looked at: a list that any thread adds to and the worker
// takes.
//
// Lock-free, so a thread that is preempted while it rings delays the requests of its own QP only. In DPDK's ring of
// several producers each waits, spinning, until those that reserved a slot before it have filled theirs: with 128
// threads on two cores nearly all of the time went there.
#pragma once

#include <atomic>
#include <utility>

#include "transport/queue_pair.h"

namespace rove::datapath {

class Doorbells {
  public:
    // Any thread. `qp` is not in the list: whoever sets QueuePair::doorbell adds it.
    void add(transport::QueuePair& qp) {
        transport::QueuePair* latest = latest_.load(std::memory_order_relaxed);
        // Release pairs with the acquire in take_all(), which reads next_rung.
        do qp.next_rung = latest;
        while (!latest_.compare_exchange_weak(latest, &qp, std::memory_order_release, std::memory_order_relaxed));
    }

    // The worker: calls `visit(QueuePair&)` for each, in the order in which they were added. They are no longer in the
    // list: as soon as its flag is cleared, one may be added again.
    void take_all(auto&& visit) {
        if (latest_.load(std::memory_order_relaxed) == nullptr) return;
        transport::QueuePair* next = latest_.exchange(nullptr, std::memory_order_acquire);
        transport::QueuePair* oldest = nullptr;
        while (next != nullptr) oldest = std::exchange(next, std::exchange(next->next_rung, oldest));
        while (oldest != nullptr) visit(*std::exchange(oldest, oldest->next_rung));
    }

  private:
    std::atomic<transport::QueuePair*> latest_{nullptr};
};

}  // namespace rove::datapath
