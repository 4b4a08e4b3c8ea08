// SPDX-License-Identifier: Apache-2.0
// What a reorder bitmap keeps of a packet: two bits (EU-2, MP-RDMA section 3.3), sixteen packets to a word.
#pragma once

#include <bit>
#include <cstdint>

#include "transport/psn.h"

namespace rove::transport {

// EU-2, MP-RDMA's four states of a slot, of which the last two say more here: a packet that was held (EU-7), of which
// the receiver is told when its turn comes (Reorder::advance()). That is the tail of a message, and whatever else may
// not be in memory early, such as the middle of a later WRITE. A packet that was placed at once is kReceived, also if
// it is a tail: its receiver needs not to be told. The upper bit says "held": take_run() relies on it.
enum class Slot : uint8_t {
    kEmpty,
    kReceived,            // placed
    kTail,                // held
    kTailWithCompletion,  // held, of a SEND or with an immediate: its message may complete at the receiver
};

using SlotWord = uint32_t;
inline constexpr uint32_t kSlotsPerWord = 16;

inline Slot slot_at(SlotWord word, uint32_t index) {
    return static_cast<Slot>(word >> 2 * index & 3);
}
// The slot is empty before.
inline void fill_slot(SlotWord& word, uint32_t index, Slot slot) {
    word |= static_cast<SlotWord>(slot) << 2 * index;
}

struct Run {
    uint32_t packets;  // taken
    bool refused;      // the packet behind them was there, and was refused
};

// Takes the packets that follow each other without a hole from slot `from`, whose PSN is `first`, to the end of the
// word at most, and empties their slots. Calls bool visit(Psn, Slot) for those that were held. False refuses the
// packet: its slot is emptied too, and the run ends before it.
template <class Visit>
Run take_run(SlotWord& word, uint32_t from, Psn first, Visit& visit) {
    constexpr SlotWord kLower = 0x55555555;
    const SlotWord slots = word >> 2 * from;
    const SlotWord holes = ~(slots | slots >> 1) & kLower;  // a full word has none: 32 zeros
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
