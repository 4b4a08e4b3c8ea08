// SPDX-License-Identifier: Apache-2.0
#include "transport/reorder/hybrid_bitmap.h"

#include <bit>

namespace rove::transport {

HybridBitmaps::HybridBitmaps(uint32_t block_slots, uint32_t cap_slots, uint32_t arena_blocks)
    : block_shift_(static_cast<uint32_t>(std::countr_zero(block_slots))),
      cap_blocks_(cap_slots >> block_shift_),
      arena_(arena_blocks, block_slots / kSlotsPerWord * static_cast<uint32_t>(sizeof(SlotWord)),
             static_cast<uint32_t>(sizeof(Metadata) + cap_blocks_ * sizeof(uint16_t))) {}

// Returns the slot of a PSN after the expected one, even if its block is not allocated yet.
uint32_t HybridBitmaps::position(const ReorderStream& stream, Psn psn) const {
    const auto ahead = static_cast<uint32_t>(psn - stream.expected);
    if (!stream.out_of_order) return ahead;  // the ring will begin at the expected PSN
    const Metadata& m = metadata(stream);
    const uint32_t ring = slots(m.circular);
    if (psn > m.tail) return ring + static_cast<uint32_t>(psn - m.tail) - 1;
    const uint32_t at = m.head + ahead;
    return at < ring ? at : at - ring;
}

Arrival HybridBitmaps::classify(const ReorderStream& stream, Psn psn) {
    const uint32_t at = position(stream, psn);
    const uint32_t needed = block_of(at) + 1;
    const uint32_t blocks = has_memory(stream) ? metadata(stream).blocks : 0;
    if (needed <= blocks) return is_filled(metadata(stream), at) ? Arrival::kDuplicate : Arrival::kOutOfOrder;
    if (needed > cap_blocks_) return Arrival::kBeyond;
    const uint32_t more = blocks == 0 ? arena_.metadata_blocks() + needed : needed - blocks;
    if (more <= left_for(stream) && (blocks == 0 ? arena_.can_start(needed) : arena_.can_extend(more)))
        return Arrival::kOutOfOrder;
    arena_.count_refusal();
    return Arrival::kExhausted;
}

bool HybridBitmaps::tracks(const ReorderStream& stream, Psn psn) const {
    if (!stream.out_of_order) return false;
    const Metadata& m = metadata(stream);
    const uint32_t at = position(stream, psn);
    return block_of(at) < m.blocks && is_filled(m, at);
}

uint32_t HybridBitmaps::room(const ReorderStream& stream) const {
    const uint32_t blocks = has_memory(stream) ? metadata(stream).blocks : 0;
    const uint32_t most = std::min(cap_blocks_, blocks + left_for(stream) / 4);
    if (!stream.out_of_order) return std::max(slots(most), 1u);
    const Metadata& m = metadata(stream);
    return static_cast<uint32_t>(m.tail - stream.expected) + 1 + slots(most - m.circular);
}

void HybridBitmaps::track(ReorderStream& stream, Psn psn, Slot slot, bool last) {
    const uint32_t at = position(stream, psn);
    if (!has_memory(stream)) {
        stream.memory = arena_.take_metadata();
        by_peer_[stream.peer] += arena_.metadata_blocks();
        Metadata& m = metadata(stream);
        m.blocks = 0;
        append_block(stream, m);
    }
    Metadata& m = metadata(stream);
    if (!stream.out_of_order) {
        stream.out_of_order = true;
        m.highest = psn;
        m.head = 0;
        m.circular = m.blocks;
        m.tail = stream.expected + (slots(m.circular) - 1);
    }
    while (m.blocks <= block_of(at)) append_block(stream, m);
    fill_slot(word(m, at), at % kSlotsPerWord, slot);
    m.highest = std::max(m.highest, psn);
    stream.last_seen = stream.last_seen || last;
}

void HybridBitmaps::append_block(const ReorderStream& stream, Metadata& m) {
    assert(m.blocks < cap_blocks_);
    const uint32_t block = arena_.take_block();
    ++by_peer_[stream.peer];
    uint16_t* addresses = m.addresses();
    addresses[m.blocks] = static_cast<uint16_t>(m.blocks == 0 ? block : block - addresses[0]);
    ++m.blocks;
}

void HybridBitmaps::release(ReorderStream& stream) {
    if (!has_memory(stream)) return;
    const Metadata& m = metadata(stream);
    by_peer_[stream.peer] -= arena_.metadata_blocks() + m.blocks;
    for (uint32_t i = 0; i < m.blocks; ++i) arena_.free_block(address(m, i));
    arena_.free_metadata(stream.memory);
    stream.memory = ReorderStream::kNoMemory;
    stream.out_of_order = stream.last_seen = false;
}

uint32_t HybridBitmaps::bytes(const ReorderStream& stream) const {
    if (!has_memory(stream)) return 0;
    return arena_.metadata_bytes() + metadata(stream).blocks * arena_.block_bytes();
}

}  // namespace rove::transport
