// SPDX-License-Identifier: Apache-2.0
// The QPs of a rail, which joins a local device and a device of a peer. There is one for each priority, so that neither
// the datapath's rings (service levels) nor the order within a QP makes HIGH wait for LOW. Each priority has num_lanes
// of them: QPs are assigned to workers in turn, so with as many lanes as a port has workers a single rail keeps all of
// them busy.
//
// A connection has an active end, whose QPs READ and WRITE, and a passive end, whose QPs only respond. If anything goes
// wrong on a rail, its connection is closed and never used again. The next one has new QPs.
//
// At most once. A WRITE of unknown fate is tried again elsewhere at once. But packets of its first attempt may still be
// in the network and land later, over data that the program has put there meanwhile. So a request with such a WRITE is
// reported complete only after the peer has confirmed over TCP that it destroyed the passive QPs: from then on that
// connection cannot change its memory. (A late response to a READ would change local memory, but the local QP is
// destroyed before the READ is tried again.) If the peer does not confirm in time, the request is reported FAILED,
// whatever the result of its slices.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tent/config/config.h"
#include "tent/engine/segment.h"
#include "tent/transports/rdma/verbs_device.h"

namespace rove::tent {

// The data about this end's QPs that the other end needs.
struct Endpoint {
    std::array<uint8_t, 16> gid{};
    uint32_t mtu = 1024;
    std::vector<uint32_t> qpns, psns;  // lane 0 by priority, then lane 1 ...
    uint64_t probe_address = 0;        // address of a word that may be read
    uint32_t probe_rkey = 0;
};
Json to_json(const Endpoint& endpoint);
std::optional<Endpoint> parse_endpoint(const Json& object);

class Connection {
  public:
    // Creates the QPs, whose completions go to the queue of `shard`. Returns null if the device has no room for them.
    static std::unique_ptr<Connection> create(const VerbsDevice& device, const EndpointConfig& config, uint32_t lanes,
                                              size_t shard = 0);
    ~Connection() { destroy(); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    Endpoint local() const;
    // Connects the QPs. May take seconds if the other end cannot be reached. Returns 0 or the error of ibv_modify_qp.
    int connect(const Endpoint& remote, bool active);
    // When this returns, nothing is sent, received or reported for these QPs any more.
    void destroy();

    // Returns the priority's QP in the next lane.
    ibv_qp* qp(Priority priority) {
        if ((turn_ += kPriorities) >= qps_.size()) turn_ = 0;
        return qps_[turn_ + index(priority)];
    }
    const Endpoint& remote() const { return remote_; }

  private:
    Connection(const VerbsDevice& device, const EndpointConfig& config) : device_(device), config_(config) {}
    int to_rtr(size_t which);
    int to_rts(size_t which);

    const VerbsDevice& device_;
    const EndpointConfig& config_;
    std::vector<ibv_qp*> qps_;  // in the order of Endpoint::qpns
    std::vector<uint32_t> psns_;
    size_t turn_ = 0;  // first QP of the lane used last
    Endpoint remote_;
};

}  // namespace rove::tent
