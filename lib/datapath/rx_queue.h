// SPDX-License-Identifier: Apache-2.0
// An RX queue of a port, as a worker reads it: in bursts, and of a memif the lines of the next frames are under way
// before the driver reads them. Units: frames.
#pragma once

#include <algorithm>
#include <cstdint>

#include "datapath/memif_ring.h"

namespace rove::datapath {

class RxQueue {
  public:
    // Frames that a burst has at most. 8 or 16 were slower; 64 gave rc's 8 B SENDs 8 %, but took 5 % of mp's 8 B WRITEs
    // and 10 % of large ones over many QPs.
    static constexpr uint16_t kBurst = 32;

    RxQueue(uint16_t port, uint16_t queue) : port_(port), queue_(queue), ring_(port, queue, MemifRing::Use::kReceive) {}

    // Whether there is something to take, as far as can be seen. What comes first is asked for.
    bool look() {
        const bool found = ring_.find();
        waiting_ = found ? ring_.filled() : uint16_t{0};
        after_idle_ = waiting_ != 0 && fetched_ == 0;
        if (after_idle_)
            for (; fetched_ < std::min(waiting_, kFirst); ++fetched_) ring_.fetch(fetched_);
        return waiting_ != 0 || !found || ring_.lacks_buffers();
    }
    // After look(): frames came after a time without.
    bool after_idle() const { return after_idle_; }
    // rte_eth_rx_burst().
    uint16_t burst(rte_mbuf** mbufs) {
        const uint16_t count = rte_eth_rx_burst(port_, queue_, mbufs, kBurst);
        waiting_ = static_cast<uint16_t>(std::min(waiting_ - std::min(count, waiting_), int{kBurst}));
        fetched_ = 0;
        read_ = std::min<uint16_t>(static_cast<uint16_t>(read_ + count), kHandedBack);
        return count;
    }
    // In a round that had nothing to do, and in which the port is ready: of a memif, hands back what was emptied last,
    // for the peer to write to. Half round trip of 8 B WRITEs 510 -> 470 ns; with more than a few frames, programs that
    // post one by one were slower.
    void idle() {
        if (read_ == 0) return;
        if (ring_.find()) ring_.hand_over(read_);
        read_ = 0;
    }
    // For each frame of a burst, while it is worked on, in the round of its look(): asks for a frame of the next.
    void fetch_next() {
        if (fetched_ < waiting_) ring_.fetch(fetched_++);
    }

  private:
    static constexpr uint16_t kHandedBack = 2;  // at most
    static constexpr uint16_t kFirst =
        4;  // of a burst that nobody waited for: the core has room for few lines at a time

    uint16_t port_, queue_;
    MemifRing ring_;
    uint16_t waiting_ = 0, fetched_ = 0;  // of the next burst: known to be there, and of these asked for
    uint16_t read_ = 0;                   // since the last idle()
    bool after_idle_ = false;
};

}  // namespace rove::datapath
