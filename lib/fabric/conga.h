// SPDX-License-Identifier: Apache-2.0
// CONGA (SIGCOMM'14) at one switch: how full paths are that begin at its uplinks, as the leaves at their other ends
// say. Units: picoseconds, bytes.
//
// DESIGN NOTES
// 1. A leaf is a switch with hosts; its number is its node's. A packet between two leaves has a tag: the uplink by
//    which it left, and the fullest link so far, which each switch on its way raises. The leaf at its end writes that
//    down, by leaf and uplink, and sends one such entry with each packet that goes the other way, those that have
//    changed first.
// 2. Acknowledgements go by ECMP (forwarding.h) and have tags as well: they carry what a flow's sender needs to know.
// 3. More than two tiers work, but then the switches in between choose by ECMP, and an uplink stands for many paths.
#pragma once

#include <vector>

#include "fabric/packet.h"

namespace rove::fabric {

// ConWeave's simulator (SIGCOMM'23) has these. CONGA's paper has a time constant (dre_interval by alpha) of 160 us, a
// gap between flowlets of 500 us, and aging after 10 ms, for TCP at 10 and 40 Gb/s.
struct CongaConfig {
    Time dre_interval = 50 * kMicrosecond;
    double alpha = 0.2;
    uint32_t levels = 8;              // of congestion: 3 bits
    Time aging = 500 * kMicrosecond;  // what was said so long ago no longer holds
};

// The discounting rate estimator: bytes that are added, less a part of them at each interval. At a constant rate there
// are rate times dre_interval by alpha.
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
    // By the rate of the link: 0 is idle.
    uint8_t level(Time now, uint64_t bits_per_s, const CongaConfig& config);

  private:
    void discount(Time now, const CongaConfig& config) {
        const Time interval = now / config.dre_interval;
        if (interval == interval_) return;
        // Of what was there a hundred intervals ago nothing is left.
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

    // By node: the leaf that a host is at. It stays the caller's.
    void set_leaves(const std::vector<uint32_t>& leaf_of) {
        leaf_of_ = &leaf_of;
        to_leaf_.resize(leaf_of.size());
        from_leaf_.resize(leaf_of.size());
    }

    // A packet has come: its tag ends here, if it is at the leaf of its host.
    void take(Packet& packet, Time now);
    // It will leave by packet.egress: one for a host of another leaf gets its tag.
    void give(Packet& packet, Time now);
    // It leaves by a link of that rate.
    void on_transmit(Packet& packet, uint64_t bits_per_s, Time now);

    // How full the way by an uplink to the packet's leaf is: the link here, or what came back of the way.
    uint8_t congestion(const Packet& packet, uint32_t uplink, uint64_t bits_per_s, Time now) {
        return std::max(estimator(uplink).level(now, bits_per_s, config_),
                        remote_congestion((*leaf_of_)[packet.destination], uplink, now));
    }
    // What came back last of the way to a leaf.
    uint8_t remote_congestion(uint32_t leaf, uint32_t uplink, Time now) const {
        const Row& row = to_leaf_[leaf];
        return uplink < row.entries.size() && is_young(row.entries[uplink], now) ? row.entries[uplink].level : 0;
    }

  private:
    struct Entry {
        Time updated = 0;
        bool known = false;
        bool changed = false;  // since it was sent: from_leaf_
        uint8_t level = 0;
    };
    struct Row {
        std::vector<Entry> entries;  // by uplink of the leaf that packets come from
        uint32_t turn = 0;           // which is looked at first when one is sent
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
    std::vector<RateEstimator> estimators_;  // by port
    std::vector<Row> to_leaf_, from_leaf_;   // by leaf
};

}  // namespace rove::fabric
