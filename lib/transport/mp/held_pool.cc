// SPDX-License-Identifier: Apache-2.0
#include "transport/mp/held_pool.h"

#include <utility>

namespace rove::transport {

void HeldPool::push(uint32_t& list, uint32_t slab) {
    slabs_[slab].before = kNone;
    slabs_[slab].after = list;
    if (list != kNone) slabs_[list].before = slab;
    list = slab;
}

void HeldPool::remove(uint32_t& list, uint32_t slab) {
    const Slab& removed = slabs_[slab];
    (removed.before == kNone ? list : slabs_[removed.before].after) = removed.after;
    if (removed.after != kNone) slabs_[removed.after].before = removed.before;
}

// Takes a place. Returns kNone without memory.
uint32_t HeldPool::take(uint32_t length) {
    uint32_t& open = open_[length];
    if (open == kNone) {
        const uint32_t fresh = free_;
        if (fresh == kNone) return kNone;
        auto& memory = slabs_[fresh].memory;
        if (memory == nullptr)
            memory.reset(static_cast<std::byte*>(::operator new(kSlabGranules* kGranuleBytes, std::nothrow)));
        if (memory == nullptr) return kNone;
        remove(free_, fresh);
        slabs_[fresh] = {.memory = std::move(memory), .length = static_cast<uint8_t>(length)};
        push(open, fresh);
    }
    const uint32_t number = open;
    Slab& slab = slabs_[number];
    uint32_t place = slab.freed;
    if (place != kNone)
        slab.freed = at(place).next_free;
    else
        place = number * kSlabGranules + slab.touched++ * kLengths[length];
    if (++slab.used == places_of(slab)) remove(open, number);
    return place;
}

uint32_t HeldPool::free(uint32_t place) {
    const uint32_t number = place / kSlabGranules;
    Slab& slab = slabs_[number];
    uint32_t& open = open_[slab.length];
    if (slab.used == places_of(slab)) push(open, number);
    at(place).next_free = slab.freed;
    slab.freed = place;
    if (--slab.used == 0) {
        remove(open, number);
        push(free_, number);
    }
    return kLengths[slab.length];
}

}  // namespace rove::transport
