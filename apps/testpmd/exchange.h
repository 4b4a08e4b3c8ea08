// SPDX-License-Identifier: Apache-2.0
// Exchanges the parameters of QPs between two rove-testpmd processes over TCP. The peer is not trusted: messages are
// checked before use, and every wait is bounded.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "options.h"

namespace rove::testpmd {

// Something in the environment, or the peer, failed. The run ends, and the program can continue.
struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A port of one end, and one of its QPs.
struct RailAddress {
    ibv_gid gid{};
    uint32_t rkey = 0;
    uint64_t address = 0;
};
struct QpAddress {
    uint32_t qpn = 0, psn = 0;
};

// The initiator's first message. The target answers with its own, or with a refusal that states the reason.
struct Introduction {
    Plan plan;
    std::vector<RailAddress> rails;
    std::vector<QpAddress> qps;
    // In spray mode these replace both lists: the memory that the target registered with its engine, and the segment's
    // name.
    std::string segment;
    uint64_t address = 0;
};

// The result that ends a run, and the target's answer.
struct Account {
    uint64_t messages = 0, errors = 0;
};

// A connected socket. Waits end with a Failure after some seconds.
class Connection {
  public:
    explicit Connection(int fd);
    Connection(Connection&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Connection(const Connection&) = delete;
    ~Connection();
    static Connection to(const std::string& host, uint16_t port);

    int fd() const { return fd_; }
    // Returns this end's address as the peer sees it, or "" unless it is IPv4.
    std::string own_address() const;
    // Returns true if a message, or the end of the stream, can be received now or within `wait_ms`.
    bool readable(int wait_ms = 0) const;

    void send(const Introduction& mine);
    void send_refusal(const std::string& why);
    Introduction receive_introduction();  // the peer's refusal is thrown as a Failure
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
