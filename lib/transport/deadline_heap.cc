// SPDX-License-Identifier: Apache-2.0
#include "transport/deadline_heap.h"

namespace rove::transport {

namespace {
constexpr uint32_t kNotInHeap = UINT32_MAX;
}

void DeadlineHeap::place(Entry entry, uint32_t index) {
    heap_[index] = entry;
    entry.qp->heap_index = index;
}

void DeadlineHeap::sift_up(Entry entry, uint32_t index) {
    while (index > 0) {
        const uint32_t parent = (index - 1) / 2;
        if (heap_[parent].deadline <= entry.deadline) break;
        place(heap_[parent], index);
        index = parent;
    }
    place(entry, index);
}

void DeadlineHeap::sift_down(Entry entry, uint32_t index) {
    const auto size = static_cast<uint32_t>(heap_.size());
    for (;;) {
        uint32_t child = 2 * index + 1;
        if (child >= size) break;
        if (child + 1 < size && heap_[child + 1].deadline < heap_[child].deadline) ++child;
        if (entry.deadline <= heap_[child].deadline) break;
        place(heap_[child], index);
        index = child;
    }
    place(entry, index);
}

void DeadlineHeap::schedule(QueuePair& qp, uint64_t deadline) {
    if (deadline == kNever) return;
    deadline += advanced_ns_;
    if (qp.heap_index == kNotInHeap) {
        heap_.push_back({deadline, &qp});
        sift_up({deadline, &qp}, static_cast<uint32_t>(heap_.size() - 1));
    } else if (deadline < heap_[qp.heap_index].deadline) {
        sift_up({deadline, &qp}, qp.heap_index);
    }
}

QueuePair* DeadlineHeap::pop(uint64_t now_ns) {
    if (heap_.empty() || heap_.front().deadline > now_ns + advanced_ns_) return nullptr;
    QueuePair* qp = heap_.front().qp;
    remove(*qp);
    return qp;
}

void DeadlineHeap::remove(QueuePair& qp) {
    if (qp.heap_index == kNotInHeap) return;
    const uint32_t index = qp.heap_index;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (last.qp != &qp) {
        if (index > 0 && last.deadline < heap_[(index - 1) / 2].deadline) {
            sift_up(last, index);
        } else {
            sift_down(last, index);
        }
    }
    qp.heap_index = kNotInHeap;
}

}  // namespace rove::transport
