// SPDX-License-Identifier: Apache-2.0
// Invariants of every network between two events, and statistics of its ports for reports.
#pragma once

#include "fabric/network.h"

namespace rove::fabric {

// Checks the conservation of packets. For each link, every queued packet was sent, drained, evicted or waits; every
// sent packet was delivered, lost, cut or is on the wire. For each switch, every packet that came in went out, was
// dropped or waits. For the network, every packet of the pool that is in use is in a queue or on a wire. Throws
// std::logic_error with the first numbers that differ.
void check_conservation(Network& network);

// The mean time for which PFC has stopped the ports of hosts and of switches until now. Readers take differences.
struct Pauses {
    double host_time = 0, switch_time = 0;  // picoseconds
};
Pauses pauses(const Network& network);

// Returns the number of links on which PFC has held back all packets for at least `least`. If that is longer than any
// queue takes to drain, these links wait for each other: a deadlock.
uint32_t paused_links(const Network& network, Time least);

// Samples of the length of several queues at equal intervals.
class QueueSamples {
  public:
    // Samples from now on. The object must outlive the last run of the network.
    QueueSamples(Network& network, std::vector<const Link*> links, Time interval);
    QueueSamples(const QueueSamples&) = delete;

    size_t count() const { return bytes_.size(); }
    double mean_bytes() const;
    uint64_t percentile_bytes(double percent) const;  // the nearest rank; 0 without samples

  private:
    void take();

    Network& network_;
    const std::vector<const Link*> links_;
    const Time interval_;
    std::vector<uint64_t> bytes_;
};

}  // namespace rove::fabric
