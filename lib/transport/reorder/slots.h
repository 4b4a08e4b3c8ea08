// SPDX-License-Identifier: Apache-2.0
// The two bits that a reorder bitmap keeps for a packet (EU-2, MP-RDMA section 3.3), sixteen packets in a word.
#pragma once

#include <bit>
#include <cstdint>

#include "transport/psn.h"

namespace rove::transport {

// The four states of a slot in MP-RDMA (EU-2). The last two are more general here: they mark a packet that was held
// (EU-7) and that the receiver must process when it is due (Reorder::advance()). It is the tail of a message, or any
// packet that may not reach memory early, such as the middle of a later WRITE. A packet that was placed at once is
// kReceived, even if it is a tail, because the receiver has nothing left to do. The upper bit means "held"; take_run()
// relies on it.
enum class Slot : uint8_t {
    kEmpty,
    kReceived,            // placed
    kTail,                // held
    kTailWithCompletion,  // held, and part of a SEND or with an immediate: its message may complete at the receiver
};

using SlotWord = uint32_t;
inline constexpr uint32_t kSlotsPerWord = 16;

inline Slot slot_at(SlotWord word, uint32_t index) {
    return static_cast<Slot>(word >> 2 * index & 3);
}
// Fills a slot, which must be empty.
inline void fill_slot(SlotWord& word, uint32_t index, Slot slot) {
    word |= static_cast<SlotWord>(slot) << 2 * index;
}

struct Run {
    uint32_t packets;  // packets that were taken
    bool refused;      // true if the packet after them had arrived and was refused
};

// Takes the consecutive packets from slot `from`, whose PSN is `first`, at most to the end of the word, and empties
// their slots. Calls bool visit(Psn, Slot) for the held ones. If it returns false the packet is refused: its slot is
// emptied too, and the run ends before it.
template <class Visit>
Run take_run(SlotWord& word, uint32_t from, Psn first, Visit& visit) {
    constexpr SlotWord kLower = 0x55555555;
    const SlotWord slots = word >> 2 * from;
    const SlotWord holes = ~(slots | slots >> 1) & kLower;  // a full word has no hole; countr_zero(0) is 32
    Run run{static_cast<uint32_t>(std::countr_zero(holes)) / 2, false};
    uint32_t emptied = run.packets;
    const auto mask = [](uint32_t count) { return static_cast<SlotWord>((uint64_t{1} << 2 * count) - 1); };
    for (SlotWord held = slots & ~kLower & mask(run.packets); held != 0; held &= held - 1) {
        const uint32_t index = static_cast<uint32_t>(std::countr_zero(held)) / 2;
        if (visit(first + index, slot_at(slots, index))) continue;
        run = {index, true};
        emptied = index + 1;
        break;
    }
    word &= ~(mask(emptied) << 2 * from);
    return run;
}

}  // namespace rove::transport
