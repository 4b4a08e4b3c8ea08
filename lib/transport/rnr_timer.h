// SPDX-License-Identifier: Apache-2.0
// RNR NAK timer codes, IBTA table 45. Units: nanoseconds.
#pragma once

#include <cstdint>

namespace rove::transport {

inline constexpr uint32_t kRnrTimer10Microseconds[32] = {
    65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
    256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

constexpr uint64_t rnr_timer_ns(uint8_t code) {
    return kRnrTimer10Microseconds[code & 31] * 10'000ull;
}

}  // namespace rove::transport
