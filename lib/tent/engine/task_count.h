// SPDX-License-Identifier: Apache-2.0
// Counts of unfinished tasks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tent/config/config.h"

namespace rove::tent {

// Counts the tasks that have begun and those that have finished. Any thread may count a beginning. Only the holder of
// the drive lock counts an end, which therefore needs no locked operation.
class TaskCount {
  public:
    void begin() { begun_.fetch_add(1); }
    // Takes back a begin() whose task does not take place. Any thread may call it.
    void undo_begin() { begun_.fetch_sub(1); }
    void finish() { finished_.store(finished_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
    uint64_t unfinished() const {
        const uint64_t finished = finished_.load();  // read first, so that it never exceeds `begun_`
        return begun_.load() - finished;
    }

  private:
    std::atomic<uint64_t> begun_{0}, finished_{0};
};

// A TaskCount for each shard (shard.h), because each shard counts its own tasks.
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
