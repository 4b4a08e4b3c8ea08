// SPDX-License-Identifier: Apache-2.0
// Memory protection: regions and windows by key, looked up for every byte that the network or a work request accesses.
// Units: addresses as programs use them (iova), bytes.
//
// DESIGN NOTES
// 1. Control calls change the table while workers read it (quiescence.h). A published region does not change;
//    re-registration under the same key makes another Region. remove() and replace() wait until no worker uses the old
//    one.
// 2. A key is a tag (24 bits) and a low byte. Tags are a counter, encrypted with a key of the process: no tag reveals
//    another, and each returns only after all others. The low byte is random for a region. For a window the consumer
//    that binds it chooses it, as in IBTA 10.7.2.
// 3. A hash table with open addressing maps a tag to its region. A tag is random and serves as its own hash. A removed
//    entry leaves a mark if the search for another continues behind it. At least half of the places are free, so a
//    search rarely takes more than one step.
// 4. A window is bound and invalidated by workers while others may read it: a sequence lock, which is also the lock of
//    the writers. A bind names the window by its tag, so that a request whose window was deallocated fails. A window of
//    type 2 is in the list of the QP that it is bound to, so that destroying a QP takes time in proportion to its own
//    windows. Windows are freed, and QPs cleared of them, under the table's mutex: a window in a list is not freed
//    meanwhile, because a window that is being removed can no longer be bound.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/secret.h"
#include "transport/quiescence.h"

namespace rove::transport {

struct QueuePair;

// A registered range.
struct Region {
    uint64_t iova = 0;        // first address as work requests and RETHs name it
    uint64_t length = 0;      // bytes
    uint8_t* host = nullptr;  // address of `iova` in this process
    int access = 0;           // ibv_access_flags
    const void* pd = nullptr;
    uint32_t key = 0;                 // lkey and rkey, set by MemoryTable; for a window only the tag counts
    bool is_window = false;           // it is a Window, of which only `key` and `pd` above are used
    bool is_null = false;             // null MR: writes are discarded and reads return zeros
    std::atomic<bool> valid{true};    // false once its memory has vanished; it stays so until it is deregistered
    std::atomic<int32_t> windows{0};  // number bound to it; with kLeaving none may be bound any more

    static constexpr int32_t kLeaving = -1;

    // Returns the host address of [first, first + bytes), or null if the region does not contain all of it.
    [[gnu::always_inline]] uint8_t* at(uint64_t first, uint64_t bytes) const {
        const uint64_t offset = first - iova;  // beyond any length for an address before the region
        return offset <= length && bytes <= length - offset ? host + offset : nullptr;
    }
};

// A memory window: rights of its own to a part of a region, which work requests grant and revoke.
class Window : public Region {
  public:
    // Type 2 windows serve the QP that bound them (2B in IBTA's terms), type 1 windows all QPs of their PD.
    Window(ibv_mw_type type, const void* domain) : type_(type) {
        pd = domain;
        is_window = true;
    }

    ibv_mw_type type() const { return type_; }
    // Returns the key that remote requests name once it is bound.
    uint32_t rkey() const { return rkey_.load(std::memory_order_relaxed); }
    bool is_bound() const { return region_.load(std::memory_order_relaxed) != nullptr; }

    // Translates as MemoryTable::translate(). A null `qp` means a local access, for which windows are not valid.
    uint8_t* translate(uint32_t rkey, uint64_t iova, uint64_t length, int access, const QueuePair* qp) const;

  private:
    friend class MemoryTable;

    friend class WindowList;

    // Binds it, or ends the binding if `region` is null. Returns false if `may_be()`, called with the lock held, does
    // so.
    bool change(Region* region, uint32_t rkey, uint64_t iova, uint64_t length, int access, QueuePair* qp,
                auto&& may_be);

    const ibv_mw_type type_;
    std::atomic<uint32_t> sequence_{0};  // odd while the following fields change
    std::atomic<uint32_t> rkey_{0};
    std::atomic<uint64_t> iova_{0}, length_{0};
    std::atomic<uint8_t*> host_{nullptr};
    std::atomic<int> access_{0};
    std::atomic<QueuePair*> qp_{nullptr};           // null: all QPs of its PD
    std::atomic<Region*> region_{nullptr};          // null: not bound
    bool leaving_ = false;                          // it is being removed and can no longer be bound; under the lock
    Window *next_ = nullptr, *previous_ = nullptr;  // in the list of qp_
};

class MemoryTable {
  public:
    // The maximum of regions, and of windows.
    static constexpr uint32_t kMaxRegions = 1u << 20;
    static constexpr uint32_t kTags = 1u << 24;

    explicit MemoryTable(const Secret& secret, GracePeriod& grace_period = NoReaders::instance());
    ~MemoryTable();
    MemoryTable(const MemoryTable&) = delete;
    MemoryTable& operator=(const MemoryTable&) = delete;

    // Returns true if there are regions or windows. Any thread may call it.
    bool in_use() {
        const std::lock_guard lock(mutex_);
        return count_ != 0;
    }
    // Gives `region` a key and publishes it. Returns false if all keys are in use, or without memory.
    bool insert(Region& region);
    // Removes the region. On return no worker uses it. Returns false without a change while windows are bound to it.
    bool remove(Region& region);
    // Replaces the region by `next`, which gets its key. Otherwise like remove().
    bool replace(Region& region, Region& next);

    struct Bind {
        uint32_t window = 0;  // its key, of which the tag counts
        uint32_t rkey = 0;    // its new key, of which the low byte counts (IBTA 10.6.7.2.2)
        uint32_t lkey = 0;    // key of the region
        uint64_t iova = 0, length = 0;
        int access = 0;  // IBV_ACCESS_REMOTE_*, ZERO_BASED
    };
    // Binds a window to a part of a region (IBTA 10.6.7.2.2); with length 0, unbinds a type 1 window. Returns false
    // without a change if that is not allowed, for example if a type 2 window is bound already or domains differ.
    // Called by workers.
    bool bind(const Bind& request, QueuePair& qp);
    // Ends the binding of a type 2 window to `qp`. Returns false if `rkey` is no such window. Called by workers.
    bool invalidate(uint32_t rkey, const QueuePair& qp);
    // Ends the bindings of all type 2 windows to `qp`, which no worker uses any more.
    void unbind_all(QueuePair& qp);

    // Finds a region by its whole key, or a window if it is bound.
    const Region* find(uint32_t key) const {
        const Region* region = find_tag(key);
        if (region == nullptr) return nullptr;
        if (region->is_window) [[unlikely]] {
            const auto* window = static_cast<const Window*>(region);
            return window->is_bound() && window->rkey() == key ? region : nullptr;
        }
        return region->key == key && region->valid.load(std::memory_order_relaxed) ? region : nullptr;
    }

    // Returns the region of a key if protection domain and rights (all of `access`) match. Returns null otherwise, and
    // for windows and null MRs.
    [[gnu::always_inline]] const Region* open(uint32_t key, int access, const void* pd) const {
        const Region* region = find_tag(key);
        if (region == nullptr || region->is_window || region->is_null) return nullptr;
        return allows(*region, key, access, pd) ? region : nullptr;
    }

    // Returns true if a peer may use all of the region in this way, whatever its bounds. Windows never qualify.
    bool grants(uint32_t key, int access, const void* pd) const {
        const Region* region = open(key, access, pd);
        return region != nullptr && !region->is_window;
    }

    // Returns the host address of [iova, iova + length), or null if key, bounds, protection domain or rights (all of
    // `access`) do not match. A zero-length access is not checked (IBTA 9.7.4.1.5) and returns a non-null pointer that
    // must not be dereferenced. `qp` is the QP of the requesting peer; null for a local access.
    [[gnu::always_inline]] uint8_t* translate(uint32_t key, uint64_t iova, uint64_t length, int access, const void* pd,
                                              const QueuePair* qp = nullptr) const {
        static uint8_t nothing;
        if (length == 0) return &nothing;
        const Region* region = find_tag(key);
        if (region == nullptr) return nullptr;
        if (region->is_window) [[unlikely]] {
            return region->pd == pd ? static_cast<const Window*>(region)->translate(key, iova, length, access, qp)
                                    : nullptr;
        }
        if (!allows(*region, key, access, pd)) return nullptr;
        uint8_t* const at = region->at(iova, length);
        return at != nullptr || !region->is_null ? at : nowhere(length, access);
    }
    // Returns the host address of a range of the region `lkey` for the program itself, or null.
    uint8_t* locate(uint32_t lkey, uint64_t iova, uint64_t length, int access, const void* pd) {
        const std::lock_guard lock(mutex_);  // the region stays
        return translate(lkey, iova, length, access, pd);
    }

    // Invalidates the regions that contain the process's `address`, whose memory has vanished. Returns the key of one
    // of them, or 0 without any. Safe in a signal handler if this thread is in a worker's round.
    uint32_t invalidate_at(const void* address);

  private:
    // A power of two of places; each is null (where a search ends), a region, or kRemoved.
    struct alignas(std::atomic<Region*>) Places {
        uint32_t mask;
        std::atomic<Region*>* at() { return reinterpret_cast<std::atomic<Region*>*>(this + 1); }
        const std::atomic<Region*>* at() const { return reinterpret_cast<const std::atomic<Region*>*>(this + 1); }
    };

    [[gnu::always_inline]] static bool allows(const Region& region, uint32_t key, int access, const void* pd) {
        return region.key == key && region.pd == pd && (region.access & access) == access &&
               region.valid.load(std::memory_order_relaxed);
    }
    // The acquire pairs with the release of the publication of a region or of a larger table.
    [[gnu::always_inline]] Region* find_tag(uint32_t key) const {
        const Places& places = *places_.load(std::memory_order_acquire);
        for (uint32_t i = key >> 8;; ++i) {
            Region* region = places.at()[i & places.mask].load(std::memory_order_acquire);
            if (region == nullptr) [[unlikely]]
                return nullptr;
            if ((region->key ^ key) >> 8 == 0) [[likely]]
                return region;
        }
    }
    // Returns memory for a null MR: zeros for reads, and scratch memory for writes. Returns null for more than a burst
    // of packets needs.
    static uint8_t* nowhere(uint64_t length, int access);
    static Places* make_places(uint32_t count);
    bool make_room();
    std::atomic<Region*>& place_of(const Region& region);
    void put(Places& places, Region& region);
    bool end(Region& region);

    static Region kRemoved;  // no region has its tag, 0

    const Secret secret_;
    GracePeriod& grace_period_;
    std::atomic<Places*> places_;
    std::mutex mutex_;      // among control calls, for the following
    uint32_t used_ = 0;     // places that are not null
    uint32_t count_ = 0;    // regions and windows
    uint32_t windows_ = 0;  // windows among them
    uint64_t given_ = 0;    // tags given out
};

}  // namespace rove::transport
