// SPDX-License-Identifier: Apache-2.0
// MP-RDMA's bitmaps (EU-5, section 3.3) for all streams of one worker: every stream has a ring of L slots from start to
// release. L divides 2^24, so the lower bits of a PSN are its slot, and the head need not be stored.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transport/reorder/slots.h"
#include "transport/reorder/stream.h"

namespace rove::transport {

class StaticBitmaps {
  public:
    // `slots` must be a power of two and at least kSlotsPerWord.
    explicit StaticBitmaps(uint32_t slots) : slots_(slots) {}

    void start(ReorderStream& stream);
    // Classifies `psn`, which must be after the expected one.
    Arrival classify(const ReorderStream& stream, Psn psn) const {
        if (static_cast<uint32_t>(psn - stream.expected) >= slots_) return Arrival::kBeyond;
        return tracks(stream, psn) ? Arrival::kDuplicate : Arrival::kOutOfOrder;
    }
    void track(ReorderStream& stream, Psn psn, Slot slot, bool) {
        Bitmap& bitmap = bitmaps_[stream.memory];
        bitmap.highest = stream.out_of_order ? std::max(bitmap.highest, psn) : psn;
        stream.out_of_order = true;
        fill_slot(word(stream, psn), psn.value() % kSlotsPerWord, slot);
    }
    bool tracks(const ReorderStream& stream, Psn psn) const {
        if (static_cast<uint32_t>(psn - stream.expected) >= slots_) return false;
        return slot_at(words_[word_index(stream, psn)], psn.value() % kSlotsPerWord) != Slot::kEmpty;
    }
    template <class Visit>
    void advance(ReorderStream& stream, bool last, Visit& visit);
    void release_in_order(ReorderStream&) {}
    void release(ReorderStream& stream);

    uint32_t room(const ReorderStream&) const { return slots_; }
    Psn highest(const ReorderStream& stream) const { return bitmaps_[stream.memory].highest; }
    uint32_t bytes(const ReorderStream& stream) const {
        return stream.memory == ReorderStream::kNoMemory ? 0 : stream_bytes();
    }
    const ReorderUsage& usage() const { return usage_; }

  private:
    struct Bitmap {
        Psn highest;  // received
    };

    uint32_t words_per_stream() const { return slots_ / kSlotsPerWord; }
    uint32_t stream_bytes() const {
        return static_cast<uint32_t>(sizeof(Bitmap) + words_per_stream() * sizeof(SlotWord));
    }
    size_t word_index(const ReorderStream& stream, Psn psn) const {
        return size_t{stream.memory} * words_per_stream() + (psn.value() & (slots_ - 1)) / kSlotsPerWord;
    }
    SlotWord& word(const ReorderStream& stream, Psn psn) { return words_[word_index(stream, psn)]; }

    const uint32_t slots_;
    std::vector<Bitmap> bitmaps_;
    std::vector<SlotWord> words_;   // the words of bitmap 0, then of bitmap 1, ...
    std::vector<uint32_t> unused_;  // free bitmaps
    ReorderUsage usage_;
};

template <class Visit>
void StaticBitmaps::advance(ReorderStream& stream, bool, Visit& visit) {
    ++stream.expected;
    Run run;
    do {
        const uint32_t from = stream.expected.value() % kSlotsPerWord;
        run = take_run(word(stream, stream.expected), from, stream.expected, visit);
        stream.expected = stream.expected + run.packets;
    } while (run.packets != 0 && !run.refused);
    stream.out_of_order = highest(stream) > stream.expected;
}

}  // namespace rove::transport
