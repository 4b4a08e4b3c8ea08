// SPDX-License-Identifier: Apache-2.0
#include "port/kernel_interface/udp_sockets.h"

#include <ifaddrs.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/files.h"
#include "base/text.h"
#include "link/address.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

namespace rove::datapath {

namespace {

// The buffers of a socket. The kernel uses net.core.rmem_max and wmem_max if those are smaller. A window of 4 MiB fits,
// whatever the kernel adds to each packet's bytes.
constexpr int kReceiveBytes = 4 << 20, kSendBytes = 1 << 20;
// No host has these addresses (RFC 5737, RFC 3849), so the default routes lead there. Nothing is sent to them either.
constexpr const char* kElsewhere[] = {"198.51.100.1", "2001:db8::1"};

void set(int file, int level, int name, int value) {
    setsockopt(file, level, name, &value, sizeof value);
}

FileDescriptor make_socket(bool ipv4) {
    return FileDescriptor(socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Returns the address from which the kernel sends to `to`.
std::optional<wire::Gid> source_for(const wire::Gid& to) {
    const SocketAddress target(to, wire::kRoceUdpPort);
    const FileDescriptor probe = make_socket(wire::is_ipv4_mapped(to));
    SocketAddress own;
    socklen_t bytes = own.bytes();
    if (connect(probe.get(), target.get(), target.bytes()) != 0) return std::nullopt;
    if (getsockname(probe.get(), own.get(), &bytes) != 0) return std::nullopt;
    return own.address();
}

// Passes each address of this host's interfaces to `take`.
template <class Take>
void each_address(Take&& take) {
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0) return;
    for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || one->ifa_netmask == nullptr) continue;
        if (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6) continue;
        const auto gid = [](const sockaddr* from) {
            SocketAddress address;
            std::memcpy(address.get(), from, from->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
            return address.address();
        };
        take(*one, gid(one->ifa_addr), gid(one->ifa_netmask));
    }
    freeifaddrs(first);
}

std::string own_addresses() {
    std::string list;
    each_address([&](const ifaddrs&, const wire::Gid& address, const wire::Gid&) {
        if (!is_link_local(address)) list += (list.empty() ? "" : ", ") + to_string(address);
    });
    return list;
}

// Returns the process that has the socket with this inode, among those that we may inspect.
std::string process_of(const std::string& inode) {
    for (const std::string& pid : names_in("/proc")) {
        if (pid.find_first_not_of("0123456789") != pid.npos) continue;
        const std::string process = "/proc/" + pid, files = process + "/fd/";
        for (const std::string& file : names_in(files)) {
            if (target_of(files + file) != "socket:[" + inode + "]") continue;
            return "process " + pid + " (" + printable(first_line_of(process + "/comm")) + ")";
        }
    }
    return "another process";
}

// Returns the owner of UDP port 4791, for a message. The address only decides which of the kernel's tables are read.
std::string owner_of_port(const wire::Gid& address) {
    const bool ipv4 = wire::is_ipv4_mapped(address);
    std::string owner = "another process";
    for (const char* table : {"/proc/self/net/udp", "/proc/self/net/udp6"}) {
        if (!ipv4 && std::string_view(table).back() != '6') continue;
        std::istringstream lines(content_of(table).value_or(""));
        std::string line;
        std::getline(lines, line);
        while (std::getline(lines, line)) {
            std::istringstream words(line);
            std::string slot, local, word, inode;
            words >> slot >> local;
            for (int skipped = 0; skipped < 7; ++skipped) words >> word;  // up to the timeout
            words >> inode;
            if (!local.ends_with(":12B7")) continue;
            owner = inode == "0" ? "the kernel, as it is while rdma_rxe has a device ('rdma link' shows it, 'rdma link "
                                   "delete NAME' ends that)"
                                 : process_of(inode);
            if (owner != "another process") return owner;
        }
    }
    return owner;
}

std::string refusal(const wire::Gid& address, int error) {
    const std::string name = to_string(address), port = "port 'udp:" + name + "': ";
    if (error == EADDRNOTAVAIL)
        return port + "this host, or container, does not have that address. Allowed: " + own_addresses();
    if (error == EADDRINUSE)
        return port + "UDP port " + std::to_string(wire::kRoceUdpPort) + " is in use by " + owner_of_port(address) +
               ". Allowed: an address where it is free";
    return port + "no socket: " + reason_of(error);
}

void receive_roce(int file, bool ipv4) {
    set(file, SOL_SOCKET, SO_RCVBUF, kReceiveBytes);
    set(file, IPPROTO_UDP, UDP_GRO, 1);
    if (ipv4) {
        set(file, IPPROTO_IP, IP_RECVTOS, 1);
        set(file, IPPROTO_IP, IP_RECVTTL, 1);
    } else {
        set(file, IPPROTO_IPV6, IPV6_V6ONLY, 1);
        set(file, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
        set(file, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
        // RoCE has the ICRC, so senders omit the UDP checksum.
        set(file, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
    }
}

size_t files_to_spare() {
    constexpr size_t kPart = 4;  // divisor of the number of files that the program may open
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 1;
    return std::clamp<size_t>(files.rlim_cur / kPart, 1, SourcePorts::kMost);
}

}  // namespace

SocketAddress::SocketAddress(const wire::Gid& address, uint16_t port) {
    if (wire::is_ipv4_mapped(address)) {
        sockaddr_in ipv4{};
        ipv4.sin_family = AF_INET;
        ipv4.sin_port = htons(port);
        std::memcpy(&ipv4.sin_addr, address.data() + 12, sizeof ipv4.sin_addr);
        std::memcpy(&at_, &ipv4, sizeof ipv4);
        bytes_ = sizeof ipv4;
    } else {
        at_.sin6_family = AF_INET6;
        at_.sin6_port = htons(port);
        std::memcpy(&at_.sin6_addr, address.data(), address.size());
    }
}

wire::Gid SocketAddress::address() const {
    wire::Gid gid{};
    if (at_.sin6_family == AF_INET) {
        sockaddr_in ipv4;
        std::memcpy(&ipv4, &at_, sizeof ipv4);
        gid[10] = gid[11] = 0xFF;
        std::memcpy(gid.data() + 12, &ipv4.sin_addr, sizeof ipv4.sin_addr);
    } else {
        std::memcpy(gid.data(), &at_.sin6_addr, gid.size());
    }
    return gid;
}

std::vector<std::string> udp_addresses(std::string_view port) {
    std::vector<std::string> addresses;
    if (const size_t colon = port.find(':'); colon != port.npos) {
        if (const auto address = parse_address(port.substr(colon + 1))) addresses.push_back(to_string(*address));
        return addresses;
    }
    for (const char* elsewhere : kElsewhere) {
        const auto source = source_for(*parse_address(elsewhere));
        if (source && !is_link_local(*source)) addresses.push_back(to_string(*source));
    }
    return addresses;
}

unsigned interface_of(const wire::Gid& address) {
    // An interface that has the address is preferred to one whose subnet has it. The loopback interface, for example,
    // has all of 127.0.0.0/8.
    std::string name;
    bool exact = false;
    each_address([&](const ifaddrs& one, const wire::Gid& other, const wire::Gid& mask) {
        if (wire::is_ipv4_mapped(other) != wire::is_ipv4_mapped(address) || exact) return;
        const size_t prefix = wire::is_ipv4_mapped(other) ? 12 : 0;
        bool near = (one.ifa_flags & IFF_LOOPBACK) != 0;
        for (size_t i = prefix; i < other.size(); ++i) near &= ((other[i] ^ address[i]) & mask[i]) == 0;
        exact = other == address;
        if (exact || near) name = one.ifa_name;
    });
    return name.empty() ? 0 : if_nametoindex(name.c_str());
}

uint32_t roce_mtu(uint32_t interface_mtu, bool ipv4) {
    constexpr uint32_t kLeast = 256, kMost = 4096;
    // The overhead of a frame within its IP packet. The pad is left out, because it exists only if the payload is less
    // than the MTU.
    constexpr uint32_t kEthernetAndTag = 18, kPad = 3, kIpv6More = 20;
    const uint32_t overhead = wire::kMaxOverheadBytes - kEthernetAndTag - kPad - (ipv4 ? kIpv6More : 0);
    if (interface_mtu < kLeast + overhead) return 0;
    return std::min(std::bit_floor(interface_mtu - overhead), kMost);
}

FileDescriptor open_udp_socket(const wire::Gid& address, uint16_t port, unsigned interface) {
    const bool ipv4 = wire::is_ipv4_mapped(address);
    FileDescriptor made = make_socket(ipv4);
    if (!made.is_open()) return made;
    if (ipv4) {
        set(made.get(), IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
    } else {
        set(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
        set(made.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
        set(made.get(), IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(interface));
    }
    set(made.get(), SOL_SOCKET, SO_SNDBUF, kSendBytes);
    const SocketAddress own(address, port);
    if (bind(made.get(), own.get(), own.bytes()) == 0) return made;
    const int error = errno;
    made = FileDescriptor();
    errno = error;
    return made;
}

FileDescriptor open_roce_socket(const wire::Gid& address, std::string* error) {
    FileDescriptor made = open_udp_socket(address, wire::kRoceUdpPort);
    if (!made.is_open()) {
        *error = refusal(address, errno);
        return made;
    }
    receive_roce(made.get(), wire::is_ipv4_mapped(address));
    return made;
}

FileDescriptor open_group_socket(const wire::Gid& group) {
    const bool ipv4 = wire::is_ipv4_mapped(group);
    FileDescriptor made = make_socket(ipv4);
    if (!made.is_open()) return made;
    set(made.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    // The socket ignores groups that other sockets of the host have joined elsewhere.
    set(made.get(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_MULTICAST_ALL : IPV6_MULTICAST_ALL, 0);
    ignore_path_mtu(made.get(), ipv4);
    receive_roce(made.get(), ipv4);
    const SocketAddress own(group, wire::kRoceUdpPort);
    if (bind(made.get(), own.get(), own.bytes()) == 0) return made;
    const int error = errno;
    made = FileDescriptor();
    errno = error;
    return made;
}

int join_group(int file, const wire::Gid& own, const wire::Gid& group) {
    group_req request{};
    request.gr_interface = interface_of(own);
    const SocketAddress address(group, 0);
    std::memcpy(&request.gr_group, address.get(), address.bytes());
    const int level = wire::is_ipv4_mapped(group) ? IPPROTO_IP : IPPROTO_IPV6;
    return setsockopt(file, level, MCAST_JOIN_GROUP, &request, sizeof request) == 0 ? 0 : errno;
}

void ignore_path_mtu(int file, bool ipv4) {
    set(file, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
        ipv4 ? IP_PMTUDISC_INTERFACE : IPV6_PMTUDISC_INTERFACE);
}

bool has_route(const wire::Gid& from, const wire::Gid& to) {
    const SocketAddress own(from, 0), target(to, wire::kRoceUdpPort);
    const FileDescriptor probe = make_socket(wire::is_ipv4_mapped(from));
    return bind(probe.get(), own.get(), own.bytes()) == 0 && connect(probe.get(), target.get(), target.bytes()) == 0;
}

bool is_local(const wire::Gid& address) {
    const SocketAddress own(address, 0);
    const FileDescriptor probe = make_socket(wire::is_ipv4_mapped(address));
    return bind(probe.get(), own.get(), own.bytes()) == 0;
}

SourcePorts::SourcePorts(const wire::Gid& address)
    : address_(address), interface_(interface_of(address)), most_(files_to_spare()) {}

int SourcePorts::socket(uint16_t port) {
    ++calls_;
    if (const auto found = sockets_.find(port); found != sockets_.end()) {
        found->second.last_used = calls_;
        return found->second.file.get();
    }
    if (sockets_.size() >= most_)
        sockets_.erase(std::min_element(sockets_.begin(), sockets_.end(), [](const auto& a, const auto& b) {
            return a.second.last_used < b.second.last_used;
        }));
    FileDescriptor made = open_udp_socket(address_, port, interface_);
    if (!made.is_open()) return -1;
    // No host should send to this socket, and the filter makes sure that a datagram takes no memory if one does.
    sock_filter nothing{.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};
    const sock_fprog filter{.len = 1, .filter = &nothing};
    setsockopt(made.get(), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
    return sockets_.emplace(port, Socket{std::move(made), calls_}).first->second.file.get();
}

void SourcePorts::close_all() {
    sockets_.clear();
}

}  // namespace rove::datapath
