// SPDX-License-Identifier: Apache-2.0
// CONGA (SIGCOMM'14) at one switch: the congestion of the paths that begin at its uplinks, as reported by the leaves at
// their ends. Units: picoseconds, bytes.
//
// DESIGN NOTES
// 1. A leaf is a switch with hosts, and its number is its node's. A packet between two leaves has a tag with the uplink
//    by which it left and the congestion of the fullest link up to there, which each switch raises. The leaf at
//    the end records that by leaf and uplink, and returns one record with each packet in the other direction, changed
//    ones first.
// 2. Acknowledgements use ECMP (forwarding.h) and have tags as well: they carry the feedback that a flow's sender
//    needs.
// 3. More than two tiers work, but the switches in between choose by ECMP, so an uplink then represents many paths.
#pragma once

#include <vector>

#include "fabric/packet.h"

namespace rove::fabric {

// The defaults are ConWeave's simulator's (SIGCOMM'23). CONGA's paper has a time constant (dre_interval by alpha) of
// 160 us, a flowlet gap of 500 us, and aging after 10 ms, for TCP at 10 and 40 Gb/s.
struct CongaConfig {
    Time dre_interval = 50 * kMicrosecond;
    double alpha = 0.2;
    uint32_t levels = 8;              // levels of congestion: 3 bits
    Time aging = 500 * kMicrosecond;  // older feedback is ignored
};

// The discounting rate estimator: bytes are added, and a part of them is removed in each interval. At a constant rate
// it holds rate times dre_interval by alpha.
class RateEstimator {
  public:
    void add(uint32_t bytes, Time now, const CongaConfig& config) {
        discount(now, config);
        bytes_ += bytes;
    }
    double bytes(Time now, const CongaConfig& config) {
        discount(now, config);
        return bytes_;
    }
    // Returns the level relative to the link's rate; 0 is idle.
    uint8_t level(Time now, uint64_t bits_per_s, const CongaConfig& config);

  private:
    void discount(Time now, const CongaConfig& config) {
        const Time interval = now / config.dre_interval;
        if (interval == interval_) return;
        // After a hundred intervals nothing is left.
        Time passed = interval - interval_;
        if (passed > 100) bytes_ = 0;
        for (; passed != 0 && bytes_ != 0; --passed) bytes_ *= 1 - config.alpha;
        interval_ = interval;
    }

    double bytes_ = 0;
    Time interval_ = 0;
};

class Conga {
  public:
    Conga(uint32_t self, const CongaConfig& config) : self_(self), config_(config) {}

    // Sets the leaf of each host, by node number. The caller keeps the vector alive.
    void set_leaves(const std::vector<uint32_t>& leaf_of) {
        leaf_of_ = &leaf_of;
        to_leaf_.resize(leaf_of.size());
        from_leaf_.resize(leaf_of.size());
    }

    // Handles a packet that has arrived. Its tag ends here if this is the leaf of its host.
    void take(Packet& packet, Time now);
    // Gives the packet, which will leave by packet.egress, a tag if it goes to a host of another leaf.
    void give(Packet& packet, Time now);
    // Counts a packet that leaves by a link of that rate.
    void on_transmit(Packet& packet, uint64_t bits_per_s, Time now);

    // Returns the congestion of the path by an uplink to the packet's leaf: the maximum of the local link's and of the
    // last feedback.
    uint8_t congestion(const Packet& packet, uint32_t uplink, uint64_t bits_per_s, Time now) {
        return std::max(estimator(uplink).level(now, bits_per_s, config_),
                        remote_congestion((*leaf_of_)[packet.destination], uplink, now));
    }
    // Returns the last feedback about the path to a leaf, or 0.
    uint8_t remote_congestion(uint32_t leaf, uint32_t uplink, Time now) const {
        const Row& row = to_leaf_[leaf];
        return uplink < row.entries.size() && is_young(row.entries[uplink], now) ? row.entries[uplink].level : 0;
    }

  private:
    struct Entry {
        Time updated = 0;
        bool known = false;
        bool changed = false;  // in from_leaf_: since it was last sent
        uint8_t level = 0;
    };
    struct Row {
        std::vector<Entry> entries;  // indexed by the uplink at the leaf that packets come from
        uint32_t turn = 0;           // the entry that is tried first when one is sent
    };

    bool is_young(const Entry& entry, Time now) const { return entry.known && now - entry.updated <= config_.aging; }
    static void set(Row& row, uint32_t uplink, uint8_t level, Time now);
    RateEstimator& estimator(uint32_t port) {
        if (estimators_.size() <= port) estimators_.resize(port + 1);
        return estimators_[port];
    }

    const uint32_t self_;
    const CongaConfig config_;
    const std::vector<uint32_t>* leaf_of_ = nullptr;
    std::vector<RateEstimator> estimators_;  // indexed by port
    std::vector<Row> to_leaf_, from_leaf_;   // indexed by leaf
};

}  // namespace rove::fabric
