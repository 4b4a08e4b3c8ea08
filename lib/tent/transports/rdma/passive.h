// SPDX-License-Identifier: Apache-2.0
// The passive ends of our peers' connections. A rail of a peer has one at a time: a newer one replaces it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "tent/control/frame.h"
#include "tent/transports/rdma/connection.h"

namespace rove::tent {

// A connection as both ends name it: the active process, its rail, and how many connections the rail had before.
struct ConnectionName {
    uint64_t instance = 0;
    std::string rail;
    uint64_t number = 0;

    Json to_json() const;
    bool parse(const Json& object);
};

class PassiveConnections {
  public:
    PassiveConnections(const std::vector<std::unique_ptr<VerbsDevice>>& devices, const EndpointConfig& config)
        : devices_(devices), config_(config) {}

    // Answers of the control plane: {"ok": true, "endpoint": ...} or {"ok": false, "error": ...}. Any thread.
    Json connect(const Json& request);
    // When it returns, the connection and those before it of its rail change no memory any more, nor do they come to be
    // later.
    Json close(const Json& request);
    // The process has gone.
    void forget(uint64_t instance);

    size_t count() const;

  private:
    struct Entry {
        uint64_t closed = 0;  // all numbers below
        uint64_t number = 0;  // of `connection`
        std::unique_ptr<Connection> connection;
    };
    static constexpr size_t kMaxRails = 4096;  // of all peers together

    const std::vector<std::unique_ptr<VerbsDevice>>& devices_;
    const EndpointConfig& config_;
    mutable std::mutex mutex_;
    std::map<std::pair<uint64_t, std::string>, Entry> entries_;
};

}  // namespace rove::tent
