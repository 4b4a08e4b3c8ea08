// SPDX-License-Identifier: Apache-2.0
#include "transport/memory.h"

#include <atomic>

#include "transport/queue_pair.h"

namespace rove::transport {

bool MemoryTable::insert(Region& region) {
    std::lock_guard lock(mutex_);
    uint32_t index;
    if (!free_.empty()) {
        index = free_.back();
        free_.pop_back();
    } else {
        if (entries_.empty()) {                 // index 0 stays unused: key 0 is what an uninitialised program sends
            entries_.push_back(nullptr);
            generations_.push_back(0);
        }
        if (entries_.size() == kMaxRegions) return false;
        index = static_cast<uint32_t>(entries_.size());
        entries_.push_back(nullptr);
        generations_.push_back(0);
    }
    region.key = index << 8 | ++generations_[index];
    entries_[index] = &region;
    return true;
}

void MemoryTable::remove(Region& region) {
    std::lock_guard lock(mutex_);
    const uint32_t index = region.key >> 8;
    entries_[index] = nullptr;
    free_.push_back(index);
}

bool MemoryTable::bind(Region& window, uint32_t rkey, uint32_t lkey, uint64_t iova, uint64_t length, int access,
                       const QueuePair& qp) {
    Region* region = find(lkey);
    if (window.valid || window.pd != qp.pd || rkey >> 8 != window.key >> 8) return false;
    if (region == nullptr || region->is_window || (region->access & IBV_ACCESS_MW_BIND) == 0) return false;
    if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 &&
        (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) {
        return false;
    }
    uint8_t* host = translate(lkey, iova, length, 0, qp.pd);
    if (host == nullptr || length == 0) return false;
    window.iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
    window.length = length;
    window.host = host;
    window.access = access;
    window.key = rkey;
    window.window_qp = &qp;
    window.parent = region;
    window.valid = true;
    std::atomic_ref(region->windows).fetch_add(1, std::memory_order_relaxed);
    return true;
}

bool MemoryTable::invalidate(uint32_t rkey, const QueuePair& qp) {
    Region* window = find(rkey);
    if (window == nullptr || !window->is_window || window->window_qp != &qp) return false;
    // window_qp stays: another worker that has just found the window valid shall not take it for a region of
    // everybody's.
    window->valid = false;
    std::atomic_ref(window->parent->windows).fetch_sub(1, std::memory_order_relaxed);
    window->parent = nullptr;
    return true;
}

}  // namespace rove::transport
