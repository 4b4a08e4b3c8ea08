// SPDX-License-Identifier: Apache-2.0
// The passive ends of our peers' connections. A rail of a peer has one at a time: a newer one replaces it.
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
    static constexpr size_t kMaxRails = 256;  // of an owner

    PassiveConnections(const std::vector<std::unique_ptr<VerbsDevice>>& devices, const EndpointConfig& config)
        : devices_(devices), config_(config) {}

    // The owner has a lease from now on: it may connect.
    void admit(const std::string& owner);
    // Its lease has ended, and with it its connections.
    void forget(const std::string& owner);

    // Answers of the control plane: {"ok": true, "endpoint": ...} or {"ok": false, "error": ...}. Any thread.
    Json connect(const Json& request);
    // When it returns, the connection and those before it of its rail change no memory any more, nor do they come to be
    // later. An owner without a lease has none.
    Json close(const Json& request);

    size_t count() const;

  private:
    struct Entry {
        uint64_t closed = 0;  // all numbers below
        uint64_t number = 0;  // of `connection`
        std::unique_ptr<Connection> connection;
    };
    using Rails = std::map<std::string, Entry>;

    // Null: it has no lease, or too many rails. With mutex_.
    Entry* entry(const ConnectionName& name);

    const std::vector<std::unique_ptr<VerbsDevice>>& devices_;
    const EndpointConfig& config_;
    mutable std::mutex mutex_;
    std::map<std::string, Rails> owners_;
};

}  // namespace rove::tent
