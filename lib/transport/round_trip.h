// SPDX-License-Identifier: Apache-2.0
// The round trip of a connection: its smoothed value and deviation (RFC 6298), and the least one of the last seconds.
// Units are nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rove::transport {

// The weights are RFC 6298's.
inline void measure_round_trip(uint64_t& smoothed_ns, uint64_t& deviation_ns, uint64_t sample_ns) {
    if (smoothed_ns == 0) [[unlikely]] {
        smoothed_ns = sample_ns;
        deviation_ns = sample_ns / 2;
        return;
    }
    deviation_ns =
        (3 * deviation_ns + (sample_ns > smoothed_ns ? sample_ns - smoothed_ns : smoothed_ns - sample_ns)) / 4;
    smoothed_ns = (7 * smoothed_ns + sample_ns) / 8;
}

// The least round trip of the last 5 to 10 seconds, which is the one without queues. It expires because routes change.
class LeastRoundTrip {
  public:
    void add(uint64_t sample_ns, uint64_t now_ns) {
        if (now_ns - since_ns_ >= kWindowNs) {
            before_ns_ = now_ns - since_ns_ < 2 * kWindowNs ? least_ns_ : UINT64_MAX;
            least_ns_ = UINT64_MAX;
            since_ns_ = now_ns;
        }
        least_ns_ = std::min(least_ns_, sample_ns);
    }
    // Returns UINT64_MAX before the first sample.
    uint64_t get() const { return std::min(least_ns_, before_ns_); }

  private:
    static constexpr uint64_t kWindowNs = 5'000'000'000;

    uint64_t least_ns_ = UINT64_MAX, before_ns_ = UINT64_MAX;  // in this window, and in the one before
    uint64_t since_ns_ = 0;                                    // the beginning of this window
};

}  // namespace rove::transport
