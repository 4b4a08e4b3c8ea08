// SPDX-License-Identifier: Apache-2.0
// Short names for a millisecond and the priorities, for tests of scheduling.
#pragma once

#include <cstdint>

#include "tent/config/types.h"

namespace rove::tent {

inline constexpr uint64_t kMs = 1'000'000;  // ns
inline constexpr Priority kHigh = Priority::kHigh, kMedium = Priority::kMedium, kLow = Priority::kLow;

}  // namespace rove::tent
