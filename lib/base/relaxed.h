// SPDX-License-Identifier: Apache-2.0
// A short name for the order of counts and marks that order nothing else.
#pragma once

#include <atomic>

namespace rove {

inline constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

}  // namespace rove
