// SPDX-License-Identifier: Apache-2.0
// The units of the modelled network. Time is in picoseconds: a byte takes 80 at 100 Gb/s, and 64 bits last 213 days.
#pragma once

#include <cstdint>

namespace rove::fabric {

using Time = uint64_t;

inline constexpr Time kNanosecond = 1'000, kMicrosecond = 1'000'000, kMillisecond = 1'000'000'000;
inline constexpr Time kSecond = 1'000'000'000'000;
inline constexpr uint64_t kGbps = 1'000'000'000;

}  // namespace rove::fabric
