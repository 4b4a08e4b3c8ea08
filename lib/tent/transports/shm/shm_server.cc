// SPDX-License-Identifier: Apache-2.0
// See shm_server.h. Question and answer are one message each, on a connection of their own.
#include "tent/transports/shm/shm_server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/no_signals.h"
#include "tent/engine/own_sockets.h"
#include "tent/engine/segment.h"

namespace rove::tent {

namespace {

constexpr timeval kPatience{.tv_sec = 1, .tv_usec = 0};

struct ShmQuestion {
    static constexpr uint64_t kMagic = 0x314B534145564F52;  // "ROVEASK1"

    uint64_t magic = kMagic;
    ObjectId id{};  // zeros: only asks whether the process is there
};

struct ShmAnswer {
    uint64_t instance = 0;
    uint32_t offered = 0;  // 1: the descriptor comes with the message
    uint32_t reserved = 0;
};

socklen_t to_address(const std::string& name, sockaddr_un* address) {
    const std::string path = '\0' + ("rove-tent-" + name);  // abstract (unix(7))
    *address = {};
    address->sun_family = AF_UNIX;
    std::memcpy(address->sun_path, path.data(), path.size());
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
}

bool is_our_users(int fd) {
    ucred peer{};
    socklen_t size = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

void set_patience(int fd) {
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
}

// Space for the control message that carries one descriptor.
union Control {
    cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

// Returns true if the process answered. `*fd` is -1 if it does not offer the memory.
bool ask(const std::string& server, uint64_t instance, const ObjectId& id, int* fd) {
    *fd = -1;
    sockaddr_un address;
    ObjectId parsed;
    // The peer chose the name, so it is checked: only a socket with a name of this form is connected to.
    if (!from_hex(server, &parsed)) return false;
    const socklen_t size = to_address(server, &address);
    const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connection < 0) return false;
    set_patience(connection);
    const ShmQuestion question{.id = id};
    ShmAnswer answer;
    iovec bytes{&answer, sizeof(answer)};
    Control control{};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    const bool answered = connect(connection, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                          is_our_users(connection) &&
                          send(connection, &question, sizeof(question), MSG_NOSIGNAL) == sizeof(question) &&
                          recvmsg(connection, &message, MSG_CMSG_CLOEXEC) == sizeof(answer);
    close(connection);
    if (!answered) return false;
    const cmsghdr* part = CMSG_FIRSTHDR(&message);
    if (part != nullptr && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS &&
        part->cmsg_len == CMSG_LEN(sizeof(int))) {
        std::memcpy(fd, CMSG_DATA(part), sizeof(int));
    }
    if (answer.instance == instance && (answer.offered != 0) == (*fd >= 0)) return true;
    if (*fd >= 0) close(*fd);
    return false;
}

}  // namespace

std::string ShmServer::start(uint64_t instance) {
    instance_ = instance;
    name_ = to_hex(random_id());
    sockaddr_un address;
    const socklen_t size = to_address(name_, &address);
    listener_ = note_socket(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (listener_ < 0 || bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        listen(listener_, 128) != 0) {
        return std::string("a UNIX socket for shared memory: ") + std::strerror(errno);
    }
    const NoSignals guard;
    thread_ = std::thread([this] { run(); });
    return {};
}

void ShmServer::stop() {
    if (listener_ < 0) return;
    stopped_.store(true);
    shutdown(listener_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    close(listener_);
    listener_ = -1;
}

void ShmServer::offer(std::shared_ptr<SharedMemory> memory) {
    const std::lock_guard lock(mutex_);
    const ObjectId id = memory->id();
    offered_.emplace(id, std::move(memory));
}

void ShmServer::withdraw(const ObjectId& id) {
    const std::lock_guard lock(mutex_);
    const auto at = offered_.find(id);
    if (at == offered_.end()) return;
    at->second->withdraw();
    offered_.erase(at);
}

void ShmServer::run() {
    while (!stopped_.load()) {
        const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno != EINTR && errno != ECONNABORTED && !stopped_.load()) usleep(10'000);  // out of descriptors
            continue;
        }
        if (is_our_users(fd)) answer(fd);
        close(fd);
    }
}

void ShmServer::answer(int fd) {
    set_patience(fd);
    ShmQuestion question;
    if (recv(fd, &question, sizeof(question), 0) != sizeof(question) || question.magic != ShmQuestion::kMagic) return;
    std::shared_ptr<SharedMemory> memory;
    {
        const std::lock_guard lock(mutex_);
        const auto at = offered_.find(question.id);
        if (at != offered_.end()) memory = at->second;
    }
    ShmAnswer answer{.instance = instance_, .offered = memory != nullptr};
    iovec bytes{&answer, sizeof(answer)};
    Control control{};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (memory != nullptr) {
        const int handed = memory->fd();
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        cmsghdr* part = CMSG_FIRSTHDR(&message);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof(handed));
        std::memcpy(CMSG_DATA(part), &handed, sizeof(handed));
    }
    (void)!sendmsg(fd, &message, MSG_NOSIGNAL);
}

bool is_on_this_machine(const std::string& server, uint64_t instance) {
    int fd;
    const bool answered = ask(server, instance, {}, &fd);
    if (fd >= 0) close(fd);
    return answered;
}

Fetched fetch_memory(const std::string& server, uint64_t instance, const ObjectId& id, bool writable,
                     std::shared_ptr<PeerMemory>* out) {
    int fd;
    if (!ask(server, instance, id, &fd)) return Fetched::kUnreachable;
    if (fd < 0) return Fetched::kNotOffered;
    *out = PeerMemory::map(fd, id, writable);
    close(fd);
    return *out != nullptr ? Fetched::kMapped : Fetched::kUnreachable;
}

}  // namespace rove::tent
