// SPDX-License-Identifier: Apache-2.0
// The knowledge of a worker about the network to one peer. All streams to the peer share it (BX-13). Units are
// nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "transport/round_trip.h"

namespace rove::transport {

class Destination {
  public:
    // Paths that work, in the order of their last success. A packet that no ACK assigns to a path takes one of them.
    bool knows_paths() const { return count_ != 0; }
    uint16_t next_path() { return vps_[turn_++ % count_]; }

    // Records a path by which a packet and its ACK have just come. The oldest entry makes room.
    void add_path(uint16_t vp) {
        if (std::find(vps_.begin(), vps_.begin() + count_, vp) != vps_.begin() + count_) return;
        if (count_ < kPaths)
            vps_[count_++] = vp;
        else
            vps_[oldest_++ % kPaths] = vp;
    }
    // Forgets a path that swallowed a packet, or delays it.
    void remove_path(uint16_t vp) {
        const auto end = vps_.begin() + count_;
        const auto at = std::find(vps_.begin(), end, vp);
        if (at == end) return;
        *at = *(end - 1);
        --count_;
    }
    // Records that packets were lost without a sign, and tells whether that was in the last second.
    void record_failure(uint64_t now_ns) { failed_ns_ = now_ns; }
    bool failed_recently(uint64_t now_ns) const { return failed_ns_ != 0 && now_ns - failed_ns_ < kFailureNs; }

    LeastRoundTrip least;
    uint64_t srtt_ns = 0;   // the round trip of the stream that measured last; 0: none
    uint32_t users = 0;     // streams
    uint32_t busy = 0;      // streams that are `busy`
    uint64_t noted_ns = 0;  // the time of the last add_path()

  private:
    static constexpr uint32_t kPaths = 16;
    static constexpr uint64_t kFailureNs = 1'000'000'000;

    std::array<uint16_t, kPaths> vps_{};
    uint32_t count_ = 0, turn_ = 0, oldest_ = 0;
    uint64_t failed_ns_ = 0;
};

}  // namespace rove::transport
