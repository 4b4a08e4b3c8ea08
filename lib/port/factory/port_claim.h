// SPDX-License-Identifier: Apache-2.0
// Makes sure that a port belongs to one process. If two processes opened the same port, both would find it up, and one
// of them would have no peer: the other end of a memif has one connection. Drivers report this late, in their own
// words, or not at all. So a process takes a name before it opens a port. The kernel gives the name to one process of a
// network namespace, and frees it when that process ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "port/device_config.h"

namespace rove::datapath {

class PortClaim {
  public:
    // Claims the port of `config`. Returns null, with the reason in `*error`, if another process has it. A port that
    // any number of processes may open (a mesh, net_null) has no owner, and its claim holds nothing.
    static std::optional<PortClaim> take(const DeviceConfig& config, std::string* error);
    // Returns the same reason without claiming the port, or "" if the port is free or belongs to this process.
    static std::string taken_by_other(const DeviceConfig& config);

    PortClaim(PortClaim&& other) noexcept;
    PortClaim& operator=(PortClaim&&) = delete;
    ~PortClaim();

    // Returns the descriptor at which other processes ask for the owner, or -1 if the port has no owner. It can be read
    // if there are questions, which stay in its queue until forget_questions().
    int file() const { return socket_; }
    void forget_questions() const;

    // Returns the text that all configurations of one port have in common, or "" if the port may be opened more than
    // once. With net_af_packet several processes see all frames of an interface, so they only need addresses of their
    // own (a bridge has its members' addresses).
    static std::string identity(const DeviceConfig& config);

  private:
    explicit PortClaim(int socket) : socket_(socket) {}

    int socket_;  // bound to the name; -1 if the port has no owner
};

}  // namespace rove::datapath
