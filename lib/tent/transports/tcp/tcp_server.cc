// SPDX-License-Identifier: Apache-2.0
// See tcp_server.h.
#include "tent/transports/tcp/tcp_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tent/clock.h"

namespace rove::tent {

namespace {

constexpr uint64_t kMessageNs = 30'000'000'000;  // for the rest of a message that has begun
constexpr size_t kMaxClosed = 65536;             // closed before they came; then the oldest processes' are forgotten

}  // namespace

std::string TcpServer::start(const std::string& host) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    if (!host.empty() && inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1)
        return "'" + host + "' is no IPv4 address";
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof(address);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 128) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        return std::strerror(errno);
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { accept_all(); });
    return {};
}

void TcpServer::stop() {
    if (!thread_.joinable()) return;
    stopped_.store(true);
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [connection, owned] : connections_) shutdown(connection->fd, SHUT_RDWR);
    }
    // Their threads take the lock once more when they end.
    for (const auto& [connection, owned] : connections_) {
        owned->thread.join();
        close(owned->fd);
    }
    connections_.clear();
}

void TcpServer::accept_all() {
    while (!stopped_.load()) {
        const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno != EINTR && errno != ECONNABORTED && !stopped_.load()) usleep(10'000);  // out of descriptors
            continue;
        }
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        reap();
        const std::lock_guard lock(mutex_);
        if (connections_.size() >= kMaxConnections) {
            close(fd);
            continue;
        }
        auto connection = std::make_unique<Connection>();
        connection->fd = fd;
        Connection& one = *connection;
        connections_.emplace(&one, std::move(connection));
        one.thread = std::thread([this, &one] { serve(one); });
    }
}

void TcpServer::reap() {
    const std::lock_guard lock(mutex_);
    std::erase_if(connections_, [](const auto& entry) {
        if (!entry.first->ended.load()) return false;
        entry.first->thread.join();
        close(entry.first->fd);
        return true;
    });
}

void TcpServer::serve(Connection& connection) {
    if (greet(connection)) {
        while (!stopped_.load()) {
            pollfd one{connection.fd, POLLIN, 0};
            if (poll(&one, 1, -1) < 0 && errno != EINTR) break;
            TcpRequest request;
            if (!receive_all(connection.fd, &request, sizeof(request), monotonic_ns() + kMessageNs)) break;
            if (!answer(connection, request)) break;
        }
    }
    shutdown(connection.fd, SHUT_RDWR);
    const std::lock_guard lock(mutex_);
    std::erase_if(named_, [&](const auto& entry) { return entry.second == &connection; });
    connection.ended.store(true);
}

bool TcpServer::greet(Connection& connection) {
    TcpHello hello;
    if (!receive_all(connection.fd, &hello, sizeof(hello), monotonic_ns() + kMessageNs)) return false;
    if (hello.magic != TcpHello::kMagic || hello.version != 1) return false;
    const std::lock_guard lock(mutex_);
    const std::pair name(hello.instance, hello.number);
    return !closed_.contains(name) && named_.emplace(name, &connection).second;
}

bool TcpServer::answer(Connection& connection, const TcpRequest& request) {
    const uint64_t deadline_ns = monotonic_ns() + kMessageNs;
    const std::shared_ptr<LocalBuffer> buffer = memory_.find(request.address, request.length);
    const bool is_write = request.operation == TcpRequest::kWrite;
    if (!is_write && request.operation != TcpRequest::kRead) return false;
    TcpAnswer answer;
    answer.refused = buffer == nullptr || buffer->permission == Permission::kLocalReadWrite ||
                     (is_write && buffer->permission != Permission::kGlobalReadWrite);
    // What was to be written to where it must not has to be read from the connection; it ends instead.
    if (answer.refused != 0) return send_all(connection.fd, &answer, sizeof(answer), deadline_ns) && !is_write;
    buffer->served.fetch_add(1);
    const bool answered = carry(connection, request, deadline_ns);
    buffer->served.fetch_sub(1);
    return answered;
}

bool TcpServer::carry(Connection& connection, const TcpRequest& request, uint64_t deadline_ns) {
    const bool is_write = request.operation == TcpRequest::kWrite;
    const TcpAnswer answer{};
    auto* memory = reinterpret_cast<uint8_t*>(request.address);
    if (is_write && !receive(connection, memory, request.length)) return false;
    if (!send_all(connection.fd, &answer, sizeof(answer), deadline_ns)) return false;
    return is_write || send_all(connection.fd, memory, request.length, deadline_ns);
}

bool TcpServer::receive(Connection& connection, uint8_t* to, uint64_t length) {
    const uint64_t deadline_ns = monotonic_ns() + kMessageNs;
    while (length != 0) {
        pollfd one{connection.fd, POLLIN, 0};
        if (monotonic_ns() >= deadline_ns || (poll(&one, 1, 1000) < 0 && errno != EINTR)) return false;
        const std::lock_guard lock(connection.receiving);
        if (connection.closed) return false;
        const ssize_t got = recv(connection.fd, to, length, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (got < 0) continue;
        to += got;
        length -= static_cast<uint64_t>(got);
    }
    return true;
}

void TcpServer::close_connection(uint64_t instance, uint64_t number) {
    const std::lock_guard lock(mutex_);
    const std::pair name(instance, number);
    if (closed_.size() >= kMaxClosed) closed_.erase(closed_.begin());
    closed_.insert(name);
    const auto at = named_.find(name);
    if (at == named_.end()) return;
    const std::lock_guard receiving(at->second->receiving);
    at->second->closed = true;
    shutdown(at->second->fd, SHUT_RDWR);
}

void TcpServer::forget(uint64_t instance) {
    const std::lock_guard lock(mutex_);
    std::erase_if(closed_, [&](const auto& name) { return name.first == instance; });
    for (const auto& [name, connection] : named_)
        if (name.first == instance) shutdown(connection->fd, SHUT_RDWR);
}

}  // namespace rove::tent
