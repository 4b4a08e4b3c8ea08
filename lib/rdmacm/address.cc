// SPDX-License-Identifier: Apache-2.0
// See address.h.
#include "rdmacm/address.h"

#include <algorithm>
#include <cstring>

namespace rove::verbs::ucma {

namespace {

bool is_ipv4(const SocketAddress& address) {
    return wire::is_ipv4_mapped(address.gid());
}

// Returns true if a link-local address with this scope id may be on the link of `device`. Other addresses are in every
// scope.
bool is_in_scope(std::span<const Interface> devices, const Interface& device, const SocketAddress& address) {
    if (!datapath::is_link_local(address.gid()) || devices.size() == 1 || address.scope_id() == 0) return true;
    return device.kernel_index == address.scope_id();
}

// Returns the index of the first address of `device` in the family of `like`, and for IPv6 with a matching scope.
std::optional<size_t> own_address(const Interface& device, const wire::Gid& like) {
    for (size_t i = 0; i < device.own.size(); ++i) {
        const wire::Gid& own = device.own[i].address;
        if (own == wire::Gid{}) continue;
        if (wire::is_ipv4_mapped(own) != wire::is_ipv4_mapped(like)) continue;
        if (datapath::is_link_local(own) && !datapath::is_link_local(like) && !datapath::is_multicast(like)) continue;
        return i;
    }
    return std::nullopt;
}

Local local_at(std::span<const Interface> devices, size_t device, size_t gid_index) {
    return {device, gid_index, devices[device].own[gid_index].address};
}

std::optional<Local> first_with(std::span<const Interface> devices, const SocketAddress& like) {
    for (size_t d = 0; d < devices.size(); ++d) {
        if (!is_in_scope(devices, devices[d], like)) continue;
        if (const auto gid = own_address(devices[d], like.gid())) return local_at(devices, d, *gid);
    }
    return std::nullopt;
}

// Returns the first device's address that replaces the kernel's loopback address: the first one of its family.
std::optional<Local> loopback(std::span<const Interface> devices, bool ipv4) {
    if (devices.empty()) return std::nullopt;
    const auto& own = devices.front().own;
    const auto found = std::find_if(own.begin(), own.end(), [&](const auto& subnet) {
        return subnet.address != wire::Gid{} && wire::is_ipv4_mapped(subnet.address) == ipv4;
    });
    if (found == own.end()) return std::nullopt;
    return local_at(devices, 0, static_cast<size_t>(found - own.begin()));
}

}  // namespace

SocketAddress::SocketAddress(const void* address, size_t bytes) : SocketAddress() {
    sa_family_t given = AF_UNSPEC;
    if (bytes >= sizeof(given)) std::memcpy(&given, address, sizeof(given));
    if (given == AF_INET && bytes >= sizeof(v4)) std::memcpy(&v4, address, sizeof(v4));
    if (given == AF_INET6 && bytes >= sizeof(v6)) std::memcpy(&v6, address, sizeof(v6));
}

bool SocketAddress::is_any() const {
    if (family == AF_INET) return v4.sin_addr.s_addr == htonl(INADDR_ANY);
    return family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
}

bool SocketAddress::is_loopback() const {
    if (family == AF_INET) return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    return family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

wire::Gid SocketAddress::gid() const {
    wire::Gid gid{};
    if (family == AF_INET) {
        gid[10] = gid[11] = 0xFF;
        std::memcpy(gid.data() + 12, &v4.sin_addr, sizeof(v4.sin_addr));
    } else if (family == AF_INET6) {
        std::memcpy(gid.data(), &v6.sin6_addr, gid.size());
    }
    return gid;
}

SocketAddress socket_address_of(const wire::Gid& gid, uint16_t port) {
    SocketAddress address;
    if (wire::is_ipv4_mapped(gid)) {
        address.v4 = {};
        address.v4.sin_family = AF_INET;
        std::memcpy(&address.v4.sin_addr, gid.data() + 12, sizeof(address.v4.sin_addr));
    } else {
        address.v6.sin6_family = AF_INET6;
        std::memcpy(&address.v6.sin6_addr, gid.data(), gid.size());
    }
    address.set_port(port);
    return address;
}

SocketAddress any_address(sa_family_t family) {
    SocketAddress address;
    address.family = family;
    return address;
}

std::optional<Local> find_local(std::span<const Interface> devices, const SocketAddress& address) {
    const wire::Gid gid = address.gid();
    for (size_t d = 0; d < devices.size(); ++d) {
        if (!is_in_scope(devices, devices[d], address)) continue;
        for (size_t i = 0; i < devices[d].own.size(); ++i)
            if (devices[d].own[i].address == gid) return local_at(devices, d, i);
    }
    return address.is_loopback() ? loopback(devices, is_ipv4(address)) : std::nullopt;
}

std::optional<Local> find_source(std::span<const Interface> devices, const SocketAddress& destination) {
    if (const auto own = find_local(devices, destination)) return own;
    const wire::Gid gid = destination.gid();
    if (datapath::is_multicast(gid)) return first_with(devices, destination);
    std::optional<Local> best;
    uint8_t longest = 0;
    for (size_t d = 0; d < devices.size(); ++d) {
        if (!is_in_scope(devices, devices[d], destination)) continue;
        for (size_t i = 0; i < devices[d].own.size(); ++i) {
            const datapath::Subnet& own = devices[d].own[i];
            if (!own.contains(gid) || (best && own.prefix_bits <= longest)) continue;
            best = local_at(devices, d, i);
            longest = own.prefix_bits;
        }
    }
    if (best) return best;
    const bool ipv4 = is_ipv4(destination);
    for (size_t d = 0; d < devices.size(); ++d) {
        if (!(ipv4 ? devices[d].has_gateway_ipv4 : devices[d].has_gateway_ipv6)) continue;
        if (const auto own = own_address(devices[d], gid)) return local_at(devices, d, *own);
    }
    return std::nullopt;
}

wire::Gid destination_gid(const Local& from, const SocketAddress& destination) {
    return destination.is_loopback() ? from.address : destination.gid();
}

}  // namespace rove::verbs::ucma
