// SPDX-License-Identifier: Apache-2.0
#include "port/memif/memif.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "port/port_kind.h"
#include "port/port_name.h"

namespace rove::datapath {

namespace {

struct Address {
    explicit Address(const std::string& path) {
        at.sun_family = AF_UNIX;
        const size_t length = path.copy(at.sun_path, sizeof(at.sun_path) - 1);
        bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
        if (path.front() == kAbstract)
            at.sun_path[0] = '\0';
        else
            ++bytes;
    }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&at); }

    static constexpr char kAbstract = '@';
    sockaddr_un at{};
    socklen_t bytes = 0;
};

int make_local_socket() {
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

}  // namespace

MemifPort::MemifPort(uint16_t id, const DeviceConfig& config, const PortEnvironment& environment)
    : LinkPort(id, environment),
      socket_path_(port_argument(config.port)),
      secret_(argument(config.port, "secret")),
      interface_id_(static_cast<uint32_t>(std::strtoul(argument(config.port, "id").c_str(), nullptr, 10))),
      is_server_(argument(config.port, "role") == "server") {}

bool MemifPort::open(std::string* error) {
    if (!is_server_) return true;
    const Address address(socket_path_);
    listener_ = make_local_socket();
    const bool is_file = socket_path_.front() != Address::kAbstract;
    // A server that was killed has left its socket behind. (One that runs has claimed the port: port_claim.h.)
    if (is_file && !SocketFile::clear(socket_path_, SOCK_SEQPACKET)) {
        *error = "port 'memif:" + socket_path_ + "': this file exists and is not a socket of this user";
        return false;
    }
    if (listener_ >= 0 && bind(listener_, address.get(), address.bytes) == 0 && listen(listener_, SOMAXCONN) == 0) {
        if (is_file) socket_file_ = SocketFile::at(socket_path_);
        return true;
    }
    *error = "port 'memif:" + socket_path_ + "': " + std::strerror(errno);
    return false;
}

MemifConnection::Settings MemifPort::own_settings() const {
    using Role = MemifConnection::Role;
    MemifConnection::Settings own = settings(is_server_ ? Role::kServer : Role::kClient);
    own.id = interface_id_;
    own.name = "rove";
    own.secret = secret_;
    return own;
}

void MemifPort::start() {
    const Lock lock(mutex_);
    if (is_held() || !links_.empty()) return;
    if (is_server_) {
        environment_.poller.add(listener_, [this] { accept(); });
        return;
    }
    const Address address(socket_path_);
    const int socket = make_local_socket();
    if (socket < 0) return;
    if (connect(socket, address.get(), address.bytes) != 0) {
        ::close(socket);
        return;
    }
    begin(socket, own_settings());
}

void MemifPort::accept() {
    const Lock lock(mutex_);
    if (FileDescriptor socket = take_connection(listener_); socket.is_open()) begin(socket.release(), own_settings());
}

// Makes the first process that completes the handshake the peer. Others may try again later.
bool MemifPort::connected(Link& link) {
    if (has_peer()) return false;
    link.outlet = id();
    attach(link);
    return true;
}

bool MemifPort::has_peer() const {
    return std::any_of(links_.begin(), links_.end(), [](const auto& one) { return one.second.attached; });
}

bool MemifPort::is_up() {
    const Lock lock(mutex_);
    return has_peer();
}

void MemifPort::stop() {
    const Lock lock(mutex_);
    if (is_server_) environment_.poller.remove(listener_);
    end_all();
}

void MemifPort::close() {
    const Lock lock(mutex_);
    hold(true);
    if (is_server_) {
        environment_.poller.remove(listener_);
        if (socket_file_) socket_file_->remove();
    }
    close_all();
}

void MemifPort::after_fork_in_child() {
    if (is_server_) ::close(listener_);
}

std::unique_ptr<Port> open_memif_port(uint16_t id, DeviceConfig& config, const PortEnvironment& environment,
                                      const std::vector<rte_mempool*>&, std::string* error) {
    auto port = std::make_unique<MemifPort>(id, config, environment);
    return port->open(error) ? std::move(port) : nullptr;
}

}  // namespace rove::datapath
