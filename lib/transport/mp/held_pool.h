// SPDX-License-Identifier: Apache-2.0
// The memory of a worker for early packets that may not take effect yet (EU-7). Units are granules of 512 bytes.
//
// DESIGN NOTES
// 1. A packet takes one place: a run of as many granules as it needs, so that 64 bytes do not cost as much as 4 KiB.
//    Places of equal length share a slab. A slab whose places are all free serves any length again.
// 2. A slab is allocated when it is first needed, and kept. Without memory the packet is refused, as by a full pool.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

#include "transport/queue_state.h"
#include "wire/frame.h"

namespace rove::transport {

// An early packet. Its payload follows.
struct EarlyPacket {
    uint32_t next_free;
    wire::Headers headers;
    uint32_t payload_bytes;

    uint8_t* payload() { return reinterpret_cast<uint8_t*>(this + 1); }
    const uint8_t* payload() const { return reinterpret_cast<const uint8_t*>(this + 1); }
};

class HeldPool {
  public:
    static constexpr uint32_t kGranuleBytes = 512;
    static constexpr uint32_t kNone = UINT32_MAX;
    static constexpr uint32_t kMaxBytes = 1u << 30;

    explicit HeldPool(uint32_t bytes) : slabs_(bytes / (kGranuleBytes * kSlabGranules)) {
        for (size_t i = slabs_.size(); i != 0; --i) push(free_, static_cast<uint32_t>(i - 1));
        open_.fill(kNone);
    }

    uint32_t granules() const { return static_cast<uint32_t>(slabs_.size()) * kSlabGranules; }
    // Returns the granules of a packet.
    static uint32_t granules_for(uint32_t payload_bytes) { return kLengths[length_for(payload_bytes)]; }

    // Copies a packet to a place. Returns the place, or kNone without memory.
    uint32_t put(const wire::Headers& headers, std::span<const uint8_t> payload) {
        const uint32_t place = take(length_for(static_cast<uint32_t>(payload.size())));
        if (place == kNone) return kNone;
        EarlyPacket& packet = *std::construct_at(&at(place));
        packet.headers = headers;
        packet.payload_bytes = static_cast<uint32_t>(payload.size());
        std::memcpy(packet.payload(), payload.data(), payload.size());
        return place;
    }
    EarlyPacket& at(uint32_t place) const {
        const Slab& slab = slabs_[place / kSlabGranules];
        return *reinterpret_cast<EarlyPacket*>(slab.memory.get() + size_t{place % kSlabGranules} * kGranuleBytes);
    }
    // Frees a place. Returns its granules.
    uint32_t free(uint32_t place);

  private:
    static constexpr uint32_t kSlabGranules = 128;
    static constexpr std::array<uint8_t, 5> kLengths{1, 2, 3, 5, 9};  // in granules; 9 hold the largest MTU
    static_assert(sizeof(EarlyPacket) + kMaxMtu <= kLengths.back() * kGranuleBytes);
    static_assert(std::is_trivially_destructible_v<EarlyPacket>);

    struct Delete {
        void operator()(std::byte* memory) const { ::operator delete(memory); }
    };
    struct Slab {
        std::unique_ptr<std::byte, Delete> memory;
        uint8_t length = 0;                      // index into kLengths
        uint8_t used = 0;                        // places
        uint8_t touched = 0;                     // places that were ever used since the slab got its length
        uint32_t freed = kNone;                  // the first of its freed places
        uint32_t before = kNone, after = kNone;  // in a list of slabs with free places
    };
    static uint32_t length_for(uint32_t payload_bytes) {
        const uint32_t granules =
            (static_cast<uint32_t>(sizeof(EarlyPacket)) + payload_bytes + kGranuleBytes - 1) / kGranuleBytes;
        uint32_t length = 0;
        while (kLengths[length] < granules) ++length;
        return length;
    }
    static uint32_t places_of(const Slab& slab) { return kSlabGranules / kLengths[slab.length]; }
    void push(uint32_t& list, uint32_t slab);
    void remove(uint32_t& list, uint32_t slab);
    uint32_t take(uint32_t length);

    std::vector<Slab> slabs_;
    uint32_t free_ = kNone;                       // slabs without a length
    std::array<uint32_t, kLengths.size()> open_;  // slabs of a length with free places
};

}  // namespace rove::transport
