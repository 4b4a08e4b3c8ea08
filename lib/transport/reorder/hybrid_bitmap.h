// SPDX-License-Identifier: Apache-2.0
// EU-1: Eunomia's hybrid-dynamic bitmaps (section 3.3), of all streams of one worker. Units: packets, blocks.
//
// DESIGN NOTES
// 1. A bitmap is a list of blocks. The first `circular` of them are one ring in which `head` is the slot of the
//    expected PSN, up to the PSN `tail`; those behind are linear, beginning with the PSN after `tail`. So growth
//    appends blocks and moves nothing: `tail` stays while there is a linear part.
// 2. When the expected PSN passes `tail`, the ring is empty, and the linear part and the ring become one longer ring:
//    two assignments.
// 3. What a bitmap says of a stream in order is nothing: when the stream leaves order again, its ring begins anew at
//    slot 0. So packets in order touch no bitmap, whether there is one or not.
// 4. The price of not moving: a ring of c blocks that has grown tracks no more than what is left of it and cap - c
//    blocks, until `tail` is passed. So packets up to (cap - block) / 2 slots ahead are always tracked; a stream that
//    is reordered by more is refused some on the way to a ring that long (reorder_bench counts them), and none then.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "transport/reorder/arena.h"
#include "transport/reorder/slots.h"

namespace rove::transport {

class HybridBitmaps {
  public:
    static constexpr uint32_t kMaxBlocks = 64;  // of one stream

    // `block_slots` is a power of two, at least kSlotsPerWord; `cap_slots` a multiple of it.
    HybridBitmaps(uint32_t block_slots, uint32_t cap_slots, uint32_t arena_blocks);

    void start(ReorderStream&) {}
    // `psn` is after the expected one.
    Arrival classify(const ReorderStream& stream, Psn psn);
    void track(ReorderStream& stream, Psn psn, Slot slot, bool last);
    bool tracks(const ReorderStream& stream, Psn psn) const;
    // The expected packet came, and others are behind it.
    template <class Visit>
    void advance(ReorderStream& stream, bool last, Visit& visit);
    // In order, and Last has passed: EU-3.
    void release_in_order(ReorderStream& stream) {
        if (has_memory(stream)) release(stream);
    }
    void release(ReorderStream& stream);

    // Of a stream out of order.
    Psn highest(const ReorderStream& stream) const { return metadata(stream).highest; }
    uint32_t bytes(const ReorderStream& stream) const;
    const ReorderUsage& usage() const { return arena_.usage(); }

  private:
    struct Metadata {
        Psn highest;       // received
        Psn tail;          // the last PSN that the circular part has a slot for
        uint16_t head;     // slot of the expected PSN
        uint8_t circular;  // blocks of the circular part
        uint8_t blocks;    // of both parts
        // Where the blocks are: the first one in the arena, the others relative to it, modulo 2^16.
        uint16_t* addresses() { return reinterpret_cast<uint16_t*>(this + 1); }
        const uint16_t* addresses() const { return reinterpret_cast<const uint16_t*>(this + 1); }
    };
    static_assert(sizeof(Metadata) == 12);
    static_assert(ReorderArena::kMaxBlocks == 1u << 16);

    static bool has_memory(const ReorderStream& stream) { return stream.memory != ReorderStream::kNoMemory; }
    Metadata& metadata(const ReorderStream& stream) const {
        return *reinterpret_cast<Metadata*>(arena_.at(stream.memory));
    }
    static uint32_t address(const Metadata& m, uint32_t block) {
        const uint16_t* addresses = m.addresses();
        return block == 0 ? addresses[0] : static_cast<uint16_t>(addresses[0] + addresses[block]);
    }
    uint32_t slots(uint32_t blocks) const { return blocks << block_shift_; }
    uint32_t block_of(uint32_t position) const { return position >> block_shift_; }
    SlotWord& word(const Metadata& m, uint32_t position) const {
        auto* block = reinterpret_cast<SlotWord*>(arena_.at(address(m, block_of(position))));
        return block[(position & (slots(1) - 1)) / kSlotsPerWord];
    }
    bool is_filled(const Metadata& m, uint32_t position) const {
        return slot_at(word(m, position), position % kSlotsPerWord) != Slot::kEmpty;
    }

    uint32_t position(const ReorderStream& stream, Psn psn) const;
    void append_block(Metadata& m);

    const uint32_t block_shift_, cap_blocks_;
    ReorderArena arena_;
};

template <class Visit>
void HybridBitmaps::advance(ReorderStream& stream, bool last, Visit& visit) {
    Metadata& m = metadata(stream);
    ++stream.expected;
    ++m.head;
    Run run;
    do {
        // No run crosses `tail` unseen: the slot behind it is that of a PSN already passed, or of the next block.
        if (m.circular != m.blocks && stream.expected > m.tail) {
            m.head = static_cast<uint16_t>(slots(m.circular));
            m.circular = m.blocks;  // EU-1: merge
        } else if (m.head == slots(m.circular)) {
            m.head = 0;
        }
        run = take_run(word(m, m.head), m.head % kSlotsPerWord, stream.expected, visit);
        stream.expected = stream.expected + run.packets;
        m.head = static_cast<uint16_t>(m.head + run.packets);
    } while (run.packets != 0 && !run.refused);
    if (m.circular == m.blocks) m.tail = stream.expected + (slots(m.circular) - 1);
    stream.out_of_order = m.highest > stream.expected;
    stream.last_seen = stream.last_seen || last;
    if (!stream.out_of_order && stream.last_seen) release(stream);
}

}  // namespace rove::transport
