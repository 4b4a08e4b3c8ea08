// SPDX-License-Identifier: Apache-2.0
// Lanes keep the data of threads apart. Each thread has a lane, which it shares with another thread only when there are
// more than kThreadLanes. A thread thus finds its own data near its core and seldom writes where other threads do.
#pragma once

#include <atomic>
#include <cstdint>

namespace rove::tent {

inline constexpr uint32_t kThreadLanes = 16;

// Returns the lane of the calling thread.
inline uint8_t own_lane() {
    static std::atomic<uint32_t> threads{0};
    thread_local const auto lane = static_cast<uint8_t>(threads.fetch_add(1, std::memory_order_relaxed) % kThreadLanes);
    return lane;
}

}  // namespace rove::tent
