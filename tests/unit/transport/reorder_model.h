// SPDX-License-Identifier: Apache-2.0
// The model for class Reorder: a std::map of received packets, and the window rules of EU-1, EU-3 and EU-5 in plain
// numbers. Packets are numbered in 64 bits here and never wrap.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "transport/reorder/reorder.h"

namespace rove::test {

using transport::Arrival;
using transport::Psn;
using transport::Reorder;
using transport::ReorderConfig;
using transport::ReorderStream;
using transport::Slot;

using Packet = uint64_t;
using Tails = std::vector<std::pair<Packet, Slot>>;

inline Psn psn_of(Packet packet) {
    return Psn(static_cast<uint32_t>(packet & Psn::kMask));
}

// First fit from the front for blocks; for metadata, last fit from the back within 64 blocks.
class ModelArena {
  public:
    ModelArena(uint32_t blocks, uint32_t metadata_blocks) : used_(blocks, false), metadata_blocks_(metadata_blocks) {}

    uint32_t metadata_blocks() const { return metadata_blocks_; }
    uint32_t used() const { return taken_; }
    uint32_t free() const { return static_cast<uint32_t>(used_.size()) - taken_; }
    bool has_run() const { return last_run() >= 0; }
    uint32_t take_block() {
        uint32_t block = 0;
        while (used_[block]) ++block;
        set(block, 1, true);
        return block;
    }
    uint32_t take_metadata() {
        const auto first = static_cast<uint32_t>(last_run());
        set(first, metadata_blocks_, true);
        return first;
    }
    void set(uint32_t first, uint32_t count, bool used) {
        for (uint32_t i = first; i < first + count; ++i) used_[i] = used;
        taken_ = used ? taken_ + count : taken_ - count;
    }

  private:
    int last_run() const {
        for (int first = static_cast<int>(used_.size() - metadata_blocks_); first >= 0; --first) {
            const int last = first + static_cast<int>(metadata_blocks_) - 1;
            bool free = first / 64 == last / 64;
            for (int i = first; free && i <= last; ++i) free = !used_[static_cast<size_t>(i)];
            if (free) return first;
        }
        return -1;
    }

    std::vector<bool> used_;
    uint32_t metadata_blocks_;
    uint32_t taken_ = 0;
};

inline ModelArena model_arena(const ReorderConfig& config) {
    const uint32_t block_bytes = config.block_slots / 4;
    const uint32_t metadata_bytes = 12 + 2 * (config.cap_slots / config.block_slots);
    return {config.arena_blocks, (metadata_bytes + block_bytes - 1) / block_bytes};
}

class ModelStream {
  public:
    ModelStream(const ReorderConfig& config, ModelArena& arena, Packet first)
        : config_(config), arena_(arena), expected_(first) {}

    Packet expected() const { return expected_; }
    Packet highest() const { return received_.empty() ? expected_ - 1 : received_.rbegin()->first; }
    uint32_t blocks() const { return static_cast<uint32_t>(addresses_.size()); }
    uint32_t degree() const { return received_.empty() ? 0 : static_cast<uint32_t>(highest() - expected_); }
    bool is_received(Packet packet) const { return packet < expected_ || received_.count(packet) != 0; }
    uint32_t bytes() const {
        if (is_static()) return 4 + 4 + config_.static_slots / 4;
        return addresses_.empty() ? 4 : 4 + (arena_.metadata_blocks() + blocks()) * config_.block_slots / 4;
    }

    Arrival classify(Packet packet) const {
        if (packet == expected_) return Arrival::kInOrder;
        if (is_received(packet)) return Arrival::kDuplicate;
        if (is_static()) return packet - expected_ < config_.static_slots ? Arrival::kOutOfOrder : Arrival::kBeyond;
        const uint64_t needed = blocks_needed(packet);
        if (needed > cap_blocks()) return Arrival::kBeyond;
        if (addresses_.empty()) {
            const bool fits = arena_.free() >= arena_.metadata_blocks() + needed && arena_.has_run();
            return fits ? Arrival::kOutOfOrder : Arrival::kExhausted;
        }
        return needed <= blocks() || needed - blocks() <= arena_.free() ? Arrival::kOutOfOrder : Arrival::kExhausted;
    }
    void track(Packet packet, Slot slot, bool last) {
        const uint64_t needed = blocks_needed(packet);
        if (received_.empty()) begin_ring();
        received_[packet] = slot;
        last_seen_ = last_seen_ || last;
        if (is_static()) return;
        if (addresses_.empty()) metadata_ = arena_.take_metadata();
        while (blocks() < needed) addresses_.push_back(arena_.take_block());
    }
    // Returns the tails that are now in order. If `refused` is one of them, it is removed again, and the result ends
    // there.
    Tails advance(bool last, Packet refused) {
        Tails tails;
        const bool was_out_of_order = !received_.empty();
        ++expected_;
        while (!received_.empty() && received_.begin()->first == expected_) {
            const auto [packet, slot] = *received_.begin();
            received_.erase(received_.begin());
            const bool is_tail = slot != Slot::kReceived;
            if (is_tail) tails.push_back({packet, slot});
            if (is_tail && packet == refused) break;
            ++expected_;
        }
        if (addresses_.empty()) return tails;
        last_seen_ = last_seen_ || last;
        if (received_.empty() && last_seen_) {
            stop();
        } else if (was_out_of_order) {
            if (circular_ < blocks() && expected_ > tail_) circular_ = blocks();  // merge
            if (circular_ == blocks()) tail_ = expected_ + Packet{circular_} * config_.block_slots - 1;
        }
        return tails;
    }
    void stop() {
        if (!addresses_.empty()) arena_.set(metadata_, arena_.metadata_blocks(), false);
        for (const uint32_t block : addresses_) arena_.set(block, 1, false);
        addresses_.clear();
        received_.clear();
        last_seen_ = false;
    }

  private:
    bool is_static() const { return config_.kind == ReorderConfig::Kind::kStatic; }
    uint32_t cap_blocks() const { return config_.cap_slots / config_.block_slots; }
    void begin_ring() {
        circular_ = std::max(blocks(), 1u);
        tail_ = expected_ + Packet{circular_} * config_.block_slots - 1;
    }
    uint64_t blocks_needed(Packet packet) const {
        const auto count = [&](Packet packets) { return (packets + config_.block_slots - 1) / config_.block_slots; };
        if (received_.empty()) return count(packet - expected_ + 1);
        return packet <= tail_ ? circular_ : circular_ + count(packet - tail_);
    }

    const ReorderConfig& config_;
    ModelArena& arena_;
    Packet expected_;
    std::map<Packet, Slot> received_;  // packets after the expected one
    bool last_seen_ = false;
    uint32_t metadata_ = 0;
    std::vector<uint32_t> addresses_;
    uint32_t circular_ = 0;  // blocks
    Packet tail_ = 0;
};

}  // namespace rove::test
