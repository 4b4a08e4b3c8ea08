// SPDX-License-Identifier: Apache-2.0
// Packet ordering at the receiver: one interface of two implementations, chosen per worker by transport.reorder (EU-5).
//
// A receiver's use of it, for every data packet:
//   switch (reorder.classify(stream, psn)):
//     kInOrder     take the packet; if that succeeds advance(), and complete what it visits; ACK
//     kOutOfOrder  place or hold the packet; if that succeeds track(); SACK
//     others       place nothing; see Arrival
// What classify() said holds until the next call that changes this or another stream of the worker.
#pragma once

#include <variant>

#include "transport/reorder/hybrid_bitmap.h"
#include "transport/reorder/static_bitmap.h"

namespace rove::transport {

struct ReorderConfig {
    enum class Kind : uint8_t { kEunomia, kStatic };

    Kind kind = Kind::kEunomia;
    // Packets. Larger: fewer addresses to keep, more memory for a little reordering. Power of two, 16..256; default:
    // Eunomia section 4.
    uint32_t block_slots = 16;
    // Packets. How far ahead a stream may be tracked at most, and always by half of it (hybrid_bitmap.h, note 4); and
    // so the most memory it can have. A multiple of block_slots, 1..64 of them; default: Eunomia section 4.
    uint32_t cap_slots = 256;
    // Blocks. Memory of all streams of a worker, preallocated: 256 KiB are 2340 streams at the default cap. 64..65536.
    uint32_t arena_blocks = ReorderArena::kMaxBlocks;
    // Packets. L of the static bitmap. Power of two, 16..4096; 64: MP-RDMA section 3.3.
    uint32_t static_slots = 64;
};

// Null if usable; else the member that is not, and what it may be.
const char* invalid(const ReorderConfig& config);

// All streams of one worker.
class Reorder {
    // The choice never changes, so its branch is always predicted.
    template <class Bitmaps, class Use>
    static decltype(auto) with(Bitmaps& bitmaps, Use&& use) {
        if (auto* hybrid = std::get_if<HybridBitmaps>(&bitmaps)) [[likely]]
            return use(*hybrid);
        return use(*std::get_if<StaticBitmaps>(&bitmaps));
    }

  public:
    explicit Reorder(const ReorderConfig& config);

    // The QP is ready to receive: nothing is received yet, and `first` is expected. May allocate.
    void start(ReorderStream& stream, Psn first);
    // The QP goes away, or starts over: its memory goes back.
    void stop(ReorderStream& stream) {
        with(bitmaps_, [&](auto& bitmaps) { bitmaps.release(stream); });
    }

    Arrival classify(const ReorderStream& stream, Psn psn) {
        if (psn == stream.expected) [[likely]]
            return Arrival::kInOrder;
        if (psn < stream.expected) return Arrival::kDuplicate;
        return with(bitmaps_, [&](auto& bitmaps) { return bitmaps.classify(stream, psn); });
    }
    // Only when classify() says kOutOfOrder. `slot` is not kEmpty. `last`: the packet carries Eunomia's Last.
    void track(ReorderStream& stream, Psn psn, Slot slot, bool last) {
        with(bitmaps_, [&](auto& bitmaps) { bitmaps.track(stream, psn, slot, last); });
    }
    // The expected packet was taken: it and the tracked packets that now follow it without a hole are in order. Calls
    // bool visit(Psn, Slot) for those among the latter that were held, in PSN order. False means that the packet cannot
    // be taken after all: it becomes the expected one, as if it had not come. The visitor must not use the stream.
    template <class Visit>
    [[gnu::always_inline]] void advance(ReorderStream& stream, bool last, Visit&& visit) {
        if (stream.out_of_order || last) [[unlikely]]
            advance_with_bitmap(stream, last, visit);
        else
            ++stream.expected;
    }

    bool is_received(const ReorderStream& stream, Psn psn) const {
        if (psn <= stream.expected) return psn < stream.expected;
        return with(bitmaps_, [&](const auto& bitmaps) { return bitmaps.tracks(stream, psn); });
    }
    // Out-of-order degree: from the expected PSN to the highest received. 0 = in order.
    uint32_t degree(const ReorderStream& stream) const {
        if (!stream.out_of_order) return 0;
        return with(bitmaps_, [&](const auto& bitmaps) {
            return static_cast<uint32_t>(bitmaps.highest(stream) - stream.expected);
        });
    }
    // All that this stream's order costs now, beside its expected PSN.
    uint32_t bytes(const ReorderStream& stream) const {
        return kReorderStreamBytes + with(bitmaps_, [&](const auto& bitmaps) { return bitmaps.bytes(stream); });
    }
    const ReorderUsage& usage() const {
        return with(bitmaps_, [](const auto& bitmaps) -> const ReorderUsage& { return bitmaps.usage(); });
    }

  private:
    template <class Visit>
    [[gnu::noinline]] void advance_with_bitmap(ReorderStream& stream, bool last, Visit& visit) {
        if (stream.out_of_order) {
            with(bitmaps_, [&](auto& bitmaps) { bitmaps.advance(stream, last, visit); });
        } else {
            ++stream.expected;
            with(bitmaps_, [&](auto& bitmaps) { bitmaps.release_in_order(stream); });
        }
    }

    std::variant<HybridBitmaps, StaticBitmaps> bitmaps_;
};

}  // namespace rove::transport
