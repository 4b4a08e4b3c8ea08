// SPDX-License-Identifier: Apache-2.0
// The sockets behind a "udp" port, and what the kernel's tables tell of its addresses. Any user may have them.
//
// A port has one socket for each of its addresses, bound to UDP port 4791, which receives; and others that only send,
// one for each UDP source port in use, since a socket cannot choose that for each datagram. None of them shares its
// port with another socket: a second process would take half of the datagrams.
// Units: bytes.
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
    uint16_t port() const { return ntohs(at_.sin6_port); }  // it stands at the same place for IPv4

  private:
    sockaddr_in6 at_{};
    socklen_t bytes_ = sizeof(sockaddr_in6);
};

// The addresses of "udp:ADDRESS" and of "udp". The latter has the one of each family from which the default route
// sends. Empty if there is no such route, or ADDRESS is none.
std::vector<std::string> udp_addresses(std::string_view port);

// The index of the interface that has the address; 0: none has.
unsigned interface_of(const wire::Gid& address);

// The largest RoCE path MTU whose packets fit the MTU of an interface; 0: none does.
uint32_t roce_mtu(uint32_t interface_mtu, bool ipv4);

// Opens a socket that is bound to the address and UDP port. It sends whole datagrams only (DF), of any length that the
// interface carries: an ICMP message that says that the path carries less is not believed, because any host can forge
// it (IP_PMTUDISC_PROBE; RFC 8085 3.2 asks for such a check). With DF, Linux gives identification 0 to IPv4 datagrams
// from sockets that are not connected; of those that UDP_SEGMENT makes of one call, the n-th has n. `interface` is the
// index of the one that multicasts of IPv6 leave by; 0 leaves that to the routes. If it fails, the result is not open
// and errno says why.
FileDescriptor open_udp_socket(const wire::Gid& address, uint16_t port, unsigned interface = 0);
// The same, to receive RoCE by: several datagrams that came as one are given as one, and their traffic class and hop
// limit are told. `*error` is a line that says what to do.
FileDescriptor open_roce_socket(const wire::Gid& address, std::string* error);

// Opens a socket for what comes to a multicast group; other sockets may be bound to the same. It is not open, and errno
// says why, if that fails.
FileDescriptor open_group_socket(const wire::Gid& group);
// Joins the group on the interface that has the address `own`. The kernel leaves it when the socket is closed. Returns
// 0 or errno.
int join_group(int file, const wire::Gid& own, const wire::Gid& group);

// For a socket that never sends: the kernel drops ICMP messages about a path's MTU that quote its port. It would lower
// the MTU of that path for all programs of the host.
void ignore_path_mtu(int file, bool ipv4);

// Whether the kernel has a route for datagrams from one address to the other.
bool has_route(const wire::Gid& from, const wire::Gid& to);
// Whether the host has the address.
bool is_local(const wire::Gid& address);

// The sockets that send, by source port: those in use of late. One thread at a time.
class SourcePorts {
  public:
    // As many as a program can spare of the files that it may have open, and this many at most.
    static constexpr size_t kMost = 256;

    explicit SourcePorts(const wire::Gid& address);
    // -1: somebody else has that port.
    int socket(uint16_t port);
    void close_all();

  private:
    struct Socket {
        FileDescriptor file;
        uint64_t last_used = 0;  // in calls
    };
    const wire::Gid address_;
    const unsigned interface_;
    const size_t most_;
    uint64_t calls_ = 0;
    std::unordered_map<uint16_t, Socket> sockets_;
};

}  // namespace rove::datapath
