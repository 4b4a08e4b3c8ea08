// SPDX-License-Identifier: Apache-2.0
// See address.h.
#include "tent/control/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "base/no_signals.h"
#include "tent/control/frame.h"
#include "tent/engine/clock.h"
#include "tent/engine/own_sockets.h"

namespace rove::tent {

namespace {

constexpr int kMaxLookups = 64;  // lookups at once; each is a thread until the resolver answers

std::vector<SocketAddress> look_up(const std::string& host, uint16_t port, int flags) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | flags;
    std::vector<SocketAddress> addresses;
    if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return addresses;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
        if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
        SocketAddress& address = addresses.emplace_back();
        std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
        address.size = one->ai_addrlen;
    }
    freeaddrinfo(found);
    std::stable_partition(addresses.begin(), addresses.end(),
                          [](const SocketAddress& one) { return one.storage.ss_family == AF_INET; });
    return addresses;
}

int connect_one(const SocketAddress& address, uint64_t deadline_ns) {
    const int fd = note_socket(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0) return -1;
    int error = connect(fd, address.get(), address.size) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        socklen_t size = sizeof(error);
        if (!wait_for(fd, POLLOUT, deadline_ns) || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
            error = ETIMEDOUT;
    }
    if (error == 0) return fd;
    close(fd);
    return -1;
}

}  // namespace

void SocketAddress::set_port(uint16_t port) {
    if (storage.ss_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
    } else {
        reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
    }
}

bool SocketAddress::is_loopback() const {
    if (storage.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
    return ntohl(reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr) >> 24 == 127;
}

std::string SocketAddress::host() const {
    char text[NI_MAXHOST];
    if (getnameinfo(get(), size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return {};
    return text;
}

std::optional<HostPort> split_address(const std::string& text) {
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos) return std::nullopt;
    HostPort parts{.host = text.substr(0, colon)};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, parts.port);
    if (error != std::errc() || stop != end || parts.port == 0) return std::nullopt;
    if (parts.host.starts_with('[') && parts.host.ends_with(']')) {
        parts.host = parts.host.substr(1, parts.host.size() - 2);
    } else if (parts.host.find(':') != std::string::npos) {
        return std::nullopt;
    }
    if (parts.host.empty()) return std::nullopt;
    return parts;
}

std::string join_address(const std::string& host, uint16_t port) {
    const bool is_ipv6 = host.find(':') != std::string::npos;
    return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::vector<SocketAddress> resolve(const std::string& host, uint16_t port, uint64_t deadline_ns) {
    std::vector<SocketAddress> addresses = look_up(host, port, AI_NUMERICHOST);
    if (!addresses.empty()) return addresses;
    // getaddrinfo(3) has no deadline, so it runs in a thread that is detached if it takes too long.
    struct Lookup {
        std::mutex mutex;
        std::condition_variable done;
        bool is_done = false;
        std::vector<SocketAddress> found;
    };
    static std::atomic<int> under_way{0};
    if (under_way.fetch_add(1) >= kMaxLookups) {
        under_way.fetch_sub(1);
        return addresses;
    }
    const auto lookup = std::make_shared<Lookup>();
    const NoSignals guard;
    std::thread([lookup, host, port] {
        auto found = look_up(host, port, AI_ADDRCONFIG);
        if (found.empty()) found = look_up(host, port, 0);  // for a host that has only the loopback's addresses
        const std::lock_guard lock(lookup->mutex);
        lookup->found = std::move(found);
        lookup->is_done = true;
        lookup->done.notify_one();
        under_way.fetch_sub(1);
    }).detach();
    std::unique_lock lock(lookup->mutex);
    const uint64_t now_ns = monotonic_ns();
    const std::chrono::nanoseconds patience(deadline_ns > now_ns ? deadline_ns - now_ns : 0);
    lookup->done.wait_for(lock, patience, [&] { return lookup->is_done; });
    return lookup->found;
}

int connect_to(const std::string& address, uint64_t deadline_ns) {
    const auto parts = split_address(address);
    if (!parts) return -1;
    const std::vector<SocketAddress> addresses = resolve(parts->host, parts->port, deadline_ns);
    int fd = -1;
    for (size_t i = 0; i < addresses.size() && fd < 0; ++i) {
        const uint64_t now_ns = monotonic_ns();
        if (now_ns >= deadline_ns) break;
        fd = connect_one(addresses[i], now_ns + (deadline_ns - now_ns) / (addresses.size() - i));
    }
    const int on = 1;
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

void keep_alive(int fd) {
    // A host counts as dead after it has acknowledged nothing for 4 s.
    const int on = 1, idle_s = 1, interval_s = 1, probes = 3;
    const unsigned unacknowledged_ms = 4000;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof(unacknowledged_ms));
}

}  // namespace rove::tent
