// SPDX-License-Identifier: Apache-2.0
// Where engines are reached: text, names and socket addresses of IPv4 and IPv6. Units: nanoseconds of CLOCK_MONOTONIC.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rove::tent {

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t size = 0;

    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
    void set_port(uint16_t port);
    bool is_loopback() const;
    // Without the port: "10.0.0.7", "2001:db8::7".
    std::string host() const;
};

struct HostPort {
    std::string host;
    uint16_t port = 0;
};
// "HOST:PORT" or "[IPV6]:PORT". Nothing: it is neither, or the port is not 1..65535.
std::optional<HostPort> split_address(const std::string& text);
// The same text of its parts.
std::string join_address(const std::string& host, uint16_t port);

// All addresses of a name, those of IPv4 first; none: it is unknown, or nobody told us in time.
std::vector<SocketAddress> resolve(const std::string& host, uint16_t port, uint64_t deadline_ns);

// A connected TCP socket (non-blocking, no delay) to "host:port", or -1. Each of its addresses has a share of the time.
int connect_to(const std::string& address, uint64_t deadline_ns);

// Has the kernel end a connection within some seconds after the other host has died or cannot be reached any more.
void keep_alive(int fd);

}  // namespace rove::tent
