// SPDX-License-Identifier: Apache-2.0
// Faults on received frames, drawn from a seed: the same seed and the same frames meet the same fate. Units: frames,
// bits.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <random>

#include "datapath/config.h"

namespace rove::datapath {

// What happens to one frame. At most one of lose, hold and duplicate.
struct Fate {
    bool lose = false;
    bool duplicate = false;
    uint32_t hold_frames = 0;  // reordered: comes after so many others
    int64_t flip_bit = -1;     // corrupted: this bit of the frame is inverted
    bool operator==(const Fate&) const = default;
};

class FateDice {
  public:
    explicit FateDice(const ImpairConfig& config);
    bool fair() const { return !any_; }  // nothing is ever done to a frame
    Fate next(uint32_t frame_bytes);

  private:
    bool hit(uint64_t threshold) { return threshold != 0 && random_() < threshold; }
    std::mt19937_64 random_;
    uint64_t loss_, duplicate_, corrupt_, reorder_;  // probability * 2^64
    bool any_;
};

// Applies fates to bursts. One per worker and port; not used at all for a port whose config asks for none.
class Impairment {
  public:
    static constexpr uint16_t kMaxHeld = 8;  // frames held back at once

    Impairment(const ImpairConfig& config, rte_mempool* pool) : dice_(config), pool_(pool) {}
    // Takes `count` frames from `in` and writes at most 2 * count + kMaxHeld to `out`.
    uint16_t apply(rte_mbuf** in, uint16_t count, rte_mbuf** out);

  private:
    struct Held {
        rte_mbuf* mbuf;
        uint32_t frames_left;
    };
    FateDice dice_;
    rte_mempool* pool_;
    std::array<Held, kMaxHeld> held_{};
    uint16_t held_count_ = 0;
};

}  // namespace rove::datapath
