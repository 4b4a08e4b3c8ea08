// SPDX-License-Identifier: Apache-2.0
#include "transport/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "transport/queue_pair.h"

namespace rove::transport {

namespace {

constexpr uint32_t kFirstPlaces = 1024;
constexpr uint64_t kLowByte = uint64_t{1} << 62;  // separates the hashes for low bytes from those for tags

}  // namespace

Region MemoryTable::kRemoved;

uint8_t* Window::translate(uint32_t rkey, uint64_t iova, uint64_t length, int access, const QueuePair* qp) const {
    // These are acquire loads, so that the load of the sequence at the end comes after them and a reader of a new value
    // sees a new sequence.
    const uint32_t sequence = sequence_.load(std::memory_order_acquire);
    const Region* const region = region_.load(std::memory_order_acquire);
    const bool is_right = region != nullptr && rkey_.load(std::memory_order_acquire) == rkey;
    const int allowed = access_.load(std::memory_order_acquire);
    const QueuePair* const only = qp_.load(std::memory_order_acquire);
    const uint64_t offset = iova - iova_.load(std::memory_order_acquire), all = length_.load(std::memory_order_acquire);
    uint8_t* const host = host_.load(std::memory_order_acquire);
    // A thread that changes the window has not published the binding yet, or has begun to end it: the window is not
    // bound in either case.
    if ((sequence & 1) != 0 || sequence_.load(std::memory_order_relaxed) != sequence) return nullptr;
    if (!is_right || qp == nullptr || (only != nullptr && only != qp) || (allowed & access) != access) return nullptr;
    // The region stays while the window is bound, and until this round has ended.
    if (!region->valid.load(std::memory_order_relaxed)) return nullptr;
    return offset <= all && length <= all - offset ? host + offset : nullptr;
}

void WindowList::add(Window& window) {
    const std::lock_guard guard(lock_);
    window.previous_ = nullptr;
    window.next_ = first_;
    if (first_ != nullptr) first_->previous_ = &window;
    first_ = &window;
}

void WindowList::remove(Window& window) {
    const std::lock_guard guard(lock_);
    (window.previous_ != nullptr ? window.previous_->next_ : first_) = window.next_;
    if (window.next_ != nullptr) window.next_->previous_ = window.previous_;
}

bool Window::change(Region* region, uint32_t rkey, uint64_t iova, uint64_t length, int access, QueuePair* qp,
                    auto&& may_be) {
    uint32_t sequence = sequence_.load(std::memory_order_relaxed);
    do sequence &= ~1u;
    while (!sequence_.compare_exchange_weak(sequence, sequence + 1, std::memory_order_acquire));
    const bool changes = may_be();
    if (changes) {
        if (Region* const before = region_.load(std::memory_order_relaxed)) {
            before->windows.fetch_sub(1, std::memory_order_release);  // pairs with MemoryTable::end()
        }
        if (QueuePair* const before = qp_.load(std::memory_order_relaxed)) before->windows.remove(*this);
        if (qp != nullptr) qp->windows.add(*this);
        rkey_.store(rkey, std::memory_order_release);
        iova_.store(iova, std::memory_order_release);
        length_.store(length, std::memory_order_release);
        host_.store(region != nullptr ? region->at(iova, length) : nullptr, std::memory_order_release);
        access_.store(access, std::memory_order_release);
        qp_.store(qp, std::memory_order_release);
        region_.store(region, std::memory_order_release);
        if ((access & IBV_ACCESS_ZERO_BASED) != 0) iova_.store(0, std::memory_order_release);
    }
    sequence_.store(sequence + 2, std::memory_order_release);
    return changes;
}

MemoryTable::MemoryTable(const Secret& secret, GracePeriod& grace_period)
    : secret_(secret), grace_period_(grace_period), places_(make_places(kFirstPlaces)) {
    if (places_.load(std::memory_order_relaxed) == nullptr) throw std::bad_alloc();
}

MemoryTable::~MemoryTable() {
    std::free(places_.load(std::memory_order_relaxed));
}

uint8_t* MemoryTable::nowhere(uint64_t length, int access) {
    constexpr size_t kBytes = 1 << 20;  // a generous bound for a worker's burst of 64 packets of 4096 B
    const auto map = [](int protection) {
        void* const memory = mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
    };
    static uint8_t* const zeros = map(PROT_READ);
    static uint8_t* const sink = map(PROT_READ | PROT_WRITE);
    if (length > kBytes) return nullptr;
    return (access & IBV_ACCESS_LOCAL_WRITE) != 0 ? sink : zeros;
}

MemoryTable::Places* MemoryTable::make_places(uint32_t count) {
    void* const memory = std::calloc(1, sizeof(Places) + count * sizeof(std::atomic<Region*>));
    if (memory == nullptr) return nullptr;
    auto* const places = new (memory) Places{.mask = count - 1};
    for (uint32_t i = 0; i < count; ++i) new (places->at() + i) std::atomic<Region*>(nullptr);
    return places;
}

// Makes a place for one more region. When half of the places are used, removal marks included, the regions move to a
// new table.
bool MemoryTable::make_room() {
    Places* const old = places_.load(std::memory_order_relaxed);
    if (used_ < (old->mask + 1) / 2) return true;
    uint32_t size = kFirstPlaces;
    while (size < 4 * (count_ + 1)) size *= 2;
    Places* const larger = make_places(size);
    if (larger == nullptr) return false;
    used_ = 0;
    for (uint32_t i = 0; i <= old->mask; ++i) {
        Region* const region = old->at()[i].load(std::memory_order_relaxed);
        if (region != nullptr && region != &kRemoved) put(*larger, *region);
    }
    places_.store(larger, std::memory_order_release);
    grace_period_.wait();
    std::free(old);
    return true;
}

void MemoryTable::put(Places& places, Region& region) {
    for (uint32_t i = region.key >> 8;; ++i) {
        std::atomic<Region*>& place = places.at()[i & places.mask];
        Region* const there = place.load(std::memory_order_relaxed);
        if (there != nullptr && there != &kRemoved) continue;
        if (there == nullptr) ++used_;
        place.store(&region, std::memory_order_release);  // pairs with find_tag()
        return;
    }
}

std::atomic<Region*>& MemoryTable::place_of(const Region& region) {
    Places& places = *places_.load(std::memory_order_relaxed);
    uint32_t i = region.key >> 8;
    while (places.at()[i & places.mask].load(std::memory_order_relaxed) != &region) ++i;
    return places.at()[i & places.mask];
}

bool MemoryTable::insert(Region& region) {
    const std::lock_guard lock(mutex_);
    const uint32_t alike = region.is_window ? windows_ : count_ - windows_;
    if (alike == kMaxRegions || !make_room()) return false;
    // 0 is left out: key 0 is what an uninitialised program sends.
    do {
        region.key = secret_.permute24(static_cast<uint32_t>(given_ % kTags)) << 8;
        region.key |= static_cast<uint8_t>(secret_.hash(kLowByte | given_));
        ++given_;
    } while (region.key >> 8 == 0 || find_tag(region.key) != nullptr);
    region.windows.store(0, std::memory_order_relaxed);
    if (region.is_window) static_cast<Window&>(region).rkey_.store(region.key, std::memory_order_relaxed);
    put(*places_.load(std::memory_order_relaxed), region);
    ++count_;
    windows_ += region.is_window;
    return true;
}

// Ends a window's binding and forbids further ones. For a region, forbids new windows; returns false if some are bound.
// The acquire pairs with the release of the thread that ended a binding.
bool MemoryTable::end(Region& region) {
    if (region.is_window) {
        auto& window = static_cast<Window&>(region);
        window.change(nullptr, window.rkey(), 0, 0, 0, nullptr, [&] { return window.leaving_ = true; });
        return true;
    }
    int32_t none = 0;
    return region.windows.compare_exchange_strong(none, Region::kLeaving, std::memory_order_acquire);
}

bool MemoryTable::remove(Region& region) {
    {
        const std::lock_guard lock(mutex_);
        if (!end(region)) return false;
        Places& places = *places_.load(std::memory_order_relaxed);
        auto i = static_cast<uint32_t>(&place_of(region) - places.at());
        places.at()[i].store(&kRemoved, std::memory_order_release);
        // At the end of a run, no search continues behind it.
        if (places.at()[(i + 1) & places.mask].load(std::memory_order_relaxed) == nullptr) {
            for (; places.at()[i].load(std::memory_order_relaxed) == &kRemoved; i = (i - 1) & places.mask) {
                places.at()[i].store(nullptr, std::memory_order_release);
                --used_;
            }
        }
        --count_;
        windows_ -= region.is_window;
    }
    grace_period_.wait();
    return true;
}

bool MemoryTable::replace(Region& region, Region& next) {
    if (!end(region)) return false;
    next.key = region.key;
    {
        const std::lock_guard lock(mutex_);
        place_of(region).store(&next, std::memory_order_release);
    }
    grace_period_.wait();
    return true;
}

bool MemoryTable::bind(const Bind& request, QueuePair& qp) {
    Region* const found = find_tag(request.window);
    if (found == nullptr || !found->is_window || found->pd != qp.pd) return false;
    auto& window = static_cast<Window&>(*found);
    const uint32_t rkey = (window.key & ~0xFFu) | (request.rkey & 0xFF);
    if (request.length == 0) {
        if (window.type() != IBV_MW_TYPE_1) return false;
        return window.change(nullptr, rkey, 0, 0, 0, nullptr, [&] { return !window.leaving_; });
    }
    auto* const region = const_cast<Region*>(open(request.lkey, IBV_ACCESS_MW_BIND, qp.pd));
    if (region == nullptr || region->at(request.iova, request.length) == nullptr) return false;
    constexpr int kWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if ((request.access & kWrites) != 0 && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) return false;
    int32_t windows = region->windows.load(std::memory_order_relaxed);
    do {
        if (windows == Region::kLeaving) return false;
    } while (!region->windows.compare_exchange_weak(windows, windows + 1, std::memory_order_relaxed));
    const bool only_one = window.type() == IBV_MW_TYPE_2;
    const bool bound =
        window.change(region, rkey, request.iova, request.length, request.access, only_one ? &qp : nullptr,
                      [&] { return !window.leaving_ && !(only_one && window.is_bound()); });
    if (!bound) region->windows.fetch_sub(1, std::memory_order_relaxed);
    return bound;
}

bool MemoryTable::invalidate(uint32_t rkey, const QueuePair& qp) {
    Region* const found = find_tag(rkey);
    if (found == nullptr || !found->is_window) return false;
    auto& window = static_cast<Window&>(*found);
    if (window.type() != IBV_MW_TYPE_2) return false;
    return window.change(nullptr, rkey, 0, 0, 0, nullptr, [&] {
        return window.is_bound() && window.rkey() == rkey && window.qp_.load(std::memory_order_relaxed) == &qp;
    });
}

void MemoryTable::unbind_all(QueuePair& qp) {
    if (qp.windows.first() == nullptr) return;
    const std::lock_guard lock(mutex_);  // the windows stay
    while (Window* const window = qp.windows.first())
        window->change(nullptr, window->rkey(), 0, 0, 0, nullptr, [] { return true; });
}

uint32_t MemoryTable::invalidate_at(const void* address) {
    const auto* const at = static_cast<const uint8_t*>(address);
    const Places& places = *places_.load(std::memory_order_acquire);
    uint32_t key = 0;
    for (uint32_t i = 0; i <= places.mask; ++i) {
        Region* const region = places.at()[i].load(std::memory_order_acquire);
        if (region == nullptr || region->is_window || at < region->host || at >= region->host + region->length)
            continue;
        region->valid.store(false, std::memory_order_relaxed);
        key = region->key;
    }
    return key;
}

}  // namespace rove::transport
