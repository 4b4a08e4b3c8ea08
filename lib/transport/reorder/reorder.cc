// SPDX-License-Identifier: Apache-2.0
#include "transport/reorder/reorder.h"

#include <bit>

namespace rove::transport {

namespace {

bool is_power_of_two(uint32_t value, uint32_t least, uint32_t most) {
    return std::has_single_bit(value) && value >= least && value <= most;
}

std::variant<HybridBitmaps, StaticBitmaps> make(const ReorderConfig& config) {
    if (config.kind == ReorderConfig::Kind::kStatic) return StaticBitmaps(config.static_slots);
    return HybridBitmaps(config.block_slots, config.cap_slots, config.arena_blocks);
}

}  // namespace

const char* invalid(const ReorderConfig& config) {
    if (!is_power_of_two(config.block_slots, kSlotsPerWord, 256)) return "block_slots: a power of two, 16..256";
    const uint32_t blocks = config.cap_slots / config.block_slots;
    if (config.cap_slots % config.block_slots != 0 || blocks == 0 || blocks > HybridBitmaps::kMaxBlocks)
        return "cap_slots: a multiple of block_slots, 1..64 of them";
    if (config.arena_blocks < 64 || config.arena_blocks > ReorderArena::kMaxBlocks) return "arena_blocks: 64..65536";
    if (!is_power_of_two(config.static_slots, kSlotsPerWord, 4096)) return "static_slots: a power of two, 16..4096";
    return nullptr;
}

Reorder::Reorder(const ReorderConfig& config) : bitmaps_(make(config)) {}

void Reorder::start(ReorderStream& stream, Psn first, uint32_t peer) {
    stop(stream);
    stream = {};
    stream.expected = first;
    stream.peer = peer % ReorderStream::kPeers;
    with(bitmaps_, [&](auto& bitmaps) { bitmaps.start(stream); });
}

}  // namespace rove::transport
