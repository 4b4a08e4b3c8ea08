// SPDX-License-Identifier: Apache-2.0
// See server.h.
#include "tent/control/server.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

namespace rove::tent {

namespace {

constexpr uint64_t kListenerId = 0, kEventId = 1;
constexpr size_t kMaxConnections = 4096;
constexpr uint16_t kFirstPort = 15000, kPorts = 2000;  // where a port is chosen, as TENT does
constexpr int kPortAttempts = 10;

int listen_on(const std::string& host, uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = INADDR_ANY;
    if (!host.empty() && inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 && listen(fd, 128) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

}  // namespace

std::string own_address() {
    ifaddrs* all = nullptr;
    std::string found = "127.0.0.1";
    if (getifaddrs(&all) != 0) return found;
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
        if ((one->ifa_flags & IFF_LOOPBACK) != 0 || (one->ifa_flags & IFF_UP) == 0) continue;
        char text[INET_ADDRSTRLEN];
        found = inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr, text, sizeof(text));
        break;
    }
    freeifaddrs(all);
    return found;
}

std::string ControlServer::start(const std::string& host, uint16_t port) {
    std::random_device random;
    for (int attempt = 0; attempt < kPortAttempts && listener_ < 0; ++attempt) {
        port_ = port != 0 ? port : static_cast<uint16_t>(kFirstPort + random() % kPorts);
        listener_ = listen_on(host, port_);
        if (port != 0) break;
    }
    if (listener_ < 0) {
        return "rpc_server_hostname '" + host + "', rpc_server_port " + std::to_string(port_) + ": " +
               std::strerror(errno) + " (an IPv4 address of this host and a free port are allowed; 0 chooses one)";
    }
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event interest{.events = EPOLLIN, .data = {.u64 = kListenerId}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, &interest);
    interest.data.u64 = kEventId;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &interest);
    thread_ = std::thread([this] { run(); });
    return {};
}

void ControlServer::stop() {
    if (!thread_.joinable()) return;
    stopped_.store(true);
    wake();
    thread_.join();
    for (auto& [id, connection] : connections_) close(connection->fd);
    connections_.clear();
    for (auto& connection : watched_) close(connection->fd);
    watched_.clear();
    for (const int fd : {listener_, epoll_, event_}) close(fd);
}

void ControlServer::wake() {
    const uint64_t one = 1;
    (void)!write(event_, &one, sizeof(one));
}

void ControlServer::watch(int fd, std::function<void()> lost) {
    auto connection = std::make_unique<Connection>();
    connection->fd = fd;
    connection->lost = std::move(lost);
    {
        const std::lock_guard lock(mutex_);
        watched_.push_back(std::move(connection));
    }
    wake();
}

void ControlServer::run() {
    while (!stopped_.load()) {
        epoll_event events[32];
        const int ready = epoll_wait(epoll_, events, 32, -1);
        for (int i = 0; i < ready; ++i) {
            const uint64_t id = events[i].data.u64;
            if (id == kListenerId) {
                accept_all();
            } else if (id == kEventId) {
                take_posted();
            } else if (const auto at = connections_.find(id); at != connections_.end()) {
                readable(*at->second);
            }
        }
    }
}

void ControlServer::accept_all() {
    while (true) {
        const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        if (connections_.size() >= kMaxConnections) {
            close(fd);
            continue;
        }
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        auto connection = std::make_unique<Connection>();
        connection->fd = fd;
        connection->id = next_id_++;
        epoll_event interest{.events = EPOLLIN, .data = {.u64 = connection->id}};
        epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &interest);
        connections_.emplace(connection->id, std::move(connection));
    }
}

void ControlServer::take_posted() {
    uint64_t count;
    (void)!read(event_, &count, sizeof(count));
    std::vector<std::pair<uint64_t, std::string>> replies;
    std::vector<std::unique_ptr<Connection>> watched;
    {
        const std::lock_guard lock(mutex_);
        replies.swap(replies_);
        watched.swap(watched_);
    }
    for (auto& connection : watched) {
        connection->id = next_id_++;
        epoll_event interest{.events = EPOLLIN | EPOLLRDHUP, .data = {.u64 = connection->id}};
        epoll_ctl(epoll_, EPOLL_CTL_ADD, connection->fd, &interest);
        connections_.emplace(connection->id, std::move(connection));
    }
    for (auto& [id, frame] : replies) {
        const auto at = connections_.find(id);
        if (at == connections_.end()) continue;  // it did not wait
        Connection& connection = *at->second;
        connection.answering = false;
        connection.out += frame;
        if (!take_frames(connection)) drop(id);
    }
}

void ControlServer::readable(Connection& connection) {
    const uint64_t id = connection.id;
    char chunk[65536];
    bool open = true;
    // One chunk a turn: a peer that sends without end does not keep us from the others.
    const ssize_t got = recv(connection.fd, chunk, sizeof(chunk), 0);
    if (got > 0 && !connection.lost) {
        connection.in.append(chunk, static_cast<size_t>(got));
    } else if (got <= 0 && (got == 0 || (errno != EAGAIN && errno != EINTR))) {
        open = false;
    }
    if (!open || !take_frames(connection)) drop(id);
}

bool ControlServer::take_frames(Connection& connection) {
    size_t at = 0;
    while (!connection.answering && connection.in.size() - at >= sizeof(FrameHeader)) {
        FrameHeader header;
        std::memcpy(&header, connection.in.data() + at, sizeof(header));
        if (!header.is_valid()) return false;
        if (connection.in.size() - at - sizeof(header) < header.length) break;
        const auto body = parse_object(connection.in.substr(at + sizeof(header), header.length));
        if (!body) return false;
        at += sizeof(header) + header.length;
        handle(connection, header, *body);
    }
    connection.in.erase(0, at);
    return flush(connection);
}

void ControlServer::handle(Connection& connection, const FrameHeader& header, const Json& body) {
    if (header.type == MessageType::kLease) {
        if (connection.lost) return;  // one a connection
        connection.lost = [this, body] { ended_(body); };
    }
    if (header.type != MessageType::kConnect) {
        connection.out += encode(MessageType::kReply, header.sequence, handler_(header.type, body));
        return;
    }
    connection.answering = true;
    jobs_.add([this, id = connection.id, sequence = header.sequence, body] {
        std::string frame = encode(MessageType::kReply, sequence, handler_(MessageType::kConnect, body));
        {
            const std::lock_guard lock(mutex_);
            replies_.emplace_back(id, std::move(frame));
        }
        wake();
    });
}

bool ControlServer::flush(Connection& connection) {
    while (!connection.out.empty()) {
        const ssize_t sent = send(connection.fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
        if (sent > 0) {
            connection.out.erase(0, static_cast<size_t>(sent));
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            return false;
        }
    }
    // A peer that asks and does not read its answers is not heard until it does.
    const bool reads = !connection.answering && connection.out.size() < FrameHeader::kMaxBytes;
    epoll_event interest{.events = 0, .data = {.u64 = connection.id}};
    if (reads) interest.events |= EPOLLIN;
    if (!connection.out.empty()) interest.events |= EPOLLOUT;
    return epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &interest) == 0;
}

void ControlServer::drop(uint64_t id) {
    const auto at = connections_.find(id);
    if (at == connections_.end()) return;
    const std::unique_ptr<Connection> connection = std::move(at->second);
    connections_.erase(at);
    close(connection->fd);
    if (connection->lost) connection->lost();
}

}  // namespace rove::tent
