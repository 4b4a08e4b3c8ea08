// SPDX-License-Identifier: Apache-2.0
// Timers: an indexed binary heap of QPs by deadline. A later deadline does not move a QP; the QP is checked when the
// earlier deadline passes and put back, so that a busy QP costs one heap operation per timeout rather than per packet.
// A QP with nothing in flight is removed: otherwise each of thousands would be visited once more when it has left all
// caches. Units: nanoseconds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/queue_pair.h"

namespace rove::transport {

class DeadlineHeap {
  public:
    // Returns the number of QPs that wait for something, which is about the number of busy ones.
    size_t size() const { return heap_.size(); }
    uint64_t earliest() const {
        return heap_.empty() ? kNever : heap_.front().deadline - std::min(heap_.front().deadline, advanced_ns_);
    }
    // Asks for a call for the QP no later than `deadline`.
    void schedule(QueuePair& qp, uint64_t deadline);
    // Removes and returns the QP with the earliest deadline if that has passed, otherwise null.
    QueuePair* pop(uint64_t now_ns);
    void remove(QueuePair& qp);
    // Moves every deadline earlier by `ns`. A QP whose deadline did not move is put back then.
    void advance(uint64_t ns) { advanced_ns_ += ns; }

  private:
    struct Entry {
        uint64_t deadline;  // plus the advance before it was set
        QueuePair* qp;
    };
    void place(Entry entry, uint32_t index);
    void sift_up(Entry entry, uint32_t index);
    void sift_down(Entry entry, uint32_t index);
    std::vector<Entry> heap_;
    uint64_t advanced_ns_ = 0;
};

}  // namespace rove::transport
