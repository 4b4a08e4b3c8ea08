// SPDX-License-Identifier: Apache-2.0
// Eunomia's hybrid-dynamic bitmaps (EU-1, section 3.3) for all streams of one worker. Units are packets and blocks.
//
// DESIGN NOTES
// 1. A bitmap is a list of blocks. The first `circular` blocks form a ring in which `head` is the slot of the expected
//    PSN, up to the PSN `tail`. The blocks after them are linear and begin with the PSN after `tail`. Growth therefore
//    appends blocks and moves nothing: `tail` stays while there is a linear part.
// 2. When the expected PSN passes `tail`, the ring is empty, and both parts become one longer ring with two
//    assignments.
// 3. The bitmap of a stream in order holds no information: when packets arrive out of order again, its ring restarts at
//    slot 0. Packets in order thus touch no bitmap, whether there is one or not.
// 4. The price for moving nothing: a ring of c blocks that has grown tracks only its remainder and cap - c blocks until
//    `tail` is passed. Packets up to (cap - block) / 2 slots ahead are thus always tracked. A stream with more
//    reordering has some packets refused while it grows to a ring that long (reorder_bench counts them), and none
//    afterwards.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>

#include "transport/reorder/arena.h"
#include "transport/reorder/slots.h"

namespace rove::transport {

class HybridBitmaps {
  public:
    static constexpr uint32_t kMaxBlocks = 64;  // blocks of one stream

    // `block_slots` must be a power of two and at least kSlotsPerWord, and `cap_slots` a multiple of it.
    HybridBitmaps(uint32_t block_slots, uint32_t cap_slots, uint32_t arena_blocks);

    void start(ReorderStream&) {}
    // Classifies `psn`, which must be after the expected one.
    Arrival classify(const ReorderStream& stream, Psn psn);
    void track(ReorderStream& stream, Psn psn, Slot slot, bool last);
    bool tracks(const ReorderStream& stream, Psn psn) const;
    // Advances past the expected packet, which arrived while later packets are tracked.
    template <class Visit>
    void advance(ReorderStream& stream, bool last, Visit& visit);
    // Frees the memory of a stream that is in order after Last has passed (EU-3).
    void release_in_order(ReorderStream& stream) {
        if (has_memory(stream)) release(stream);
    }
    void release(ReorderStream& stream);

    // Returns how many packets from the expected one on can be tracked now. A stream is granted a part of the blocks
    // that are left.
    uint32_t room(const ReorderStream& stream) const;
    // Returns the highest PSN received; the stream must be out of order.
    Psn highest(const ReorderStream& stream) const { return metadata(stream).highest; }
    uint32_t bytes(const ReorderStream& stream) const;
    const ReorderUsage& usage() const { return arena_.usage(); }

  private:
    struct Metadata {
        Psn highest;       // received
        Psn tail;          // the last PSN with a slot in the circular part
        uint16_t head;     // slot of the expected PSN
        uint8_t circular;  // blocks of the circular part
        uint8_t blocks;    // blocks of both parts
        // The blocks' places: the first one in the arena, and the others relative to it, modulo 2^16.
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
    void append_block(const ReorderStream& stream, Metadata& m);
    // Returns the blocks that the stream's peer may take without using more than it leaves free.
    uint32_t left_for(const ReorderStream& stream) const {
        const uint32_t free = arena_.free_blocks(), taken = by_peer_[stream.peer];
        if (stream.peer == 0) return free;
        return free > taken ? (free - taken) / 2 : 0;
    }

    const uint32_t block_shift_, cap_blocks_;
    ReorderArena arena_;
    std::array<uint32_t, ReorderStream::kPeers> by_peer_{};  // blocks
};

template <class Visit>
void HybridBitmaps::advance(ReorderStream& stream, bool last, Visit& visit) {
    Metadata& m = metadata(stream);
    ++stream.expected;
    ++m.head;
    Run run;
    do {
        // A run cannot cross `tail` unnoticed: the slot after it belongs to a PSN that has passed, or to the next
        // block.
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
