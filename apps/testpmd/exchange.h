// SPDX-License-Identifier: Apache-2.0
// The TCP connection by which two rove-testpmd exchange what their QPs must know of each other, and its messages.
// Who connects is not trusted: whatever comes is checked before it is used, and nobody is waited for long.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "options.h"

namespace rove::testpmd {

// Something in the environment, or the peer, does not do its part: a run ends, and the program can go on.
struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A port of an end, and a QP.
struct RailAddress {
    ibv_gid gid{};
    uint32_t rkey = 0;
    uint64_t address = 0;
};
struct QpAddress {
    uint32_t qpn = 0, psn = 0;
};

// The initiator's first message; and the target's, which says what is wrong with it instead if it does not agree.
struct Introduction {
    Plan plan;
    std::vector<RailAddress> rails;
    std::vector<QpAddress> qps;
    // Of spray, instead of both: the memory that the target registered with its engine, and under which name.
    std::string segment;
    uint64_t address = 0;
};

// At the end of a run: what was done, and the target's answer.
struct Account {
    uint64_t messages = 0, errors = 0;
};

// A connected socket; all waits end after some seconds with a Failure.
class Connection {
  public:
    explicit Connection(int fd);
    Connection(Connection&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Connection(const Connection&) = delete;
    ~Connection();
    static Connection to(const std::string& host, uint16_t port);

    int fd() const { return fd_; }
    // Of this end, as the peer sees it; empty unless it is IPv4.
    std::string own_address() const;
    // Whether a message, or the end, is there to be received, or comes within `wait_ms`.
    bool readable(int wait_ms = 0) const;

    void send(const Introduction& mine);
    void send_refusal(const std::string& why);
    Introduction receive_introduction();  // a refusal of the peer's is a Failure
    void send(const Account& account);
    Account receive_account();

  private:
    void write(const void* data, size_t bytes);
    void read(void* data, size_t bytes);
    int fd_;
};

class Listener {
  public:
    explicit Listener(uint16_t port);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    int fd() const { return fd_; }
    Connection accept();

  private:
    int fd_;
};

}  // namespace rove::testpmd
