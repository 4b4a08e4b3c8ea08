// SPDX-License-Identifier: Apache-2.0
// The passive ends of the peers' connections. A rail of a peer has one at a time: a newer one replaces it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tent/control/connection_name.h"
#include "tent/control/frame.h"
#include "tent/transports/rdma/connection.h"

namespace rove::tent {

class PassiveConnections {
  public:
    static constexpr size_t kMaxRails = 256;  // for each owner

    PassiveConnections(const std::vector<std::unique_ptr<VerbsDevice>>& devices, const EndpointConfig& config)
        : devices_(devices), config_(config) {}

    // The owner has a lease from now on and may connect.
    void admit(const std::string& owner);
    // The owner's lease has ended: closes its connections.
    void forget(const std::string& owner);

    // Answers a message of the control plane with {"ok": true, "endpoint": ...} or {"ok": false, "error": ...}. Any
    // thread may call it.
    Json connect(const Json& request);
    // When it returns, the connection and the earlier ones of its rail change no memory any more, and none of them can
    // be made later. An owner without a lease has no connections.
    Json close(const Json& request);

    size_t count() const;

  private:
    struct Entry {
        uint64_t closed = 0;  // all numbers below it are closed
        uint64_t number = 0;  // number of `connection`
        std::unique_ptr<Connection> connection;
    };
    using Rails = std::map<std::string, Entry>;

    // Returns null if the owner has no lease or has too many rails. Needs mutex_.
    Entry* entry(const ConnectionName& name);

    const std::vector<std::unique_ptr<VerbsDevice>>& devices_;
    const EndpointConfig& config_;
    mutable std::mutex mutex_;
    std::map<std::string, Rails> owners_;
};

}  // namespace rove::tent
