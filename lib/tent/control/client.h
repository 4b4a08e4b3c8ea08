// SPDX-License-Identifier: Apache-2.0
// Calls to one peer's control server. Each call has a connection to itself while it lasts, so that a slow answer delays
// no other call; connections are kept for the next one.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tent/control/credentials.h"
#include "tent/control/frame.h"
#include "tent/control/stream.h"

namespace rove::tent {

// One question and its answer over a connection that has proved itself. Nothing: it did not answer as it must.
std::optional<Json> exchange(Stream& stream, uint32_t sequence, MessageType type, const Json& body,
                             uint64_t deadline_ns);

class ControlClient {
  public:
    // `credentials` are there as long as this.
    ControlClient(std::string address, const Credentials& credentials)
        : credentials_(credentials), address_(std::move(address)) {}
    ControlClient(const ControlClient&) = delete;
    ControlClient& operator=(const ControlClient&) = delete;

    std::string address() const;
    // The process is elsewhere now. Calls under way go on.
    void set_address(std::string address);

    // Sends and waits for the answer, at most `timeout_ns`. Nothing: the peer cannot be reached, or did not answer as
    // it must; `*why` says why, if it is not null. Any thread.
    std::optional<Json> call(MessageType type, const Json& body, uint64_t timeout_ns, std::string* why = nullptr);
    // Calls that wait for their answers get none, nor do later ones. Any thread.
    void hang_up();

  private:
    const Credentials& credentials_;
    mutable std::mutex mutex_;
    std::string address_;  // host:port
    std::vector<Stream> idle_;
    std::vector<int> waiting_;  // sockets of calls
    bool has_hung_up_ = false;
    uint32_t sequence_ = 0;
};

}  // namespace rove::tent
