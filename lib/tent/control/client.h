// SPDX-License-Identifier: Apache-2.0
// Calls to the control server of one peer. A call has its own connection while it lasts, so that a slow answer delays
// no other call. The connection is kept for a later call.
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

// Sends one question and receives its answer over a connection that has finished the handshake. Returns nothing if no
// valid answer comes in time.
std::optional<Json> exchange(Stream& stream, uint32_t sequence, MessageType type, const Json& body,
                             uint64_t deadline_ns);

class ControlClient {
  public:
    // `credentials` must outlive the client.
    ControlClient(std::string address, const Credentials& credentials)
        : credentials_(credentials), address_(std::move(address)) {}
    ControlClient(const ControlClient&) = delete;
    ControlClient& operator=(const ControlClient&) = delete;

    std::string address() const;
    // Sets the address to which the process has moved. Calls in progress continue.
    void set_address(std::string address);

    // Sends a question and waits for the answer, `timeout_ns` at most. Returns nothing if the peer cannot be reached or
    // gives no valid answer; then `*why` has the reason, unless `why` is null. Any thread may call it.
    std::optional<Json> call(MessageType type, const Json& body, uint64_t timeout_ns, std::string* why = nullptr);
    // Ends the calls that wait for their answers, and refuses later ones: all return nothing. Any thread may call it.
    void hang_up();

  private:
    const Credentials& credentials_;
    mutable std::mutex mutex_;
    std::string address_;  // host:port
    std::vector<Stream> idle_;
    std::vector<int> waiting_;  // sockets of calls in progress
    bool has_hung_up_ = false;
    uint32_t sequence_ = 0;
};

}  // namespace rove::tent
