// SPDX-License-Identifier: Apache-2.0
// See tcp_server.h.
#include "tent/transports/tcp/tcp_server.h"

#include <sys/socket.h>

#include <algorithm>

#include "tent/engine/clock.h"
#include "tent/engine/segment.h"

namespace rove::tent {

namespace {

constexpr uint64_t kMessageNs = 30'000'000'000;  // deadline for the rest of a message that has begun
constexpr uint64_t kGreetNs = 3'000'000'000;     // deadline for the name of a connection

}  // namespace

void TcpServer::stop() {
    stopped_.store(true);
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [connection, owned] : connections_) shutdown(connection->stream.fd(), SHUT_RDWR);
    }
    // Their threads take the lock once more when they end.
    for (const auto& [connection, owned] : connections_) owned->thread.join();
    connections_.clear();
}

void TcpServer::take(Stream stream) {
    reap();
    const std::lock_guard lock(mutex_);
    if (connections_.size() >= kMaxConnections) return;
    auto connection = std::make_unique<Connection>(std::move(stream));
    Connection& one = *connection;
    connections_.emplace(&one, std::move(connection));
    one.thread = std::thread([this, &one] { serve(one); });
}

void TcpServer::reap() {
    const std::lock_guard lock(mutex_);
    std::erase_if(connections_, [](const auto& entry) {
        if (!entry.first->ended.load()) return false;
        entry.first->thread.join();
        return true;
    });
}

void TcpServer::serve(Connection& connection) {
    if (greet(connection)) {
        while (!stopped_.load()) {
            TcpRequest request;
            auto* const at = reinterpret_cast<char*>(&request);
            ssize_t got = 0;  // the wait for the first bytes of a request has no deadline
            while (got == 0) {
                got = connection.stream.receive_some(at, sizeof(request));
                if (got == 0 && !connection.stream.wait(UINT64_MAX)) got = -1;
            }
            const uint64_t deadline_ns = monotonic_ns() + kMessageNs;
            if (got < 0) break;
            const size_t rest = sizeof(request) - static_cast<size_t>(got);
            if (!connection.stream.receive(at + got, rest, deadline_ns)) break;
            if (!answer(connection, request, deadline_ns)) break;
        }
    }
    shutdown(connection.stream.fd(), SHUT_RDWR);
    const std::lock_guard lock(mutex_);
    for (auto& [owner, named] : owners_)
        std::erase_if(named, [&](const auto& entry) { return entry.second == &connection; });
    connection.ended.store(true);
}

bool TcpServer::greet(Connection& connection) {
    const uint64_t deadline_ns = monotonic_ns() + kGreetNs;
    TcpHello hello;
    if (!connection.stream.receive(&hello, sizeof(hello), deadline_ns)) return false;
    if (hello.magic != TcpHello::kMagic || hello.version != TcpHello::kVersion) return false;
    {
        const std::lock_guard lock(mutex_);
        const auto owner = owners_.find(to_hex(hello.owner));
        if (owner == owners_.end() || owner->second.size() >= kMaxOfOwner) return false;
        if (!owner->second.emplace(hello.number, &connection).second) return false;
    }
    const TcpAnswer answer{};
    return connection.stream.send(&answer, sizeof(answer), deadline_ns);
}

bool TcpServer::answer(Connection& connection, const TcpRequest& request, uint64_t deadline_ns) {
    const bool is_write = request.operation == TcpRequest::kWrite;
    if (!is_write && request.operation != TcpRequest::kRead) return false;
    const std::shared_ptr<LocalBuffer> buffer = memory_.serve(request.address, request.length);
    TcpAnswer answer;
    answer.refused = buffer == nullptr || buffer->permission == Permission::kLocalReadWrite ||
                     (is_write && buffer->permission != Permission::kGlobalReadWrite);
    bool answered;
    if (answer.refused == 0) {
        answered = carry(connection, request, deadline_ns);
    } else {
        answered = (!is_write || skip(connection, request.length, deadline_ns)) &&
                   connection.stream.send(&answer, sizeof(answer), deadline_ns);
    }
    if (buffer != nullptr) buffer->served.fetch_sub(1);
    return answered;
}

// Discards the bytes of a refused WRITE, since the next request follows them.
bool TcpServer::skip(Connection& connection, uint64_t length, uint64_t deadline_ns) {
    char bytes[16'384];
    for (uint64_t part; length != 0; length -= part) {
        part = std::min<uint64_t>(length, sizeof(bytes));
        if (!connection.stream.receive(bytes, part, deadline_ns)) return false;
    }
    return true;
}

bool TcpServer::carry(Connection& connection, const TcpRequest& request, uint64_t deadline_ns) {
    const bool is_write = request.operation == TcpRequest::kWrite;
    const TcpAnswer answer{};
    auto* memory = reinterpret_cast<uint8_t*>(request.address);
    if (is_write && !receive(connection, memory, request.length)) return false;
    if (!connection.stream.send(&answer, sizeof(answer), deadline_ns)) return false;
    return is_write || connection.stream.send(memory, request.length, deadline_ns);
}

bool TcpServer::receive(Connection& connection, uint8_t* to, uint64_t length) {
    const uint64_t deadline_ns = monotonic_ns() + kMessageNs;
    while (length != 0) {
        ssize_t got;
        {
            const std::lock_guard lock(connection.receiving);
            if (connection.closed) return false;
            got = connection.stream.receive_some(to, length);
        }
        if (got < 0 || (got == 0 && !connection.stream.wait(deadline_ns))) return false;
        to += got;
        length -= static_cast<uint64_t>(got);
    }
    return true;
}

void TcpServer::admit(const std::string& owner) {
    const std::lock_guard lock(mutex_);
    owners_.try_emplace(owner);
}

void TcpServer::forget(const std::string& owner) {
    const std::lock_guard lock(mutex_);
    const auto at = owners_.find(owner);
    if (at == owners_.end()) return;
    for (const auto& [number, connection] : at->second) close_now(*connection);
    owners_.erase(at);
}

void TcpServer::close_connection(const std::string& owner, uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto at = owners_.find(owner);
    if (at == owners_.end()) return;
    if (const auto named = at->second.find(number); named != at->second.end()) close_now(*named->second);
}

void TcpServer::close_now(Connection& connection) {
    const std::lock_guard receiving(connection.receiving);
    connection.closed = true;
    shutdown(connection.stream.fd(), SHUT_RDWR);
}

}  // namespace rove::tent
