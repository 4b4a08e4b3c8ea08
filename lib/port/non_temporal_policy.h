// SPDX-License-Identifier: Apache-2.0
// Decides when the frames of a ring are written with non-temporal stores.
//
// The lines that the peer has read last are in its core's cache. Each line that we store to must first be fetched from
// there, and the peer then waits for the same transfer in the other direction. Between cores that share no cache (two
// CCDs of an EPYC, two sockets), this is slower than memory, which non-temporal stores reach without waiting for
// another core. Between cores that share a cache, non-temporal stores are slower. Therefore frames of some bursts are
// timed with both kinds of stores. Units: bytes, cycles of the TSC.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace rove::datapath {

class NonTemporalPolicy {
  public:
    // The smallest frame for a non-temporal store. The peer waits for each smaller frame, and the way through the
    // caches is shorter.
    static constexpr uint32_t kLargeBytes = 1024;
    static constexpr uint32_t kTimed = 32;  // period of timed bursts, in bursts
    // Period of bursts that try the other kind of store, because threads may move to other cores.
    static constexpr uint32_t kTrial = 512;
    // The factor by which non-temporal stores must be faster. It makes up for the peer's reads from memory, which this
    // core does not see.
    static constexpr uint64_t kGain = 2;

    // Returns true if frames are now written with non-temporal stores. is_timed() returns true if the caller has to
    // report a frame's cost to cost().
    bool bypasses_cache() const { return goes_past_; }
    bool is_timed() const { return is_timed_; }
    void next_burst() {
        is_timed_ = ++bursts_ % kTimed == 0;
        goes_past_ = (bursts_ % kTrial == 0) != pays_;
    }
    // Records the cost of a frame that was written as bypasses_cache() says. A frame during which the thread was
    // preempted measures nothing, and nothing makes a frame too fast. Therefore the estimate rises in small steps only.
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
    static constexpr uint64_t kCostUnit = 1024;  // bytes to which a cost in cycles refers

    std::array<uint64_t, 2> costs_{};  // through the caches, and past them; 0 while unknown
    uint32_t bursts_ = 0;
    bool pays_ = false;
    bool goes_past_ = false, is_timed_ = false;
};

}  // namespace rove::datapath
