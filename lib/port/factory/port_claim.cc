// SPDX-License-Identifier: Apache-2.0
#include "port/factory/port_claim.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <utility>

#include "base/file_descriptor.h"
#include "base/files.h"
#include "port/port_kind.h"
#include "port/port_name.h"

namespace rove::datapath {

namespace {

struct Name {
    sockaddr_un address{};
    socklen_t bytes = 0;
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// Returns an abstract name, which leaves nothing in the file system. It has a hash of the port's identity, which may be
// longer than a socket's name.
Name name_of(const std::string& identity) {
    Name name;
    name.address.sun_family = AF_UNIX;
    const int length = std::snprintf(name.address.sun_path + 1, sizeof(name.address.sun_path) - 1, "rove-port-%016zx",
                                     std::hash<std::string>{}(identity));
    name.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
    return name;
}

int make_socket() {
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

// Returns the process that listens at `name`, or 0 if it is in another PID namespace. Returns -1 if there is no such
// process, or it is not to be trusted: any user can take an abstract name, so only a process of our own user or of root
// is. If a process of another user really has the port, opening the port fails.
pid_t owner_of(const Name& name) {
    const FileDescriptor probe(make_socket());
    if (!probe.is_open()) return -1;
    if (connect(probe.get(), name.get(), name.bytes) != 0) return -1;
    ucred owner{};
    socklen_t bytes = sizeof(owner);
    if (getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &owner, &bytes) != 0) return -1;
    return owner.uid == geteuid() || owner.uid == 0 ? owner.pid : -1;
}

std::string refusal(const DeviceConfig& config, pid_t owner) {
    std::string who = "another process";
    if (owner > 0) {
        const std::string program = first_line_of("/proc/" + std::to_string(owner) + "/comm");
        who = "process " + std::to_string(owner) + (program.empty() ? "" : " (" + program + ")");
    }
    return "port '" + config.port + "' is in use by " + who +
           ": a port is one process's. Allowed: port = \"mesh\", which any number of processes share and rove-bridge "
           "joins to a port, or a port of its own";
}

}  // namespace

std::string PortClaim::identity(const DeviceConfig& config) {
    const std::string& port = config.port;
    const std::string driver = driver_of(port);
    const auto value = [&](const char* key) { return argument(port, key); };
    if (const PortKind* const kind = kind_of(port); kind != nullptr) {
        if (kind->is_shared) return {};
        return kind->identity != nullptr ? kind->identity(config) : std::string(kind->name) + " " + port_argument(port);
    }
    if (driver == "net_memif") {
        const std::string role = value("role"), socket = value("socket"), id = value("id");
        const bool server = role == "server" || role == "master";
        return driver + (server ? " server " : " client ") + (socket.empty() ? "/run/memif.sock" : socket) + " " +
               (id.empty() ? "0" : id);
    }
    if (driver == "net_vhost" || driver == "net_tap") return driver + " " + value("iface");
    if (driver == "net_af_xdp") return driver + " " + value("iface") + " " + value("start_queue");
    if (driver == "net_af_packet" && !config.addresses.empty())
        return driver + " " + value("iface") + " " + std::to_string(config.vlan.value_or(0)) + " " +
               config.addresses.front();
    if (driver == "net_virtio_user") return driver + " " + value("path");
    return is_pci(port) ? "pci " + pci_address(port) : std::string();
}

std::string PortClaim::taken_by_other(const DeviceConfig& config) {
    const std::string port = identity(config);
    const pid_t owner = port.empty() ? -1 : owner_of(name_of(port));
    return owner < 0 || owner == getpid() ? std::string() : refusal(config, owner);
}

std::optional<PortClaim> PortClaim::take(const DeviceConfig& config, std::string* error) {
    const std::string port = identity(config);
    if (port.empty()) return PortClaim(-1);
    const Name name = name_of(port);
    PortClaim claim(make_socket());
    // Without sockets there are no claims, and an error has to come from the driver.
    if (claim.socket_ < 0) return claim;
    if (bind(claim.socket_, name.get(), name.bytes) == 0 && listen(claim.socket_, SOMAXCONN) == 0) return claim;
    const pid_t owner = errno == EADDRINUSE ? owner_of(name) : -1;
    if (owner < 0) return PortClaim(-1);
    *error = refusal(config, owner);
    return std::nullopt;
}

void PortClaim::forget_questions() const {
    for (int question; (question = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) close(question);
}

PortClaim::PortClaim(PortClaim&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}

PortClaim::~PortClaim() {
    if (socket_ >= 0) close(socket_);
}

}  // namespace rove::datapath
