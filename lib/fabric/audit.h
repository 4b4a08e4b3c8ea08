// SPDX-License-Identifier: Apache-2.0
// What must hold of every network at every moment between two events, and what of its ports a report tells.
#pragma once

#include "fabric/network.h"

namespace rove::fabric {

// Conservation: of each link, what was queued was sent, emptied out, or waits; what was sent was delivered, lost, cut,
// or is on its way. Of each switch, what came in went out, was dropped, or waits. Of the network, each packet that was
// taken from the pool is in a queue or on a wire. Throws std::logic_error with the numbers of the first that fails.
void check_conservation(Network& network);

// How long PFC has stopped the ports of hosts and of switches, the mean of each, until now; readers take differences.
struct Pauses {
    double host_time = 0, switch_time = 0;  // picoseconds
};
Pauses pauses(const Network& network);

// Links on which nothing has moved for `least`, for PFC has held back what waits there. Where that is more than any
// queue takes to be emptied, they wait for each other: a deadlock.
uint32_t paused_links(const Network& network, Time least);

// The length of queues at equal intervals, all of them together.
class QueueSamples {
  public:
    // From now on. It must live until the network has run for the last time.
    QueueSamples(Network& network, std::vector<const Link*> links, Time interval);
    QueueSamples(const QueueSamples&) = delete;

    size_t count() const { return bytes_.size(); }
    double mean_bytes() const;
    uint64_t percentile_bytes(double percent) const;  // the nearest rank; 0 when nothing was sampled

  private:
    void take();

    Network& network_;
    const std::vector<const Link*> links_;
    const Time interval_;
    std::vector<uint64_t> bytes_;
};

}  // namespace rove::fabric
