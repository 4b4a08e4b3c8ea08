// SPDX-License-Identifier: Apache-2.0
// All-reduce by a ring: of n hosts each sends an nth of the data to its successor in each of 2 (n - 1) steps, and
// begins a step when what its predecessor sends in the one before has arrived (WRITEs, the last one with immediate
// data). A connection lasts as long as the ring. It must stay until the network has run for the last time. Units:
// bytes, picoseconds.
#pragma once

#include <deque>
#include <memory>

#include "fabric/network.h"
#include "fabric/workload.h"

namespace rove::fabric {

struct RingConfig {
    uint64_t bytes = 1 << 20;  // of each host, that are reduced
    QpConfig qp;               // but its source port, which is drawn, and its receive queue
};

class Ring {
  public:
    // At least two hosts, in their order around the ring.
    Ring(Network& network, std::vector<Host*> hosts, const RingConfig& config);
    ~Ring();

    void start();
    // A step of a host has ended: `flow` is numbered by the hosts' places in the ring, and starts from the ring's
    // start.
    std::function<void(const FlowRecord&)> on_record;

    uint32_t steps() const { return 2 * (static_cast<uint32_t>(members_.size()) - 1); }
    uint64_t chunk_bytes() const { return chunk_bytes_; }
    size_t records() const { return records_; }                          // of members_ * steps()
    bool done() const { return records_ == members_.size() * steps(); }  // nothing is on its way any more
    bool failed() const { return failed_; }                              // by an error of a QP
    Time took() const { return last_arrival_ - begin_; }                 // until the last chunk has arrived
    // The same in an empty network, without what acknowledgements take of the links. A host begins its last step when
    // the chunk has come the whole way: all around twice, but for two hops. The slowest of these ways counts.
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
