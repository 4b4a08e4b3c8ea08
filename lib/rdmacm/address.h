// SPDX-License-Identifier: Apache-2.0
// Socket addresses of rdma_cm, and which of our devices and GIDs they mean.
//
// A specific local address means the device that has it. A destination is reached from a device in whose subnet it is,
// the one with the longest prefix; otherwise from one with a gateway of its family.
//
// The kernel's loopback addresses are no device's. As the kernel's rdma_cm does, as a destination they mean the first
// device, and who is bound to one is bound to no device; a device belongs to one process, so they reach no other
// process.
//
// A link-local IPv6 address says by its scope id on which link it is: the number of the kernel's interface below a
// device, if there is one. With a single device, any scope id means that device.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "link/address.h"
#include "wire/frame.h"

namespace rove::verbs::ucma {

// IPv4 or IPv6; AF_UNSPEC: none.
union SocketAddress {
    sa_family_t family;
    sockaddr_in v4;
    sockaddr_in6 v6;

    SocketAddress() : v6{} {}
    // Of a sockaddr of another library. AF_UNSPEC if it is neither IPv4 nor IPv6, or does not fit in `bytes`.
    SocketAddress(const void* address, size_t bytes);

    bool is_ip() const { return family == AF_INET || family == AF_INET6; }
    size_t size() const { return family == AF_INET ? sizeof(v4) : family == AF_INET6 ? sizeof(v6) : 0; }
    bool is_any() const;
    bool is_loopback() const;
    uint16_t port() const { return ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port); }
    void set_port(uint16_t port) { (family == AF_INET ? v4.sin_port : v6.sin6_port) = htons(port); }
    uint32_t scope_id() const { return family == AF_INET6 ? v6.sin6_scope_id : 0; }
    wire::Gid gid() const;  // IPv4: mapped
};
SocketAddress socket_address_of(const wire::Gid& gid, uint16_t port);
SocketAddress any_address(sa_family_t family);

// What is to be known of a device.
struct Interface {
    std::vector<datapath::Subnet> own;  // by GID index
    bool has_gateway_ipv4 = false, has_gateway_ipv6 = false;
    unsigned kernel_index = 0;  // of the kernel's interface below its port; 0: none
};

// One of our addresses: where it stood when it was looked up, and what it was. An interface of the kernel may lose it,
// and then its place in the GID table is empty, or another's.
struct Local {
    size_t device = 0;
    size_t gid_index = 0;
    wire::Gid address{};
    bool operator==(const Local& other) const { return device == other.device && gid_index == other.gid_index; }
};

// The device that has `address`, which is not a wildcard. Nothing: none has.
std::optional<Local> find_local(std::span<const Interface> devices, const SocketAddress& address);
// From where `destination` is reached. Nothing: from none. A multicast group is reached from the first device that has
// an address of its family.
std::optional<Local> find_source(std::span<const Interface> devices, const SocketAddress& destination);
// Returns what a destination is for who is at `from`: for a loopback address, that address itself.
wire::Gid destination_gid(const Local& from, const SocketAddress& destination);

}  // namespace rove::verbs::ucma
