// SPDX-License-Identifier: Apache-2.0
// CLOCK_MONOTONIC in nanoseconds, for a path on which 20 ns count.
#pragma once

#include <cstdint>

namespace rove::tent {

// For a millisecond after each reading of the system's clock, which takes 20 ns and lets nothing run beside it, the TSC
// tells what has passed since. Of one thread it never goes back; others' may differ from it by as much as the two drift
// apart in that time: less than a microsecond.
uint64_t monotonic_ns();

}  // namespace rove::tent
