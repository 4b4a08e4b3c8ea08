// SPDX-License-Identifier: Apache-2.0
// When a ring's frames are stored past the caches.
//
// What the peer has read last, its core has: each line that we store to must be had back first, and the peer then waits
// for the same way again. Between cores that share no cache (two CCDs of an EPYC, two sockets) that is slower than
// memory, to which stores past the caches go without asking anybody. Between cores that share one, they lose. So frames
// of some bursts are timed, of both ways. Units: bytes, cycles of the TSC.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace rove::datapath {

class NonTemporalPolicy {
  public:
    // Of smaller frames a peer waits for each, and the way through the caches is the shorter one.
    static constexpr uint32_t kLargeBytes = 1024;
    static constexpr uint32_t kTimed = 32;   // one burst in so many is timed
    static constexpr uint32_t kTrial = 512;  // one burst in so many goes the way that is not in use: cores may move
    // What must be saved: the peer has to read from memory, which this core does not see.
    static constexpr uint64_t kGain = 2;

    // How frames go now, and whether cost() is to be told.
    bool bypasses_cache() const { return goes_past_; }
    bool is_timed() const { return is_timed_; }
    void next_burst() {
        is_timed_ = ++bursts_ % kTimed == 0;
        goes_past_ = (bursts_ % kTrial == 0) != pays_;
    }
    // What a frame cost that went this way. One during which we were preempted tells nothing, and nothing makes one too
    // quick: so upwards in small steps.
    void cost(uint64_t cycles, uint32_t frame_bytes) {
        const uint64_t cost = cycles * kCostUnit / frame_bytes;
        uint64_t& known = costs_[goes_past_];
        if (known == 0)
            known = cost;
        else
            known = cost < known ? (cost + known) / 2 : known + std::min(cost - known, known / 8 + 1);
        pays_ = costs_[true] != 0 && costs_[true] * kGain < costs_[false];
    }

  private:
    static constexpr uint64_t kCostUnit = 1024;  // costs are in cycles for so many bytes

    std::array<uint64_t, 2> costs_{};  // through the caches, past them; 0: not known yet
    uint32_t bursts_ = 0;
    bool pays_ = false;
    bool goes_past_ = false, is_timed_ = false;
};

}  // namespace rove::datapath
