// SPDX-License-Identifier: Apache-2.0
// A short name for the memory order of counters and flags that order nothing else.
#pragma once

#include <atomic>

namespace rove {

inline constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

}  // namespace rove
