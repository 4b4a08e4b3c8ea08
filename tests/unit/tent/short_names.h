// SPDX-License-Identifier: Apache-2.0
// A millisecond and the priorities, as tests of the schedule write them.
#pragma once

#include <cstdint>

#include "tent/config/types.h"

namespace rove::tent {

inline constexpr uint64_t kMs = 1'000'000;  // ns
inline constexpr Priority kHigh = Priority::kHigh, kMedium = Priority::kMedium, kLow = Priority::kLow;

}  // namespace rove::tent
