// SPDX-License-Identifier: Apache-2.0
// Packet ordering at the receiver: one interface with two implementations, which transport.reorder selects for each
// worker (EU-5).
//
// A receiver calls reorder.classify(stream, psn) for every data packet and acts on the result:
// - kInOrder: take the packet; after success call advance(), complete the packets that it visits, and send an ACK.
// - kOutOfOrder: place or hold the packet; after success call track(), and send a SACK.
// - Otherwise place nothing; see Arrival.
// The result is valid until the next call that changes this or another stream of the worker.
#pragma once

#include <variant>

#include "transport/reorder/hybrid_bitmap.h"
#include "transport/reorder/static_bitmap.h"

namespace rove::transport {

struct ReorderConfig {
    enum class Kind : uint8_t { kEunomia, kStatic };

    Kind kind = Kind::kEunomia;
    // Packets of a block. Larger blocks need fewer addresses, and more memory for a little reordering. A power of two,
    // 16..256.
    uint32_t block_slots = 256;
    // Packets. The largest distance at which a stream may be tracked; half of it is always possible (hybrid_bitmap.h,
    // note 4). It also bounds a stream's memory. A multiple of block_slots, 1..64 of them.
    uint32_t cap_slots = 16'384;
    // Blocks. The preallocated memory for all streams of a worker: with 4 MiB, the default, 16 000 streams may be out
    // of order by less than a block, or 970 at the default cap. 64..65536.
    uint32_t arena_blocks = ReorderArena::kMaxBlocks;
    // Packets. The length L of the static bitmap. A power of two, 16..4096; 64 is MP-RDMA's (section 3.3).
    uint32_t static_slots = 64;
};

// The sizes of Eunomia's implementation (section 4).
inline constexpr ReorderConfig kEunomiaSizes{.block_slots = 16, .cap_slots = 256};

// Returns how many packets after the expected one a stream can track in any case, apart from lack of memory: 8064 by
// default. hybrid_bitmap.h, note 4, derives Eunomia's number.
constexpr uint32_t always_tracked_packets(const ReorderConfig& config) {
    if (config.kind == ReorderConfig::Kind::kStatic) return config.static_slots - 1;
    if (config.cap_slots == config.block_slots) return config.cap_slots - 1;
    return (config.cap_slots - config.block_slots) / 2;
}

// Returns null for a usable configuration, or else the member that is wrong and its allowed values.
const char* invalid(const ReorderConfig& config);

// Tracks the order of all streams of one worker.
class Reorder {
    // The selected kind never changes, so the branch is always predicted.
    template <class Bitmaps, class Use>
    static decltype(auto) with(Bitmaps& bitmaps, Use&& use) {
        if (auto* hybrid = std::get_if<HybridBitmaps>(&bitmaps)) [[likely]]
            return use(*hybrid);
        return use(*std::get_if<StaticBitmaps>(&bitmaps));
    }

  public:
    explicit Reorder(const ReorderConfig& config);

    // Starts a stream whose QP is ready to receive: `first` is the expected PSN. `peer`, from 1 to 63, tells peers
    // apart, none of which may use more memory than it leaves free; 0 stands for no peer. It may allocate.
    void start(ReorderStream& stream, Psn first, uint32_t peer = 0);
    // Frees the stream's memory, when its QP is closed or starts over.
    void stop(ReorderStream& stream) {
        with(bitmaps_, [&](auto& bitmaps) { bitmaps.release(stream); });
    }

    Arrival classify(const ReorderStream& stream, Psn psn) {
        if (psn == stream.expected) [[likely]]
            return Arrival::kInOrder;
        if (psn < stream.expected) return Arrival::kDuplicate;
        return with(bitmaps_, [&](auto& bitmaps) { return bitmaps.classify(stream, psn); });
    }
    // Tracks a packet for which classify() returned kOutOfOrder. `slot` must not be kEmpty. `last` is true if the
    // packet carries Eunomia's Last.
    void track(ReorderStream& stream, Psn psn, Slot slot, bool last) {
        with(bitmaps_, [&](auto& bitmaps) { bitmaps.track(stream, psn, slot, last); });
    }
    // Advances after the expected packet was taken: it and the tracked packets that follow it without a hole are in
    // order now. Calls bool visit(Psn, Slot) for the held ones among them, in PSN order. If visit returns false the
    // packet cannot be taken after all: it becomes the expected one, as if it had not arrived. The visitor must not use
    // the stream.
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
    // Returns how many packets from the expected one on can be tracked now.
    uint32_t room(const ReorderStream& stream) const {
        return with(bitmaps_, [&](const auto& bitmaps) { return bitmaps.room(stream); });
    }
    // Returns the out-of-order degree: the distance from the expected PSN to the highest one received, or 0 in order.
    uint32_t degree(const ReorderStream& stream) const {
        if (!stream.out_of_order) return 0;
        return with(bitmaps_, [&](const auto& bitmaps) {
            return static_cast<uint32_t>(bitmaps.highest(stream) - stream.expected);
        });
    }
    // Returns the memory for this stream's order, in addition to its expected PSN.
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
