// SPDX-License-Identifier: Apache-2.0
// See memory.h.
#include "tent/memory/memory.h"

#include <mutex>

namespace rove::tent {

std::shared_ptr<LocalBuffer> LocalMemory::acquire(uint64_t address, uint64_t length, uint8_t shard, uint64_t* change) {
    const std::shared_lock lock(mutex_);
    *change = change_.load();
    std::shared_ptr<LocalBuffer> buffer = find(address, length);
    if (buffer != nullptr) buffer->tasks.begin(shard);
    return buffer;
}

std::shared_ptr<LocalBuffer> LocalMemory::serve(uint64_t address, uint64_t length) {
    const std::shared_lock lock(mutex_);
    std::shared_ptr<LocalBuffer> buffer = find(address, length);
    if (buffer != nullptr) buffer->served.fetch_add(1);
    return buffer;
}

// The caller holds the lock.
std::shared_ptr<LocalBuffer> LocalMemory::find(uint64_t address, uint64_t length) const {
    // The search is as in SegmentDesc::find(): unless buffers overlap, the first one that is checked holds the range.
    for (auto at = buffers_.upper_bound(address); at != buffers_.begin();) {
        --at;
        if (at->second->holds(address, length)) return at->second;
    }
    return nullptr;
}

std::shared_ptr<LocalBuffer> LocalMemory::exact(uint64_t address, uint64_t length) const {
    const std::shared_lock lock(mutex_);
    // Buffers with the same address are in the order in which they were registered.
    for (auto [begin, at] = buffers_.equal_range(address); at != begin;) {
        --at;
        if (length == 0 || at->second->length == length) return at->second;
    }
    return nullptr;
}

void LocalMemory::add(std::shared_ptr<LocalBuffer> buffer) {
    const std::lock_guard lock(mutex_);
    const uint64_t address = buffer->address;
    buffers_.emplace(address, std::move(buffer));
    change_.fetch_add(1);
}

bool LocalMemory::remove_unused(const LocalBuffer& buffer) {
    const std::lock_guard lock(mutex_);
    // This comes first: either a task that counts itself without the lock sees this change, or this thread sees the
    // task.
    change_.fetch_add(1);
    if (buffer.is_used()) return false;
    for (auto [at, end] = buffers_.equal_range(buffer.address); at != end; ++at) {
        if (at->second.get() != &buffer) continue;
        buffers_.erase(at);
        break;
    }
    return true;
}

size_t LocalMemory::count_overlapping(uint64_t address, uint64_t length) const {
    const std::shared_lock lock(mutex_);
    size_t count = 0;
    for (auto at = buffers_.begin(); at != buffers_.end() && at->first < address + length; ++at)
        count += at->first + at->second->length > address;
    return count;
}

std::vector<std::shared_ptr<LocalBuffer>> LocalMemory::all() const {
    const std::shared_lock lock(mutex_);
    std::vector<std::shared_ptr<LocalBuffer>> list;
    for (const auto& [address, buffer] : buffers_) list.push_back(buffer);
    return list;
}

}  // namespace rove::tent
