// SPDX-License-Identifier: Apache-2.0
// The control plane's server: one thread that blocks in epoll. Answers that may take long are made by a job. It also
// watches the connections that we keep to our peers, to learn at once that one of them is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tent/control/frame.h"
#include "tent/control/jobs.h"

namespace rove::tent {

class ControlServer {
  public:
    // The answer to a message. Called on the server's thread, for kConnect on a job's.
    using Handler = std::function<Json(MessageType, const Json&)>;

    // `ended`: the connection on which a kLease had come is closed; with that message, on the server's thread.
    ControlServer(Jobs& jobs, Handler handler, std::function<void(const Json&)> ended)
        : jobs_(jobs), handler_(std::move(handler)), ended_(std::move(ended)) {}
    ~ControlServer() { stop(); }

    // Listens on `host` (an address of ours; empty: all of them), port 0: one of 15000..16999 that is free.
    // Returns "" or what went wrong.
    std::string start(const std::string& host, uint16_t port);
    void stop();

    uint16_t port() const { return port_; }

    // Calls `lost` once, on the server's thread, when the other side of the socket closes it. Takes the socket.
    void watch(int fd, std::function<void()> lost);

  private:
    struct Connection {
        int fd = -1;
        uint64_t id = 0;
        std::string in, out;
        bool answering = false;      // by a job: no further message is read meanwhile
        std::function<void()> lost;  // of a connection that we only watch, or that is a lease
    };

    void run();
    void accept_all();
    void readable(Connection& connection);
    // False: the connection is to be closed.
    bool take_frames(Connection& connection);
    bool flush(Connection& connection);
    void handle(Connection& connection, const FrameHeader& header, const Json& body);
    void wake();
    void take_posted();
    void drop(uint64_t id);

    Jobs& jobs_;
    const Handler handler_;
    const std::function<void(const Json&)> ended_;
    int listener_ = -1, epoll_ = -1, event_ = -1;
    uint16_t port_ = 0;
    std::thread thread_;
    std::atomic<bool> stopped_{false};

    // Of the thread.
    std::map<uint64_t, std::unique_ptr<Connection>> connections_;  // by id
    uint64_t next_id_ = 2;                                         // 0 and 1: the listener's and the event's

    std::mutex mutex_;  // of what others post
    std::vector<std::pair<uint64_t, std::string>> replies_;
    std::vector<std::unique_ptr<Connection>> watched_;
};

// The first IPv4 address of this host that is not the loopback's, else 127.0.0.1.
std::string own_address();

}  // namespace rove::tent
