// SPDX-License-Identifier: Apache-2.0
#include "transport/memory.h"

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

void MemoryTable::renew_key(Region& region) {
    std::lock_guard lock(mutex_);
    const uint32_t index = region.key >> 8;
    region.key = index << 8 | ++generations_[index];
}

}  // namespace rove::transport
