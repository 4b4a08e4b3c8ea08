// SPDX-License-Identifier: Apache-2.0
// rdma_cm's socket addresses, and the devices and GIDs that they mean.
//
// A specific local address means the device that has it. A destination is reached from a device with a matching subnet,
// preferring the longest prefix, or else from a device with a gateway of its family.
//
// No device has the kernel's loopback addresses. They work as with the kernel's rdma_cm: as a destination they mean the
// first device, and an id that is bound to one is bound to no device. A device belongs to one process, so they reach no
// other process.
//
// The scope id of a link-local IPv6 address selects the link: it is the index of the kernel interface below a device,
// if there is one. With a single device, any scope id means that device.
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

// An IPv4 or IPv6 address with its port. AF_UNSPEC means no address.
union SocketAddress {
    sa_family_t family;
    sockaddr_in v4;
    sockaddr_in6 v6;

    SocketAddress() : v6{} {}
    // Copies another library's sockaddr. The result is AF_UNSPEC if that is neither IPv4 nor IPv6, or longer than
    // `bytes`.
    SocketAddress(const void* address, size_t bytes);

    bool is_ip() const { return family == AF_INET || family == AF_INET6; }
    size_t size() const { return family == AF_INET ? sizeof(v4) : family == AF_INET6 ? sizeof(v6) : 0; }
    bool is_any() const;
    bool is_loopback() const;
    uint16_t port() const { return ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port); }
    void set_port(uint16_t port) { (family == AF_INET ? v4.sin_port : v6.sin6_port) = htons(port); }
    uint32_t scope_id() const { return family == AF_INET6 ? v6.sin6_scope_id : 0; }
    wire::Gid gid() const;  // mapped if it is IPv4
};
SocketAddress socket_address_of(const wire::Gid& gid, uint16_t port);
SocketAddress any_address(sa_family_t family);

// The addresses and routes of a device.
struct Interface {
    std::vector<datapath::Subnet> own;  // the GID index is the position
    bool has_gateway_ipv4 = false, has_gateway_ipv6 = false;
    unsigned kernel_index = 0;  // the kernel interface below its port, or 0
};

// A local address, with its position when it was looked up. A kernel interface may lose the address. Then its entry in
// the GID table is empty or has another address.
struct Local {
    size_t device = 0;
    size_t gid_index = 0;
    wire::Gid address{};
    bool operator==(const Local& other) const { return device == other.device && gid_index == other.gid_index; }
};

// Returns the device that has `address`, which must not be a wildcard, or nothing.
std::optional<Local> find_local(std::span<const Interface> devices, const SocketAddress& address);
// Returns the local address from which `destination` is reached, or nothing. A multicast group is reached from the
// first device with an address of its family.
std::optional<Local> find_source(std::span<const Interface> devices, const SocketAddress& destination);
// Returns the GID of a destination as seen from `from`: for a loopback address, that of `from` itself.
wire::Gid destination_gid(const Local& from, const SocketAddress& destination);

}  // namespace rove::verbs::ucma
