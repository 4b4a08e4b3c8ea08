// SPDX-License-Identifier: Apache-2.0
// REPS, recycled entropies (Bonato et al., "REPS: Recycled Entropy Packet Spraying", 2024): remembers a few paths that
// were good recently, for the next packets to use (BX-7), and repeatedly while the network has a fault (BX-8). Units
// are nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace rove::transport {

class Entropies {
  public:
    static constexpr uint32_t kEntries = 8;  // REPS section 3.1
    // How long no new path is tried after a fault. The paper leaves this to the network; after this time routes have
    // changed.
    static constexpr uint64_t kFreezeNs = 1'000'000;

    // Records a path whose ACK shows that it is good.
    void recycle(uint16_t vp) {
        vps_[head_] = vp;
        head_ = (head_ + 1) % kEntries;
        fresh_ = std::min(fresh_ + 1, kEntries);
        known_ = std::min(known_ + 1, kEntries);
    }

    // Returns the oldest path that was not used yet. While frozen, and with none left, returns any known path again.
    // Returns false if a new path should be tried.
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

    // Freezes after packets were lost without a sign. Afterwards `explore` packets try new paths. Returns false if it
    // is frozen already, or still exploring after the last time.
    bool freeze(uint64_t now_ns, uint32_t explore) {
        if (frozen_until_ns_ != 0 || explore_ != 0) return false;
        frozen_until_ns_ = now_ns + kFreezeNs;
        explore_after_ = explore;
        return true;
    }
    bool frozen() const { return frozen_until_ns_ != 0; }

  private:
    std::array<uint16_t, kEntries> vps_{};
    uint32_t head_ = 0;   // index of the next entry
    uint32_t fresh_ = 0;  // entries before it that were not used yet
    uint32_t known_ = 0;  // entries before it, used or not
    uint32_t replay_ = 0;
    uint32_t explore_ = 0, explore_after_ = 0;  // packets
    uint64_t frozen_until_ns_ = 0;              // 0: not frozen
};

}  // namespace rove::transport
