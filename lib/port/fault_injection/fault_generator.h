// SPDX-License-Identifier: Apache-2.0
// Random faults from a seed: for the same seed, the same frames have the same faults. Units: frames, bits.
#pragma once

#include <cstdint>
#include <random>

#include "port/fault_injection/settings.h"

namespace rove::datapath {

// The faults of one frame. At most one of lose, hold and duplicate is set.
struct FaultDecision {
    bool lose = false;
    bool mark = false;  // Congestion Experienced, if the frame is of an ECN-capable transport
    bool duplicate = false;
    uint32_t hold_frames = 0;  // reordered: delivered after this many other frames
    int64_t flip_bit = -1;     // corrupted: this bit of the frame is inverted
    bool operator==(const FaultDecision&) const = default;
};

class FaultGenerator {
  public:
    static constexpr uint32_t kMaxHoldFrames = 4;  // a held frame is 1..4 frames late

    explicit FaultGenerator(uint64_t seed) : random_(seed) {}
    void set(const PathSettings& settings);
    FaultDecision next(uint32_t frame_bytes);

  private:
    bool hit(uint64_t threshold) { return threshold != 0 && random_() < threshold; }
    std::mt19937_64 random_;
    uint64_t loss_ = 0, duplicate_ = 0, corrupt_ = 0, reorder_ = 0, mark_ = 0;  // probability * 2^64
};

}  // namespace rove::datapath
