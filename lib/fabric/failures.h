// SPDX-License-Identifier: Apache-2.0
// Cables that fail and come back, and a network that notices: routes are computed anew some time after each change, and
// the switches empty the queues before dead ports. Until then packets go into nothing (link.h, note 4).
#pragma once

#include <span>

#include "fabric/network.h"

namespace rove::fabric {

// A part of the cables, drawn at random: the nearest whole number of them.
std::vector<Cable> draw(std::span<const Cable> cables, double part, Random& random);

// It must live until the network has run for the last time.
class Failures {
  public:
    // `reaction` is from a change to the new routes: detection, and what a routing protocol takes.
    Failures(Network& network, Time reaction) : network_(network), reaction_(reaction) {}
    Failures(const Failures&) = delete;

    // Now. What is on them is lost.
    void fail(std::span<const Cable> cables) { set(cables, false); }
    void restore(std::span<const Cable> cables) { set(cables, true); }
    // From now on, at every interval: the part that has failed comes back, and another part fails (Eunomia Fig. 19).
    void repeat(std::vector<Cable> cables, double part, Time interval, Random random);

    uint64_t reroutes() const { return reroutes_; }
    bool complete() const { return complete_; }  // the last time, there was a way to everywhere

  private:
    void set(std::span<const Cable> cables, bool up);
    void react();
    void next();

    Network& network_;
    const Time reaction_;
    Time due_ = UINT64_MAX;    // when react() is called next
    std::vector<Cable> down_;  // not yet emptied, or restored since
    uint64_t reroutes_ = 0;
    bool complete_ = true;

    std::vector<Cable> repeated_, failed_;
    double part_ = 0;
    Time interval_ = 0;
    std::optional<Random> random_;
};

}  // namespace rove::fabric
