// SPDX-License-Identifier: Apache-2.0
#include "exchange.h"

#include <arpa/inet.h>
#include <endian.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

namespace rove::testpmd {

namespace {

constexpr uint32_t kMagic = 0x526F7654;  // "RovT"
constexpr uint16_t kVersion = 1;
constexpr int kPatienceMs = 5000;  // how long the peer may take to connect its QPs
constexpr size_t kMaxRails = 32, kMaxReason = 200;
constexpr auto kAgain = std::chrono::milliseconds(50);

// The wire format: big-endian, without padding.
struct [[gnu::packed]] Head {
    uint32_t magic;
    uint16_t version;
    uint8_t mode, flags;  // 1: verify; 2: a refusal, followed by `size` bytes of text
    uint32_t size, qps, depth, mtu;
    uint8_t service_level, rails;
};
struct [[gnu::packed]] RailOnWire {
    uint8_t gid[16];
    uint32_t rkey;
    uint64_t address;
};
struct [[gnu::packed]] QpOnWire {
    uint32_t qpn, psn;
};
struct [[gnu::packed]] SegmentOnWire {
    uint64_t address;
    uint8_t name_bytes;  // length of the name that follows
};
struct [[gnu::packed]] AccountOnWire {
    uint32_t magic;
    uint64_t messages, errors;
};
constexpr uint8_t kVerify = 1, kRefusal = 2;

void wait(int fd, short events) {
    pollfd one{fd, events, 0};
    const int ready = poll(&one, 1, kPatienceMs);
    if (ready == 0 || (ready < 0 && errno != EINTR)) throw Failure("the peer does not answer");
}

}  // namespace

Connection::Connection(int fd) : fd_(fd) {
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Connection::~Connection() {
    if (fd_ >= 0) close(fd_);
}

Connection Connection::to(const std::string& host, uint16_t port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0)
        throw Failure("peer " + host + ": " + gai_strerror(error));
    // The target may have started only a moment ago.
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    int fd = -1;
    std::string why;
    while (true) {
        fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0) break;
        why = std::strerror(errno);
        if (fd >= 0) close(fd);
        fd = -1;
        if (std::chrono::steady_clock::now() > until) break;
        std::this_thread::sleep_for(kAgain);
    }
    freeaddrinfo(found);
    if (fd < 0) throw Failure("peer " + host + ", TCP port " + std::to_string(port) + ": " + why);
    return Connection(fd);
}

std::string Connection::own_address() const {
    sockaddr_in6 address{};
    socklen_t size = sizeof address;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    std::array<char, INET_ADDRSTRLEN> text{};
    if (address.sin6_family == AF_INET)
        inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(&address)->sin_addr, text.data(), text.size());
    else if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr))
        inet_ntop(AF_INET, &address.sin6_addr.s6_addr[12], text.data(), text.size());
    return text.data();
}

bool Connection::readable(int wait_ms) const {
    pollfd one{fd_, POLLIN, 0};
    return poll(&one, 1, wait_ms) > 0;  // a signal interrupts even a poll that does not wait
}

void Connection::write(const void* data, size_t bytes) {
    for (const char* at = static_cast<const char*>(data); bytes != 0;) {
        wait(fd_, POLLOUT);
        const ssize_t sent = ::send(fd_, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EAGAIN) continue;
        if (sent <= 0) throw Failure("the peer has closed the connection");
        at += sent;
        bytes -= static_cast<size_t>(sent);
    }
}

void Connection::read(void* data, size_t bytes) {
    for (char* at = static_cast<char*>(data); bytes != 0;) {
        wait(fd_, POLLIN);
        const ssize_t got = recv(fd_, at, bytes, MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN) continue;
        if (got <= 0) throw Failure("the peer has closed the connection");
        at += got;
        bytes -= static_cast<size_t>(got);
    }
}

void Connection::send(const Introduction& mine) {
    const Plan& plan = mine.plan;
    const Head head{htobe32(kMagic),
                    htobe16(kVersion),
                    static_cast<uint8_t>(plan.mode),
                    static_cast<uint8_t>(plan.verify ? kVerify : 0),
                    htobe32(plan.size),
                    htobe32(plan.qps),
                    htobe32(plan.depth),
                    htobe32(plan.mtu),
                    plan.service_level,
                    static_cast<uint8_t>(mine.rails.size())};
    write(&head, sizeof head);
    if (plan.mode == Mode::kSpray) {
        const SegmentOnWire one{htobe64(mine.address), static_cast<uint8_t>(mine.segment.size())};
        write(&one, sizeof one);
        write(mine.segment.data(), mine.segment.size());
        return;
    }
    for (const RailAddress& rail : mine.rails) {
        RailOnWire one{{}, htobe32(rail.rkey), htobe64(rail.address)};
        std::memcpy(one.gid, rail.gid.raw, sizeof one.gid);
        write(&one, sizeof one);
    }
    for (const QpAddress& qp : mine.qps) {
        const QpOnWire one{htobe32(qp.qpn), htobe32(qp.psn)};
        write(&one, sizeof one);
    }
}

void Connection::send_refusal(const std::string& why) {
    const std::string text = why.substr(0, kMaxReason);
    Head head{};
    head.magic = htobe32(kMagic);
    head.version = htobe16(kVersion);
    head.flags = kRefusal;
    head.size = htobe32(static_cast<uint32_t>(text.size()));
    write(&head, sizeof head);
    write(text.data(), text.size());
}

Introduction Connection::receive_introduction() {
    Head head;
    read(&head, sizeof head);
    if (be32toh(head.magic) != kMagic) throw Failure("what the peer says is not rove-testpmd's");
    if (be16toh(head.version) != kVersion) throw Failure("the peer is another version of rove-testpmd");
    if (head.flags & kRefusal) {
        std::array<char, kMaxReason> text{};
        const size_t bytes = std::min<size_t>(be32toh(head.size), text.size());
        read(text.data(), bytes);
        for (char& c : text)
            if (c != '\0' && (c < ' ' || c > '~')) c = '?';
        throw Failure("the peer refuses: " + std::string(text.data(), bytes));
    }
    Introduction theirs;
    theirs.plan = {.mode = static_cast<Mode>(head.mode),
                   .size = be32toh(head.size),
                   .qps = be32toh(head.qps),
                   .depth = be32toh(head.depth),
                   .mtu = be32toh(head.mtu),
                   .service_level = head.service_level,
                   .verify = (head.flags & kVerify) != 0};
    if (const char* wrong = invalid(theirs.plan)) throw Failure(std::string("the peer's ") + wrong);
    if (theirs.plan.mode == Mode::kSpray) {
        SegmentOnWire one;
        read(&one, sizeof one);
        theirs.address = be64toh(one.address);
        theirs.segment.resize(one.name_bytes);
        read(theirs.segment.data(), theirs.segment.size());
        return theirs;
    }
    if (head.rails < 1 || head.rails > kMaxRails) throw Failure("the peer's ports: 1 to 32");
    theirs.rails.resize(head.rails);
    for (RailAddress& rail : theirs.rails) {
        RailOnWire one;
        read(&one, sizeof one);
        std::memcpy(rail.gid.raw, one.gid, sizeof one.gid);
        rail.rkey = be32toh(one.rkey);
        rail.address = be64toh(one.address);
    }
    theirs.qps.resize(theirs.plan.qps);
    for (QpAddress& qp : theirs.qps) {
        QpOnWire one;
        read(&one, sizeof one);
        qp = {be32toh(one.qpn), be32toh(one.psn)};
        if (qp.qpn > 0xFFFFFF || qp.psn > 0xFFFFFF) throw Failure("the peer's QPs: numbers have 24 bits");
    }
    return theirs;
}

void Connection::send(const Account& account) {
    const AccountOnWire one{htobe32(kMagic), htobe64(account.messages), htobe64(account.errors)};
    write(&one, sizeof one);
}

Account Connection::receive_account() {
    AccountOnWire one;
    read(&one, sizeof one);
    if (be32toh(one.magic) != kMagic) throw Failure("what the peer says is not rove-testpmd's");
    return {be64toh(one.messages), be64toh(one.errors)};
}

Listener::Listener(uint16_t port) : fd_(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1, off = 0;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htobe16(port);
    if (bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd_, 8) != 0)
        throw Failure("TCP port " + std::to_string(port) + ": " + std::strerror(errno));
}

Listener::~Listener() {
    close(fd_);
}

Connection Listener::accept() {
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) throw Failure(std::string("accept: ") + std::strerror(errno));
    return Connection(fd);
}

}  // namespace rove::testpmd
