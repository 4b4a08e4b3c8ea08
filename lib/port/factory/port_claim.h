// SPDX-License-Identifier: Apache-2.0
// Which process a port belongs to. Two that open one and the same would find it up, and one of them no peer: a memif's
// other end has one connection. Drivers say so late, in words of their own, or not at all; so whoever opens a port
// takes a name first, which the kernel gives to one process of a network namespace and frees when that ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "port/device_config.h"

namespace rove::datapath {

class PortClaim {
  public:
    // Takes the port of `config`. Null, with the reason in `*error`, if another process has it. What any number of
    // processes may open (a mesh, net_null) is nobody's, and the claim holds nothing.
    static std::optional<PortClaim> take(const DeviceConfig& config, std::string* error);
    // The same reason, without taking it; "" if the port is free, or this process's.
    static std::string taken_by_other(const DeviceConfig& config);

    PortClaim(PortClaim&& other) noexcept;
    PortClaim& operator=(PortClaim&&) = delete;
    ~PortClaim();

    // The descriptor at which other processes ask for the owner; -1 if the port is nobody's. Each question waits in its
    // queue until forget_questions(); it is readable if there are any.
    int file() const { return socket_; }
    void forget_questions() const;

    // What two configurations of the same port have in common; "" if it may be opened more than once. Through
    // net_af_packet several processes see all frames of an interface, so they only need addresses of their own (a
    // bridge has its members').
    static std::string identity(const DeviceConfig& config);

  private:
    explicit PortClaim(int socket) : socket_(socket) {}

    int socket_;  // bound to the name; -1: the port is nobody's
};

}  // namespace rove::datapath
