// SPDX-License-Identifier: Apache-2.0
// REPS, recycled entropies (Bonato et al., "REPS: Recycled Entropy Packet Spraying", 2024): a few paths that were good
// of late, for the next packets to take (BX-7), and again and again while the network has a fault (BX-8).
// Units: nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace rove::transport {

class Entropies {
  public:
    static constexpr uint32_t kEntries = 8;  // REPS section 3.1
    // How long nothing new is tried after a fault. The paper leaves it to the network: by then routes have changed.
    static constexpr uint64_t kFreezeNs = 1'000'000;

    // An ACK came from there, and says that the path is good.
    void recycle(uint16_t vp) {
        vps_[head_] = vp;
        head_ = (head_ + 1) % kEntries;
        fresh_ = std::min(fresh_ + 1, kEntries);
        known_ = std::min(known_ + 1, kEntries);
    }

    // The oldest that was not taken yet; while frozen, when there is none, any that is known. False: a new path is to
    // be tried.
    bool take(uint64_t now_ns, uint16_t& vp) {
        if (frozen_until_ns_ != 0 && now_ns >= frozen_until_ns_) {
            frozen_until_ns_ = 0;
            explore_ = explore_after_;
        }
        if (explore_ != 0) {
            --explore_;
            return false;
        }
        if (fresh_ != 0) {
            vp = vps_[(head_ + kEntries - fresh_) % kEntries];
            --fresh_;
            return true;
        }
        if (frozen_until_ns_ == 0 || known_ == 0) return false;
        replay_ = (replay_ + 1) % known_;
        vp = vps_[(head_ + kEntries - 1 - replay_) % kEntries];
        return true;
    }

    // Packets were lost without a word. Afterwards `explore` packets try new paths. False: frozen already, or still
    // exploring after the last time.
    bool freeze(uint64_t now_ns, uint32_t explore) {
        if (frozen_until_ns_ != 0 || explore_ != 0) return false;
        frozen_until_ns_ = now_ns + kFreezeNs;
        explore_after_ = explore;
        return true;
    }
    bool frozen() const { return frozen_until_ns_ != 0; }

  private:
    std::array<uint16_t, kEntries> vps_{};
    uint32_t head_ = 0;   // where the next one goes
    uint32_t fresh_ = 0;  // of those behind it, not taken yet
    uint32_t known_ = 0;  // ... taken or not
    uint32_t replay_ = 0;
    uint32_t explore_ = 0, explore_after_ = 0;  // packets
    uint64_t frozen_until_ns_ = 0;              // 0: not frozen
};

}  // namespace rove::transport
