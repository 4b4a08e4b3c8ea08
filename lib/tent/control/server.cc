// SPDX-License-Identifier: Apache-2.0
// See server.h.
#include "tent/control/server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "base/no_signals.h"
#include "tent/engine/clock.h"
#include "tent/engine/own_sockets.h"

namespace rove::tent {

namespace {

constexpr uint64_t kEventId = 0, kFirstListenerId = 1, kFirstConnectionId = 1024;
constexpr uint16_t kFirstPort = 15000, kPorts = 2000;  // range from which a port is chosen, as in TENT
constexpr int kPortAttempts = 10;
constexpr int kAcceptsPerTurn = 64;
constexpr uint64_t kProveNs = 3'000'000'000;     // limit for the handshake
constexpr uint64_t kMessageNs = 10'000'000'000;  // limit for completing a message and for reading its answer
constexpr uint64_t kPauseNs = 100'000'000;       // pause in accepting when there are no descriptors
constexpr uint64_t kTurnNs = 1'000'000;          // time for the questions of a host before other hosts have their turn
constexpr uint64_t kDeadlineLookNs = 250'000'000;  // interval between checks of the deadlines

int listen_on(SocketAddress address, uint16_t port) {
    address.set_port(port);
    const int family = address.storage.ss_family, on = 1;
    const int fd = note_socket(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (bind(fd, address.get(), address.size) == 0 && ::listen(fd, 512) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

// Returns the key of a host: an IPv4 address, or the 64-bit network that an IPv6 host has to itself.
std::string host_of(const SocketAddress& from) {
    if (from.storage.ss_family != AF_INET6) {
        const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(from.storage);
        return {reinterpret_cast<const char*>(&ipv4.sin_addr), 4};
    }
    const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(from.storage);
    const auto* bytes = reinterpret_cast<const char*>(&ipv6.sin6_addr);
    return IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr) ? std::string(bytes + 12, 4) : std::string(bytes, 8);
}

}  // namespace

ControlServer::~ControlServer() {
    stop();
    if (event_ >= 0) close(event_);
}

std::string ControlServer::listen(const std::vector<SocketAddress>& addresses, uint16_t port) {
    std::random_device random;
    int error = 0;
    for (int attempt = 0; attempt < (port != 0 ? 1 : kPortAttempts) && listeners_.empty(); ++attempt) {
        port_ = port != 0 ? port : static_cast<uint16_t>(kFirstPort + random() % kPorts);
        for (const SocketAddress& address : addresses) {
            const int fd = listen_on(address, port_);
            if (fd >= 0) {
                listeners_.push_back(fd);
                continue;
            }
            error = errno;
            if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) continue;
            for (const int other : listeners_) close(other);
            listeners_.clear();
            break;
        }
    }
    if (listeners_.empty()) return "port " + std::to_string(port_) + ": " + std::strerror(error);
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    most_ = std::min<size_t>(kMaxConnections, files.rlim_cur / 2);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event interest{.events = EPOLLIN, .data = {.u64 = kEventId}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &interest);
    for (interest.data.u64 = kFirstListenerId; const int fd : listeners_) {
        epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &interest);
        ++interest.data.u64;
    }
    return {};
}

void ControlServer::start() {
    const NoSignals guard;
    thread_ = std::thread([this] { run(); });
}

void ControlServer::stop() {
    if (epoll_ < 0) return;
    stopped_.store(true);
    wake();
    if (thread_.joinable()) thread_.join();
    for (auto& [id, connection] : connections_) close(connection->fd);
    connections_.clear();
    {
        const std::lock_guard lock(mutex_);
        for (auto& connection : watched_) close(connection->fd);
        watched_.clear();
    }
    for (const int fd : listeners_) close(fd);
    listeners_.clear();
    close(std::exchange(epoll_, -1));
}

void ControlServer::wake() {
    const uint64_t one = 1;
    (void)!write(event_, &one, sizeof(one));
}

void ControlServer::watch(int fd, std::function<void()> lost) {
    auto connection = std::make_unique<Connection>(credentials_.secret);
    connection->fd = fd;
    connection->lost = std::move(lost);
    {
        const std::lock_guard lock(mutex_);
        if (stopped_.load()) {
            close(fd);
            return;
        }
        watched_.push_back(std::move(connection));
    }
    wake();
}

void ControlServer::run() {
    while (!stopped_.load()) {
        epoll_event events[32];
        const bool waits = timed_ != 0 || resume_ns_ != 0;
        const int patience_ms = !turns_.empty() ? 0 : waits ? static_cast<int>(kPauseNs / 1'000'000) : -1;
        const int ready = epoll_wait(epoll_, events, 32, patience_ms);
        take_turns();
        for (int i = 0; i < ready; ++i) {
            const uint64_t id = events[i].data.u64;
            if (id == kEventId) {
                take_posted();
            } else if (id < kFirstConnectionId) {
                accept_all(listeners_[id - kFirstListenerId]);
            } else if (const auto at = connections_.find(id); at != connections_.end()) {
                readable(*at->second);
            }
        }
        if (!waits) continue;
        const uint64_t now_ns = monotonic_ns();
        if (resume_ns_ != 0 && now_ns >= resume_ns_) {
            resume_ns_ = 0;
            listen_for(EPOLLIN);
        }
        if (now_ns - looked_ns_ >= kDeadlineLookNs) end_late(now_ns);
    }
}

void ControlServer::listen_for(uint32_t events) {
    for (size_t i = 0; i < listeners_.size(); ++i) {
        epoll_event interest{.events = events, .data = {.u64 = kFirstListenerId + i}};
        epoll_ctl(epoll_, EPOLL_CTL_MOD, listeners_[i], &interest);
    }
}

void ControlServer::accept_all(int listener) {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
        SocketAddress from;
        from.size = sizeof(from.storage);
        auto* address = reinterpret_cast<sockaddr*>(&from.storage);
        const int fd = note_socket(accept4(listener, address, &from.size, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd >= 0) {
            accepted(fd, from);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (make_room(false)) continue;
            resume_ns_ = monotonic_ns() + kPauseNs;
            listen_for(0);
            return;
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

void ControlServer::accepted(int fd, const SocketAddress& from) {
    if ((proving_ >= kMaxProving && !make_room(true)) || (accepted_ >= most_ && !make_room(false))) {
        close(fd);
        return;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    keep_alive(fd);
    auto connection = std::make_unique<Connection>(credentials_.secret);
    connection->fd = fd;
    if (credentials_.tls != nullptr)
        connection->tls = std::make_unique<TlsSession>(*credentials_.tls, TlsSession::End::kAcceptor);
    connection->id = next_id_++;
    connection->address = host_of(from);
    connection->host = &hosts_[connection->address];
    connection->is_proving = true;
    connection->used_ns = monotonic_ns();
    set_deadline(*connection, connection->used_ns + kProveNs);
    ++connection->host->connections;
    ++connection->host->proving;
    ++accepted_;
    ++proving_;
    epoll_event interest{.events = EPOLLIN, .data = {.u64 = connection->id}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &interest);
    connections_.emplace(connection->id, std::move(connection));
}

bool ControlServer::make_room(bool proving_only) {
    const auto weight = [&](const Host& host) { return proving_only ? host.proving : host.connections - host.leases; };
    const auto greediest = std::max_element(hosts_.begin(), hosts_.end(), [&](const auto& a, const auto& b) {
        return weight(a.second) < weight(b.second);
    });
    if (greediest == hosts_.end()) return false;
    const Connection* chosen = nullptr;
    for (const auto& [id, owned] : connections_) {
        const Connection& one = *owned;
        if (one.host != &greediest->second) continue;
        if (one.is_proving) {  // ids grow, so the first one is the oldest
            chosen = &one;
            break;
        }
        const bool spared = proving_only || one.lost || one.answering || !one.in.empty() || !one.out.empty();
        if (!spared && (chosen == nullptr || one.used_ns < chosen->used_ns)) chosen = &one;
    }
    if (chosen == nullptr) return false;
    drop(chosen->id);
    return true;
}

void ControlServer::set_deadline(Connection& connection, uint64_t deadline_ns) {
    timed_ += static_cast<size_t>(deadline_ns != 0) - static_cast<size_t>(connection.deadline_ns != 0);
    connection.deadline_ns = deadline_ns;
}

void ControlServer::end_late(uint64_t now_ns) {
    looked_ns_ = now_ns;
    std::vector<uint64_t> late;
    for (const auto& [id, connection] : connections_)
        if (connection->deadline_ns != 0 && now_ns >= connection->deadline_ns) late.push_back(id);
    for (const uint64_t id : late) drop(id);
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
        if (at == connections_.end()) continue;  // closed before its answer was ready
        Connection& connection = *at->second;
        connection.answering = false;
        say(connection, frame);
        if (!take_questions(connection)) drop(id);
    }
}

void ControlServer::readable(Connection& connection) {
    const uint64_t id = connection.id;
    char chunk[65536];
    bool open = true, goes_on = true;
    // One chunk is read at a time, so that a peer that sends without end does not delay the others.
    const ssize_t got = recv(connection.fd, chunk, sizeof(chunk), 0);
    if (got > 0 && connection.host != nullptr) {
        connection.used_ns = monotonic_ns();
        goes_on = take_in(connection, {chunk, static_cast<size_t>(got)});
    } else if (got <= 0 && (got == 0 || (errno != EAGAIN && errno != EINTR))) {
        open = false;
    }
    // Questions that came before TLS ended are answered, and the peer gets the reason of the end.
    if (!open || !advance(connection) || !goes_on) drop(id);
}

bool ControlServer::take_in(Connection& connection, std::string_view came) {
    if (connection.tls != nullptr) return connection.tls->take(came, &connection.in, &connection.out);
    connection.in += came;
    return true;
}

void ControlServer::say(Connection& connection, std::string_view plain) {
    if (connection.tls == nullptr) {
        connection.out += plain;
    } else {
        (void)connection.tls->seal(plain, &connection.out);  // a session that has ended sends nothing
    }
}

bool ControlServer::advance(Connection& connection) {
    if (connection.is_proving) {
        std::string answer;
        const Acceptor::State state = connection.acceptor.take(connection.in, answer);
        say(connection, answer);
        if (state == Acceptor::State::kOpen) {
            connection.is_proving = false;
            --connection.host->proving;
            --proving_;
            set_deadline(connection, 0);
        }
        if (!flush(connection) || state == Acceptor::State::kRefused) return false;
        if (state != Acceptor::State::kOpen) return true;
        if (connection.acceptor.purpose() == Purpose::kData) {
            // A peer must send nothing before it has our whole proof.
            if (!connection.in.empty() || !connection.out.empty()) return false;
            callbacks_.take_data(release(connection.id));
            return true;
        }
    }
    return connection.host == nullptr || take_questions(connection);
}

bool ControlServer::has_time(Host& host) const {
    if (host.turn != turn_) host.used_ns = 0;
    host.turn = turn_;
    return host.used_ns < kTurnNs;
}

void ControlServer::take_turns() {
    ++turn_;
    std::vector<uint64_t> had_theirs;
    for (const uint64_t id : std::exchange(turns_, {})) {
        const auto at = connections_.find(id);
        if (at == connections_.end()) continue;
        Connection& connection = *at->second;
        const size_t before = connection.in.size();
        connection.waits_turn = false;
        if (!take_questions(connection)) {
            drop(id);
        } else if (connection.waits_turn && connection.in.size() != before) {
            turns_.pop_back();  // the other connections of its host, which had no turn, are served first
            had_theirs.push_back(id);
        }
    }
    turns_.insert(turns_.end(), had_theirs.begin(), had_theirs.end());
}

bool ControlServer::take_questions(Connection& connection) {
    if (connection.waits_turn) return flush(connection);
    size_t at = 0;
    FrameHeader header;
    Json body;
    Taken taken = Taken::kNothing;
    while (!connection.answering && connection.out.size() < FrameHeader::kMaxQuestion) {
        if (!has_time(*connection.host)) {
            connection.waits_turn = at < connection.in.size();
            break;
        }
        const uint64_t begun_ns = monotonic_ns();
        taken = take_question(connection.in, &at, &header, &body);
        if (taken == Taken::kBroken) return false;
        if (taken == Taken::kNothing) break;
        set_deadline(connection, 0);
        handle(connection, header, body);
        connection.host->used_ns += monotonic_ns() - begun_ns;
    }
    if (connection.waits_turn) turns_.push_back(connection.id);
    connection.in.erase(0, at);
    if (!flush(connection)) return false;
    const bool has_begun =
        !connection.answering && !connection.waits_turn && (!connection.in.empty() || !connection.out.empty());
    if (!has_begun) set_deadline(connection, 0);
    if (has_begun && connection.deadline_ns == 0) set_deadline(connection, monotonic_ns() + kMessageNs);
    return true;
}

void ControlServer::handle(Connection& connection, const FrameHeader& header, const Json& body) {
    if (header.type == MessageType::kLease && !take_lease(connection, body)) {
        say(connection, encode(MessageType::kReply, header.sequence, {{"ok", false}, {"error", "too many leases"}}));
        return;
    }
    if (header.type != MessageType::kConnect) {
        say(connection, encode(MessageType::kReply, header.sequence, callbacks_.answer(header.type, body)));
        return;
    }
    connection.answering = true;
    jobs_.add("from " + connection.address, [this, id = connection.id, sequence = header.sequence, body] {
        std::string frame = encode(MessageType::kReply, sequence, callbacks_.answer(MessageType::kConnect, body));
        {
            const std::lock_guard lock(mutex_);
            replies_.emplace_back(id, std::move(frame));
        }
        wake();
    });
}

bool ControlServer::take_lease(Connection& connection, const Json& body) {
    // A connection has one lease at most.
    if (connection.lost || connection.host->leases >= std::min(kMaxLeases, most_ / 2)) return false;
    ++connection.host->leases;
    connection.lost = [this, body] { callbacks_.ended(body); };
    return true;
}

bool ControlServer::flush(Connection& connection) {
    size_t at = 0;
    while (at != connection.out.size()) {
        const ssize_t sent = send(connection.fd, connection.out.data() + at, connection.out.size() - at, MSG_NOSIGNAL);
        if (sent > 0) {
            at += static_cast<size_t>(sent);
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            return false;
        }
    }
    connection.out.erase(0, at);
    // Nothing is read from a peer that asks and does not read its answers, until it does.
    epoll_event interest{.events = 0, .data = {.u64 = connection.id}};
    const bool listens = !connection.answering && !connection.waits_turn;
    if (listens && connection.out.size() < FrameHeader::kMaxQuestion) interest.events |= EPOLLIN;
    if (!connection.out.empty()) interest.events |= EPOLLOUT;
    return epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &interest) == 0;
}

std::unique_ptr<ControlServer::Connection> ControlServer::forget(uint64_t id) {
    const auto at = connections_.find(id);
    std::unique_ptr<Connection> connection = std::move(at->second);
    connections_.erase(at);
    set_deadline(*connection, 0);
    if (Host* const host = connection->host; host != nullptr) {
        --accepted_;
        --host->connections;
        host->proving -= connection->is_proving ? 1 : 0;
        proving_ -= connection->is_proving ? 1 : 0;
        host->leases -= connection->lost ? 1 : 0;
        if (host->connections == 0) hosts_.erase(connection->address);
    }
    return connection;
}

Stream ControlServer::release(uint64_t id) {
    const std::unique_ptr<Connection> connection = forget(id);
    epoll_ctl(epoll_, EPOLL_CTL_DEL, connection->fd, nullptr);
    return Stream(connection->fd, std::move(connection->tls));
}

void ControlServer::drop(uint64_t id) {
    if (!connections_.contains(id)) return;
    const std::unique_ptr<Connection> connection = forget(id);
    close(connection->fd);
    if (connection->lost) connection->lost();
}

}  // namespace rove::tent
