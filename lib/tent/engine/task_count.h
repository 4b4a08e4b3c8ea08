// SPDX-License-Identifier: Apache-2.0
// Tasks under way.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tent/config/config.h"

namespace rove::tent {

// How many have begun, which any thread counts, and how many are finished, which the holder of the drive lock does,
// without a locked operation.
class TaskCount {
  public:
    void begin() { begun_.fetch_add(1); }
    // It does not take place. Any thread.
    void undo_begin() { begun_.fetch_sub(1); }
    void finish() { finished_.store(finished_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
    uint64_t unfinished() const {
        const uint64_t finished = finished_.load();  // first: never more than have begun
        return begun_.load() - finished;
    }

  private:
    std::atomic<uint64_t> begun_{0}, finished_{0};
};

// The same where several shards (shard.h) have tasks: each counts its own.
class TaskCounts {
  public:
    void begin(uint8_t shard) { counts_[shard].count.begin(); }
    void undo_begin(uint8_t shard) { counts_[shard].count.undo_begin(); }
    void finish(uint8_t shard) { counts_[shard].count.finish(); }
    uint64_t unfinished() const {
        uint64_t tasks = 0;
        for (const Line& one : counts_) tasks += one.count.unfinished();
        return tasks;
    }

  private:
    struct alignas(64) Line {
        TaskCount count;
    };
    std::array<Line, kMaxWorkers> counts_;
};

}  // namespace rove::tent
