// SPDX-License-Identifier: Apache-2.0
// Timers: an indexed binary heap of QPs by deadline. A later deadline does not move a QP; it is looked at when the
// earlier one passes and put back, so that a busy QP costs one heap operation per timeout and not one per packet. One
// that has nothing on its way is taken out: of thousands in turn, each would else be looked at once more when it is no
// longer in any cache. Units: nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transport/queue_pair.h"

namespace rove::transport {

class DeadlineHeap {
  public:
    uint64_t earliest() const {
        return heap_.empty() ? kNever : heap_.front().deadline - std::min(heap_.front().deadline, advanced_ns_);
    }
    // The QP wants to be looked at no later than `deadline`.
    void schedule(QueuePair& qp, uint64_t deadline);
    // Takes out the QP with the earliest deadline if that has passed; null otherwise.
    QueuePair* pop(uint64_t now_ns);
    void remove(QueuePair& qp);
    // Every QP wants to be looked at by so much earlier. One whose deadline did not move is put back then.
    void advance(uint64_t ns) { advanced_ns_ += ns; }

  private:
    struct Entry {
        uint64_t deadline;  // with what was advanced before it was set
        QueuePair* qp;
    };
    void place(Entry entry, uint32_t index);
    void sift_up(Entry entry, uint32_t index);
    void sift_down(Entry entry, uint32_t index);
    std::vector<Entry> heap_;
    uint64_t advanced_ns_ = 0;
};

}  // namespace rove::transport
