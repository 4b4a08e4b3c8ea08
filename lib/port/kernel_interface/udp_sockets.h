// SPDX-License-Identifier: Apache-2.0
// The sockets behind a "udp" port, and the kernel's information about its addresses. Any user may have them.
//
// A port has one socket for each of its addresses, bound to UDP port 4791, which receives. The other sockets only send.
// There is one for each UDP source port in use, because a socket cannot choose the port for each datagram. No socket
// shares its port with another one, because a second process would get half of the datagrams. Units: bytes.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file_descriptor.h"
#include "wire/frame.h"

namespace rove::datapath {

class SocketAddress {
  public:
    SocketAddress() = default;
    SocketAddress(const wire::Gid& address, uint16_t port);
    explicit SocketAddress(const msghdr& received) {
        std::memcpy(&at_, received.msg_name, std::min<size_t>(sizeof at_, received.msg_namelen));
    }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&at_); }
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&at_); }
    socklen_t bytes() const { return bytes_; }
    wire::Gid address() const;
    uint16_t port() const { return ntohs(at_.sin6_port); }  // at the same offset for IPv4

  private:
    sockaddr_in6 at_{};
    socklen_t bytes_ = sizeof(sockaddr_in6);
};

// Returns the addresses of "udp:ADDRESS" and of "udp". For "udp" these are the source addresses of the default routes,
// one of each family. The result is empty if there is no such route, or ADDRESS is not an address.
std::vector<std::string> udp_addresses(std::string_view port);

// Returns the index of the interface that has the address, or 0 if no interface has it.
unsigned interface_of(const wire::Gid& address);

// Returns the largest RoCE path MTU whose packets fit the MTU of an interface, or 0 if even the smallest does not.
uint32_t roce_mtu(uint32_t interface_mtu, bool ipv4);

// Opens a socket that is bound to the address and UDP port. It sends only whole datagrams (DF), of any length that the
// interface carries. An ICMP message that announces a smaller path MTU is not believed, because any host can forge it
// (IP_PMTUDISC_PROBE; RFC 8085 3.2 asks for such a check). With DF, Linux gives identification 0 to IPv4 datagrams from
// sockets that are not connected; the n-th of those that UDP_SEGMENT makes of one call has n. `interface` is the index
// of the interface for IPv6 multicasts; 0 leaves the choice to the routes. On failure, the result is not open and errno
// is set.
FileDescriptor open_udp_socket(const wire::Gid& address, uint16_t port, unsigned interface = 0);
// Opens such a socket to receive RoCE: datagrams may arrive as one GRO message, and each message comes with its traffic
// class and hop limit. On failure, `*error` is a line with the reason and a remedy.
FileDescriptor open_roce_socket(const wire::Gid& address, std::string* error);

// Opens a socket for datagrams to a multicast group. Other sockets may be bound to the same group. On failure, the
// result is not open and errno is set.
FileDescriptor open_group_socket(const wire::Gid& group);
// Joins the group on the interface that has the address `own`. The kernel leaves it when the socket is closed. Returns
// 0 or an errno.
int join_group(int file, const wire::Gid& own, const wire::Gid& group);

// Makes the kernel drop ICMP messages about a path's MTU that quote the port of this socket, which must never send.
// Such a message would lower the MTU of that path for all programs of the host.
void ignore_path_mtu(int file, bool ipv4);

// Returns true if the kernel has a route for datagrams from one address to the other.
bool has_route(const wire::Gid& from, const wire::Gid& to);
// Returns true if the host has the address.
bool is_local(const wire::Gid& address);

// The sockets that send, by source port; the most recently used ones are kept. Only one thread may use it at a time.
class SourcePorts {
  public:
    // The most sockets. A program has fewer if it can spare fewer of the files that it may open.
    static constexpr size_t kMost = 256;

    explicit SourcePorts(const wire::Gid& address);
    // Returns the socket of this source port, or -1 if another process has the port.
    int socket(uint16_t port);
    void close_all();

  private:
    struct Socket {
        FileDescriptor file;
        uint64_t last_used = 0;  // number of the call
    };
    const wire::Gid address_;
    const unsigned interface_;
    const size_t most_;
    uint64_t calls_ = 0;
    std::unordered_map<uint16_t, Socket> sockets_;
};

}  // namespace rove::datapath
