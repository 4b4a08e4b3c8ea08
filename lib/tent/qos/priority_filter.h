// SPDX-License-Identifier: Apache-2.0
// The devices that a priority may use (T-9): out of N devices HIGH has N, MEDIUM N - 1 and LOW N - 2, but at least one.
// The excluded devices rotate, in every process at the same time, because all processes count by the system's monotonic
// clock.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tent/config/types.h"

namespace rove::tent {

// Returns a subset of the mask `devices`, which is empty only if `devices` is. `interval_ns` > 0.
inline uint64_t filter_devices(uint64_t devices, Priority priority, uint64_t now_ns, uint64_t interval_ns) {
    if (priority == Priority::kHigh) return devices;
    const auto count = static_cast<unsigned>(std::popcount(devices));
    if (count < 2) return devices;
    const unsigned least = std::min<unsigned>(index(priority), count - 1);
    auto place = static_cast<unsigned>(now_ns / interval_ns % count);
    uint64_t eligible = 0;
    for (uint64_t rest = devices; rest != 0; rest &= rest - 1) {
        if (place >= least) eligible |= rest & -rest;
        if (++place == count) place = 0;
    }
    return eligible;
}

}  // namespace rove::tent
