// SPDX-License-Identifier: Apache-2.0
// What threads keep apart from each other: a thread has a lane, which it shares only when there are more than
// kThreadLanes. So it finds what it wrote itself near its core, and seldom writes where others do.
#pragma once

#include <atomic>
#include <cstdint>

namespace rove::tent {

inline constexpr uint32_t kThreadLanes = 16;

// Of the thread that calls.
inline uint8_t own_lane() {
    static std::atomic<uint32_t> threads{0};
    thread_local const auto lane = static_cast<uint8_t>(threads.fetch_add(1, std::memory_order_relaxed) % kThreadLanes);
    return lane;
}

}  // namespace rove::tent
