// SPDX-License-Identifier: Apache-2.0
// CLOCK_MONOTONIC in nanoseconds, for a path on which 20 ns count.
#pragma once

#include <cstdint>

namespace rove::tent {

// Returns the time of CLOCK_MONOTONIC. Reading the system's clock takes 20 ns, during which the core runs nothing else.
// For a millisecond after each reading, the TSC therefore gives the time that has passed since. Within one thread the
// time never goes back. The times of two threads may differ by as much as the two clocks drift apart in a millisecond,
// which is less than a microsecond.
uint64_t monotonic_ns();

}  // namespace rove::tent
