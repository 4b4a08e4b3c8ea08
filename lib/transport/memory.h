// SPDX-License-Identifier: Apache-2.0
// Memory protection: regions and windows by key, looked up for every byte that the network or a work request touches.
// Units: addresses as programs use them (iova), bytes.
//
// DESIGN NOTES
// 1. Control calls change the table while workers read it (standstill.h). A region does not change while it is
//    published; one that is registered anew under the same key is another Region. remove() and replace() wait until no
//    worker has the old one any more.
// 2. A key is a tag (24 bits) and a low byte. Tags are a count, encrypted by a key of the process: none of them tells
//    of another, and each comes again only after all others. The low byte is random for a region, and the consumer's
//    for a window, as IBTA 10.7.2 has it: who binds a window chooses it.
// 3. A tag leads to its region through a hash table with open addressing. It is its own hash, being random. What is
//    removed leaves a mark where the search for another goes on behind it. Half of the places are free at least, so a
//    search is hardly ever longer than one step.
// 4. A window is bound and invalidated by workers, while others may look at it: a sequence lock, which is also the lock
//    of those who write. A bind names the window by its tag, so that a request whose window was deallocated fails. A
//    window of type 2 is in the list of the QP that it is bound to, so that destroying a QP costs what was bound to it.
//    Windows are freed and QPs are emptied of them under the table's mutex: a window in a list is not freed meanwhile,
//    because one that is being removed is bound no more.
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
    uint8_t* host = nullptr;  // where `iova` lies in this process
    int access = 0;           // ibv_access_flags
    const void* pd = nullptr;
    uint32_t key = 0;                 // lkey and rkey; set by MemoryTable. Of a window: the tag counts
    bool is_window = false;           // it is a Window; of the above, `key` and `pd` count
    bool is_null = false;             // null MR: what is written to it is gone, and what is read from it is zeros
    std::atomic<bool> valid{true};    // false: its memory has gone; so it stays until it is deregistered
    std::atomic<int32_t> windows{0};  // bound to it; kLeaving: none may be bound any more

    static constexpr int32_t kLeaving = -1;

    // The host address of [first, first + bytes), or null if that is not all in it.
    [[gnu::always_inline]] uint8_t* at(uint64_t first, uint64_t bytes) const {
        const uint64_t offset = first - iova;  // of an address before the region, beyond any length
        return offset <= length && bytes <= length - offset ? host + offset : nullptr;
    }
};

// A memory window: rights of its own to a part of a region, that a work request gives and takes.
class Window : public Region {
  public:
    // Type 2 windows serve the QP that bound them (2B in IBTA's words), type 1 windows all QPs of their PD.
    Window(ibv_mw_type type, const void* domain) : type_(type) {
        pd = domain;
        is_window = true;
    }

    ibv_mw_type type() const { return type_; }
    // What remote requests name, once it is bound.
    uint32_t rkey() const { return rkey_.load(std::memory_order_relaxed); }
    bool is_bound() const { return region_.load(std::memory_order_relaxed) != nullptr; }

    // As MemoryTable::translate(). `qp` null: a local access, for which windows are not made.
    uint8_t* translate(uint32_t rkey, uint64_t iova, uint64_t length, int access, const QueuePair* qp) const;

  private:
    friend class MemoryTable;

    friend class WindowList;

    // Binds it, or, `region` null, ends the binding. False if `may_be()`, called with the lock held, says so.
    bool change(Region* region, uint32_t rkey, uint64_t iova, uint64_t length, int access, QueuePair* qp,
                auto&& may_be);

    const ibv_mw_type type_;
    std::atomic<uint32_t> sequence_{0};  // odd while somebody changes what follows
    std::atomic<uint32_t> rkey_{0};
    std::atomic<uint64_t> iova_{0}, length_{0};
    std::atomic<uint8_t*> host_{nullptr};
    std::atomic<int> access_{0};
    std::atomic<QueuePair*> qp_{nullptr};           // null: of all its PD's QPs
    std::atomic<Region*> region_{nullptr};          // null: not bound
    bool leaving_ = false;                          // it is being removed, so it is bound no more; under the lock
    Window *next_ = nullptr, *previous_ = nullptr;  // in the list of qp_
};

class MemoryTable {
  public:
    // Each of regions and windows.
    static constexpr uint32_t kMaxRegions = 1u << 20;
    static constexpr uint32_t kTags = 1u << 24;

    explicit MemoryTable(const Secret& secret, GracePeriod& grace_period = NoReaders::instance());
    ~MemoryTable();
    MemoryTable(const MemoryTable&) = delete;
    MemoryTable& operator=(const MemoryTable&) = delete;

    // Whether there are regions or windows. Any thread.
    bool in_use() {
        const std::lock_guard lock(mutex_);
        return count_ != 0;
    }
    // Gives `region` a key and publishes it. Returns false when all keys are in use, or without memory.
    bool insert(Region& region);
    // Takes it out. When this returns, no worker uses it. False, and nothing changed, while windows are bound to it.
    bool remove(Region& region);
    // Puts `next` in its place, with its key. Otherwise as remove().
    bool replace(Region& region, Region& next);

    struct Bind {
        uint32_t window = 0;  // its key, of which the tag counts
        uint32_t rkey = 0;    // its new one, of which the low byte counts (IBTA 10.6.7.2.2)
        uint32_t lkey = 0;    // of the region
        uint64_t iova = 0, length = 0;
        int access = 0;  // IBV_ACCESS_REMOTE_*, ZERO_BASED
    };
    // Worker. Binds a window to a part of a region (IBTA 10.6.7.2.2); without length, a type 1 window is bound to
    // nothing. False, and nothing changed, when that may not be: a type 2 window is bound already, domains differ, ...
    bool bind(const Bind& request, QueuePair& qp);
    // Worker. Ends the binding of a type 2 window to `qp`. False when `rkey` is no such window.
    bool invalidate(uint32_t rkey, const QueuePair& qp);
    // Ends the bindings of all type 2 windows to `qp`, which no worker uses any more.
    void unbind_all(QueuePair& qp);

    // By the whole key. A window is found if it is bound.
    const Region* find(uint32_t key) const {
        const Region* region = find_tag(key);
        if (region == nullptr) return nullptr;
        if (region->is_window) [[unlikely]] {
            const auto* window = static_cast<const Window*>(region);
            return window->is_bound() && window->rkey() == key ? region : nullptr;
        }
        return region->key == key && region->valid.load(std::memory_order_relaxed) ? region : nullptr;
    }

    // The region of a key, or null if key, protection domain or rights (all of `access`) fail; or of a window's, or a
    // null MR's.
    [[gnu::always_inline]] const Region* open(uint32_t key, int access, const void* pd) const {
        const Region* region = find_tag(key);
        if (region == nullptr || region->is_window || region->is_null) return nullptr;
        return allows(*region, key, access, pd) ? region : nullptr;
    }

    // Whether all of the region that a peer names by its key may be used so, whatever its bounds. No window is one.
    bool grants(uint32_t key, int access, const void* pd) const {
        const Region* region = open(key, access, pd);
        return region != nullptr && !region->is_window;
    }

    // The host address of [iova, iova + length), or null if key, bounds, protection domain or rights (all of `access`)
    // fail. A zero-length access is not checked (IBTA 9.7.4.1.5) and gives a non-null pointer that nobody may follow.
    // `qp`: whose peer wants it; null for a local access.
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
    // The host address of a range of the region `lkey` for the program itself, or null.
    uint8_t* locate(uint32_t lkey, uint64_t iova, uint64_t length, int access, const void* pd) {
        const std::lock_guard lock(mutex_);  // the region stays
        return translate(lkey, iova, length, access, pd);
    }

    // The regions in which `address` of the process lies are dead from now on: its memory has gone. Returns the key of
    // one, 0 if there is none. Safe in a signal handler, if this thread is in a worker's round.
    uint32_t invalidate_at(const void* address);

  private:
    // Of a power of two of places; each is null (here a search ends), a region, or kRemoved.
    struct alignas(std::atomic<Region*>) Places {
        uint32_t mask;
        std::atomic<Region*>* at() { return reinterpret_cast<std::atomic<Region*>*>(this + 1); }
        const std::atomic<Region*>* at() const { return reinterpret_cast<const std::atomic<Region*>*>(this + 1); }
    };

    [[gnu::always_inline]] static bool allows(const Region& region, uint32_t key, int access, const void* pd) {
        return region.key == key && region.pd == pd && (region.access & access) == access &&
               region.valid.load(std::memory_order_relaxed);
    }
    // Acquire pairs with the release of who publishes a region, or larger places.
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
    // For a null MR: zeros to read, and what nobody reads to write to. Null for more than a burst of packets takes.
    static uint8_t* nowhere(uint64_t length, int access);
    static Places* make_places(uint32_t count);
    bool make_room();
    std::atomic<Region*>& place_of(const Region& region);
    void put(Places& places, Region& region);
    bool end(Region& region);

    static Region kRemoved;  // its tag, 0, is nobody's

    const Secret secret_;
    GracePeriod& grace_period_;
    std::atomic<Places*> places_;
    std::mutex mutex_;      // among control calls, for what follows
    uint32_t used_ = 0;     // places that are not null
    uint32_t count_ = 0;    // of regions and windows
    uint32_t windows_ = 0;  // of them
    uint64_t given_ = 0;    // tags
};

}  // namespace rove::transport
