// SPDX-License-Identifier: Apache-2.0
// How many bytes may be posted on a rail: as many as come back within kTargetNs. More would wait in queues on the way,
// where HIGH cannot overtake LOW, where what was learned of the rail comes late, and where it is lost if the rail dies.
// The rule is that of delay-based congestion control (Swift, SIGCOMM'20): up by one slice a round trip while
// completions are in time, down in proportion when they are late, once a round trip. While higher priorities are in
// use, for whichever peer, lower ones may be under way for kSharedTargetNs only: that is what HIGH waits for. Units:
// bytes, nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rove::tent {

class Window {
  public:
    static constexpr uint64_t kTargetNs = 2'000'000;  // several times a round trip between processes that share cores
    static constexpr uint64_t kSharedTargetNs = 1'000'000;
    static constexpr uint64_t kFirst = 1 << 20, kLeast = 192 << 10, kMost = 8 << 20;

    uint64_t bytes() const { return bytes_; }

    // A slice came back. `posted`: what was under way with it, itself included.
    void completed(uint64_t length, uint64_t posted, uint64_t post_ns, uint64_t now_ns,
                   uint64_t target_ns = kTargetNs) {
        const uint64_t took_ns = now_ns - post_ns;
        if (took_ns <= target_ns) {
            if (posted * 2 >= bytes_) bytes_ = std::min(kMost, bytes_ + length * length / bytes_ + 1);
        } else if (post_ns >= cut_ns_) {  // posted after the last cut: it saw its effect
            const uint64_t cut = bytes_ / 2 * (took_ns - target_ns) / took_ns;
            bytes_ = std::max(kLeast, bytes_ - cut);
            cut_ns_ = now_ns;
        }
    }

  private:
    uint64_t bytes_ = kFirst;
    uint64_t cut_ns_ = 0;
};

}  // namespace rove::tent
