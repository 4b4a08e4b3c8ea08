// SPDX-License-Identifier: Apache-2.0
// Tasks under way.
#pragma once

#include <atomic>
#include <cstdint>

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

}  // namespace rove::tent
