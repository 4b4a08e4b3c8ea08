// SPDX-License-Identifier: Apache-2.0
// All-reduce over a ring of n hosts. Each host sends an nth of the data to its successor in each of 2 (n - 1) steps,
// and begins a step when its predecessor's data of the previous step has arrived (WRITEs, the last one with immediate
// data). A connection lasts as long as the ring. The ring must outlive the last run of the network. Units: bytes,
// picoseconds.
#pragma once

#include <deque>
#include <memory>

#include "fabric/network.h"
#include "fabric/workload.h"

namespace rove::fabric {

struct RingConfig {
    uint64_t bytes = 1 << 20;  // the data of each host
    QpConfig qp;               // the source port is drawn, and the receive queue is set
};

class Ring {
  public:
    // Takes at least two hosts, in their order around the ring.
    Ring(Network& network, std::vector<Host*> hosts, const RingConfig& config);
    ~Ring();

    void start();
    // Called when a step of a host has ended. `flow` has the hosts' places in the ring, and its start counts from the
    // ring's start.
    std::function<void(const FlowRecord&)> on_record;

    uint32_t steps() const { return 2 * (static_cast<uint32_t>(members_.size()) - 1); }
    uint64_t chunk_bytes() const { return chunk_bytes_; }
    size_t records() const { return records_; }                          // at most members_ * steps()
    bool done() const { return records_ == members_.size() * steps(); }  // nothing is in flight any more
    bool failed() const { return failed_; }                              // an error of a QP ended it
    Time took() const { return last_arrival_ - begin_; }                 // until the last chunk has arrived
    // Returns the time in an empty network, without the share that acknowledgements take of the links. A host begins
    // its last step when the chunk has come the whole way, which is twice around less two hops. The slowest of these
    // ways counts.
    Time ideal() const;

  private:
    struct Member;

    Network& network_;
    RingConfig config_;
    uint64_t chunk_bytes_;
    std::vector<std::unique_ptr<Member>> members_;
    size_t records_ = 0;
    bool failed_ = false;
    Time begin_ = 0, last_arrival_ = 0;
};

}  // namespace rove::fabric
