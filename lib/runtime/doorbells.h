// SPDX-License-Identifier: Apache-2.0
// The QPs whose doorbell was rung and has not been consumed by their worker: a list to which any thread adds, and from
// which the worker takes.
//
// The list is lock-free, so a thread that is preempted while it rings delays only the requests of its own QP. In DPDK's
// multi-producer ring each producer spins until those that reserved a slot before it have filled their slots. With 128
// threads on two cores that took nearly all of the time.
#pragma once

#include <atomic>
#include <utility>

#include "transport/queue_pair.h"

namespace rove::datapath {

class Doorbells {
  public:
    // Adds `qp`. Any thread may call it. `qp` is not in the list, because the thread that sets QueuePair::doorbell adds
    // it.
    void add(transport::QueuePair& qp) {
        transport::QueuePair* latest = latest_.load(std::memory_order_relaxed);
        // Release pairs with the acquire in take_all(), which reads next_rung.
        do qp.next_rung = latest;
        while (!latest_.compare_exchange_weak(latest, &qp, std::memory_order_release, std::memory_order_relaxed));
    }

    // Empties the list and calls `visit(QueuePair&)` for each QP in the order in which they were added. Only the worker
    // may call it. A QP may be added again as soon as its flag is cleared.
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
