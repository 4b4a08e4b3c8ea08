// SPDX-License-Identifier: Apache-2.0
// Memory protection: regions and windows by key, looked up for every byte that the network or a work request touches.
// Units: addresses as programs use them (iova), bytes. Written by control calls while no worker runs, read by workers.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>
#include <vector>

namespace rove::transport {

struct QueuePair;

// A registered range. Memory windows (type 2) are regions of their own, bound to a QP, over another region's memory.
struct Region {
    uint64_t iova = 0;              // first address as work requests and RETHs name it
    uint64_t length = 0;            // bytes
    uint8_t* host = nullptr;        // where `iova` lies in this process
    int access = 0;                 // ibv_access_flags
    const void* pd = nullptr;
    uint32_t key = 0;               // lkey and rkey
    bool is_window = false;
    bool valid = true;              // false: a window that is not bound, or was invalidated
    const QueuePair* window_qp = nullptr;   // the QP a type 2 window is bound to; null for a region
    Region* parent = nullptr;       // a bound window's region
    uint32_t windows = 0;           // bound to this region; through std::atomic_ref while workers run

    // The host address of [first, first + bytes), or null if that is not all in it.
    uint8_t* at(uint64_t first, uint64_t bytes) const {
        const uint64_t offset = first - iova;  // of an address before the region, beyond any length
        return offset <= length && bytes <= length - offset ? host + offset : nullptr;
    }
};

// Keys: index << 8 | generation, so that a stale key of a reused index does not match.
class MemoryTable {
  public:
    static constexpr uint32_t kMaxRegions = 1u << 20;

    // Gives `region` a key and publishes it. Returns false when all keys are in use.
    bool insert(Region& region);
    void remove(Region& region);
    // Binds a type 2 window that is not bound to [iova, iova + length) of the region `lkey` (IBTA 10.6.7.2.4), with the key
    // `rkey`, of which the low byte is the program's choice. False, and nothing changed, when that may not be.
    bool bind(Region& window, uint32_t rkey, uint32_t lkey, uint64_t iova, uint64_t length, int access, const QueuePair& qp);
    // Ends the binding of a window to `qp`. False when `rkey` is no such window.
    bool invalidate(uint32_t rkey, const QueuePair& qp);

    Region* find(uint32_t key) const {
        const uint32_t index = key >> 8;
        if (index >= entries_.size()) return nullptr;
        Region* region = entries_[index];
        return region != nullptr && region->key == key && region->valid ? region : nullptr;
    }

    // The region of a key, or null if key, protection domain or rights (all of `access`) fail.
    [[gnu::always_inline]] const Region* open(uint32_t key, int access, const void* pd,
                                              const QueuePair* qp = nullptr) const {
        const Region* region = find(key);
        if (region == nullptr || region->pd != pd || (region->access & access) != access) return nullptr;
        return region->window_qp == nullptr || region->window_qp == qp ? region : nullptr;
    }

    // The host address of [iova, iova + length), or null if key, bounds, protection domain or rights (all of `access`) fail.
    // A zero-length access is not checked (IBTA 9.7.4.1.5) and gives a non-null pointer that nobody may follow.
    [[gnu::always_inline]] uint8_t* translate(uint32_t key, uint64_t iova, uint64_t length, int access, const void* pd,
                                              const QueuePair* qp = nullptr) const {
        static uint8_t nothing;
        if (length == 0) return &nothing;
        const Region* region = open(key, access, pd, qp);
        return region != nullptr ? region->at(iova, length) : nullptr;
    }

  private:
    std::mutex mutex_;              // among control calls only
    std::vector<Region*> entries_;
    std::vector<uint8_t> generations_;
    std::vector<uint32_t> free_;
};

}  // namespace rove::transport
