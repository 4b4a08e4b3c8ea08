// SPDX-License-Identifier: Apache-2.0
// Addresses at which engines are reached: text, names and socket addresses of IPv4 and IPv6. Units: nanoseconds of
// CLOCK_MONOTONIC.
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
    // Returns the address without the port, such as "10.0.0.7" or "2001:db8::7".
    std::string host() const;
};

struct HostPort {
    std::string host;
    uint16_t port = 0;
};
// Splits "HOST:PORT" or "[IPV6]:PORT". Returns nothing if the text is neither, or the port is not 1..65535.
std::optional<HostPort> split_address(const std::string& text);
// Joins a host and a port to such a text.
std::string join_address(const std::string& host, uint16_t port);

// Returns all addresses of a name, IPv4 first. The list is empty if the name is unknown or is not resolved in time.
std::vector<SocketAddress> resolve(const std::string& host, uint16_t port, uint64_t deadline_ns);

// Returns a TCP socket (non-blocking, TCP_NODELAY) that is connected to "host:port", or -1. Each address of the name
// has a share of the time.
int connect_to(const std::string& address, uint64_t deadline_ns);

// Makes the kernel end a connection within some seconds after the other host has died or become unreachable.
void keep_alive(int fd);

}  // namespace rove::tent
