// SPDX-License-Identifier: Apache-2.0
// See core.h.
#include "tent/engine/core.h"

#include <bit>

#include "base/relaxed.h"
#include "tent/engine/shard.h"

namespace rove::tent {

Core::Core(const ::rove::tent::Config& config) : config_(config), pool_(kMaxSlices) {
    for (uint32_t i = 0; i < config.shards(); ++i)
        shards_.push_back(std::make_unique<Shard>(*this, static_cast<uint8_t>(i)));
}

Core::~Core() = default;

uint64_t Core::unfinished() const {
    uint64_t tasks = 0;
    for (const auto& shard : shards_) tasks += shard->unfinished();
    return tasks;
}

void Core::set_more(uint8_t shard, uint8_t levels) {
    for (uint8_t level = 0; level < kPriorities; ++level) {
        const uint32_t bit = 1u << shard;
        if ((levels >> level & 1) != 0) {
            more_[level].fetch_or(bit, kRelaxed);
        } else {
            more_[level].fetch_and(~bit, kRelaxed);
        }
    }
}

bool Core::others_have_more(uint8_t shard, uint8_t before_level) const {
    uint32_t shards = 0;
    for (uint8_t level = 0; level < before_level; ++level) shards |= more_[level].load(kRelaxed);
    return (shards & ~(1u << shard)) != 0;
}

uint8_t Core::first_in_use(uint64_t now_ns) const {
    uint8_t priority = 0;
    while (priority < kPriorities && used_ns_[priority].load(kRelaxed) + kLatelyNs < now_ns) ++priority;
    return priority;
}

void Core::help(uint8_t shard) const {
    uint32_t shards = 0;
    for (uint8_t level = 0; level + 1 < kPriorities; ++level) shards |= more_[level].load(kRelaxed);
    for (shards &= ~(1u << shard); shards != 0; shards &= shards - 1)
        shards_[static_cast<size_t>(std::countr_zero(shards))]->drive();
}

void Core::look_after_another(uint8_t shard) const {
    thread_local size_t turn = 0;
    for (size_t i = 0; i < shards_.size(); ++i) {
        turn = (turn + 1) % shards_.size();
        if (turn == shard || shards_[turn]->unfinished() == 0) continue;
        shards_[turn]->drive();
        return;
    }
}

}  // namespace rove::tent
