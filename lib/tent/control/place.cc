// SPDX-License-Identifier: Apache-2.0
// See place.h.
#include "tent/control/place.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tent/engine/clock.h"

namespace rove::tent {

namespace {

constexpr uint64_t kResolveNs = 5'000'000'000;

SocketAddress numeric(const char* host) {
    return resolve(host, 0, 0).front();
}

bool is_any(const SocketAddress& address) {
    return address.host() == "0.0.0.0" || address.host() == "::";
}

bool contains(const std::vector<SocketAddress>& list, const SocketAddress& address) {
    return std::any_of(list.begin(), list.end(), [&](const auto& one) { return one.host() == address.host(); });
}

// Returns the source address of packets to `far`, or "" if there is no route. Nothing is sent.
std::string source_of_way_to(const char* far) {
    SocketAddress to = numeric(far), from;
    to.set_port(9);
    const int fd = socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return {};
    from.size = sizeof(from.storage);
    const bool found = connect(fd, to.get(), to.size) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr*>(&from.storage), &from.size) == 0;
    close(fd);
    return found ? from.host() : "";
}

// Returns the addresses of the interfaces that are up, without the loopback and without link-local addresses.
std::vector<SocketAddress> interface_addresses(bool with_bridges) {
    std::vector<SocketAddress> addresses;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return addresses;
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_LOOPBACK) != 0 || (one->ifa_flags & IFF_UP) == 0)
            continue;
        const int family = one->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        // Bridges such as docker0 and virbr0 are networks inside this host, without other hosts.
        if (!with_bridges && std::filesystem::exists(std::string("/sys/class/net/") + one->ifa_name + "/bridge"))
            continue;
        SocketAddress address;
        address.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        std::memcpy(&address.storage, one->ifa_addr, address.size);
        if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6&>(address.storage).sin6_addr))
            continue;
        addresses.push_back(address);
    }
    freeifaddrs(all);
    std::stable_partition(addresses.begin(), addresses.end(),
                          [](const SocketAddress& one) { return one.storage.ss_family == AF_INET; });
    return addresses;
}

// Returns an address of this host that others can reach: the source address of packets to the world (for which
// addresses of RFC 5737 and RFC 3849 are used), or else the address of an interface.
std::string own_host() {
    for (const char* far : {"192.0.2.1", "2001:db8::1"})
        if (std::string host = source_of_way_to(far); !host.empty()) return host;
    const auto addresses = interface_addresses(false);
    return addresses.empty() ? "127.0.0.1" : addresses.front().host();
}

Status place_by_name(const std::string& name, bool has_credentials, const std::vector<SocketAddress>& ports,
                     Place* out) {
    out->listen = resolve(name, 0, monotonic_ns() + kResolveNs);
    out->host = name;
    if (out->listen.empty())
        return {Code::kInvalidArgument,
                "key 'rpc_server_hostname': '" + name + "' is neither an address nor a known host name"};
    for (const SocketAddress& one : out->listen) {
        if (has_credentials || one.is_loopback() || contains(ports, one)) continue;
        return {Code::kInvalidArgument,
                "key 'rpc_server_hostname': '" + name + "' (" + one.host() + ") needs a secret " +
                    "(secret_file, ROVE_TENT_SECRET) or a certificate (tls_cert_file). Without one, every peer that "
                    "connects is trusted, so only the addresses of the loopback and of the own ports are allowed"};
    }
    if (is_any(out->listen.front())) out->host = own_host();
    return {};
}

void place_by_default(bool has_credentials, const std::vector<SocketAddress>& ports, Place* out) {
    if (has_credentials) {
        out->listen = {numeric("0.0.0.0"), numeric("::")};
        out->host = own_host();
        return;
    }
    out->listen = {numeric("127.0.0.1"), numeric("::1")};
    out->host = "127.0.0.1";
    std::string known = "127.0.0.1, ::1";
    const auto kernels = interface_addresses(true);
    for (const SocketAddress& port : ports) {
        if (!contains(kernels, port) || contains(out->listen, port)) continue;
        if (out->host == "127.0.0.1") out->host = port.host();
        out->listen.push_back(port);
        known += ", " + port.host();
    }
    out->note =
        "no secret (secret_file, ROVE_TENT_SECRET) and no certificate (tls_cert_file), so the engine listens only on " +
        known;
}

}  // namespace

SocketAddress address_of(const uint8_t (&gid)[16]) {
    in6_addr bytes;
    std::memcpy(&bytes, gid, sizeof(bytes));
    SocketAddress address;
    if (IN6_IS_ADDR_V4MAPPED(&bytes)) {
        auto& ipv4 = reinterpret_cast<sockaddr_in&>(address.storage);
        ipv4.sin_family = AF_INET;
        std::memcpy(&ipv4.sin_addr, gid + 12, 4);
        address.size = sizeof(ipv4);
    } else {
        auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address.storage);
        ipv6.sin6_family = AF_INET6;
        ipv6.sin6_addr = bytes;
        address.size = sizeof(ipv6);
    }
    return address;
}

Status choose_place(const Config& config, bool has_credentials, const std::vector<SocketAddress>& ports, Place* out) {
    Status status;
    if (config.rpc_server_hostname.empty()) {
        place_by_default(has_credentials, ports, out);
    } else {
        status = place_by_name(config.rpc_server_hostname, has_credentials, ports, out);
    }
    std::vector<SocketAddress> once;
    for (const SocketAddress& one : out->listen)
        if (!contains(once, one)) once.push_back(one);
    out->listen = std::move(once);
    const std::string& advertised = config.advertised_address;
    if (!status.ok() || advertised.empty()) return status;
    const auto parts = split_address(advertised);
    out->host = parts ? parts->host : advertised;
    out->port = parts ? parts->port : 0;
    if (!parts && advertised.find_first_of("[] ") != std::string::npos)
        return {Code::kInvalidArgument, "key 'advertised_address': HOST or HOST:PORT is allowed, [HOST]:PORT for IPv6"};
    return status;
}

}  // namespace rove::tent
