// SPDX-License-Identifier: Apache-2.0
// The workers' clock: the TSC since the start, scaled to nanoseconds by a multiplication. Reading it takes about 9 ns.
#pragma once

#include <rte_cycles.h>

#include <cstdint>

namespace rove::datapath {

class Clock {
  public:
    void start() {
        base_ = rte_rdtsc();
        multiplier_ =
            static_cast<uint64_t>((static_cast<unsigned __int128>(1'000'000'000) << kShift) / rte_get_tsc_hz());
    }
    // Returns the time. It starts at 1 ms because the transport uses 0 for "not set".
    uint64_t now_ns() const {
        return kOriginNs +
               static_cast<uint64_t>((static_cast<unsigned __int128>(rte_rdtsc() - base_) * multiplier_) >> kShift);
    }

  private:
    static constexpr unsigned kShift = 32;
    static constexpr uint64_t kOriginNs = 1'000'000;
    uint64_t base_ = 0, multiplier_ = 0;
};

}  // namespace rove::datapath
