// SPDX-License-Identifier: Apache-2.0
// A TX queue of a port, as a worker fills it: in bursts, and to a memif whose peer is far past this core's caches.
//
// What the peer has read last, its core has: each line that the driver's copy stores to must be had back first, and the
// peer then waits for the same way again. Between cores that share no cache (two CCDs of an EPYC, two sockets) that is
// slower than memory, to which stores past the caches go without asking anybody: 1 MiB SENDs at MTU 4096 between two
// Zen 5 cores, for whose lines a round trip takes 600 ns, 31 -> 77 Gb/s. At 150 ns a fifth is lost. So both ways are
// timed. Units: frames, bytes.
#pragma once

#include <rte_cycles.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "datapath/memif_ring.h"

namespace rove::datapath {

// Whether stores past the caches pay, by what a burst cost this core lately either way. The way that is not in use is
// tried now and then: a hypervisor may move cores.
class PastCaches {
  public:
    static constexpr uint32_t kTrial = 512;  // one burst in so many goes the other way
    // What must be saved: the peer has to read from memory, which this core does not see. Cycles a KiB, of 4 KiB
    // frames: 390 through the caches at 600 ns, 32 past them; of 1 KiB frames, 350 and 60.
    static constexpr uint64_t kGain = 3;

    // How the next burst goes.
    bool next() { return (++bursts_ % kTrial == 0) != pays_; }
    // What it cost. One that was preempted tells nothing, and nothing makes one too quick: so upwards in small steps.
    void cost(bool past_caches, uint64_t cost) {
        uint64_t& known = costs_[past_caches];
        if (known == 0)
            known = cost;
        else
            known = cost < known ? (cost + known) / 2 : known + std::min(cost - known, known / 8 + 1);
        pays_ = costs_[true] != 0 && costs_[true] * kGain < costs_[false];
    }
    // How all go but trials.
    bool pays() const { return pays_; }

  private:
    std::array<uint64_t, 2> costs_{};  // 0: not known yet
    uint32_t bursts_ = 0;
    bool pays_ = false;
};

class TxQueue {
  public:
    TxQueue() = default;
    TxQueue(uint16_t port, uint16_t queue)
        : port_(port), queue_(queue), ring_(port, queue, MemifRing::Use::kTransmit) {}

    // rte_eth_tx_burst() of frames that have `bytes` together. The port is ready.
    uint16_t burst(rte_mbuf** frames, uint16_t count, uint32_t bytes) {
        if (!large(bytes, count) || !ring_.find()) return rte_eth_tx_burst(port_, queue_, frames, count);
        const bool past_caches = past_caches_.next();
        const uint64_t start = rte_rdtsc();
        uint16_t sent = past_caches ? ring_.send_past_caches(frames, count) : uint16_t{0};
        const bool one_way = !past_caches || sent == count;
        // Also if nothing is left: it wakes a peer that sleeps.
        sent = static_cast<uint16_t>(sent + rte_eth_tx_burst(port_, queue_, frames + sent, count - sent));
        if (one_way && sent == count) past_caches_.cost(past_caches, (rte_rdtsc() - start) * kCostUnit / bytes);
        return sent;
    }
    // Asks for the slot that is `ahead` of the next, if it will be stored to through the caches.
    void fetch(uint16_t ahead, uint32_t bytes) {
        ring_.fetch_to_write(ahead, large(bytes, 1) && past_caches_.pays() ? 0 : bytes);
    }
    MemifRing& ring() { return ring_; }

  private:
    // Of smaller frames a peer waits for each, and the way through the caches is the shorter one.
    static constexpr uint32_t kLargeBytes = 1024;
    static constexpr uint64_t kCostUnit = 1024;  // costs are in cycles for so many bytes

    static bool large(uint32_t bytes, uint16_t count) { return bytes >= count * kLargeBytes; }

    uint16_t port_ = 0, queue_ = 0;
    MemifRing ring_;
    PastCaches past_caches_;
};

}  // namespace rove::datapath
