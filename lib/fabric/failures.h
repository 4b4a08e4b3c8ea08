// SPDX-License-Identifier: Apache-2.0
// Cables that fail and recover, and a network that reacts: some time after each change, routes are computed again and
// switches empty the queues in front of dead ports. Until then packets are sent into dead links (link.h, note 4).
#pragma once

#include <span>

#include "fabric/network.h"

namespace rove::fabric {

// Returns a random part of the cables, rounded to the nearest whole number of them.
std::vector<Cable> draw(std::span<const Cable> cables, double part, Random& random);

// An object must outlive the last run of the network.
class Failures {
  public:
    // `reaction` is the time from a change to the new routes: detection and the routing protocol.
    Failures(Network& network, Time reaction) : network_(network), reaction_(reaction) {}
    Failures(const Failures&) = delete;

    // Fail or restore cables now. Packets on a failed cable are lost.
    void fail(std::span<const Cable> cables) { set(cables, false); }
    void restore(std::span<const Cable> cables) { set(cables, true); }
    // From now on and at every interval, restores the cables that failed and lets another part fail (Eunomia Fig. 19).
    void repeat(std::vector<Cable> cables, double part, Time interval, Random random);

    uint64_t reroutes() const { return reroutes_; }
    bool complete() const {
        return complete_;
    }  // after the last reaction every switch had a route to every destination

  private:
    void set(std::span<const Cable> cables, bool up);
    void react();
    void next();

    Network& network_;
    const Time reaction_;
    Time due_ = UINT64_MAX;    // time of the next call of react()
    std::vector<Cable> down_;  // failed since the last reaction
    uint64_t reroutes_ = 0;
    bool complete_ = true;

    std::vector<Cable> repeated_, failed_;
    double part_ = 0;
    Time interval_ = 0;
    std::optional<Random> random_;
};

}  // namespace rove::fabric
