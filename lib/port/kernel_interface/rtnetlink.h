// SPDX-License-Identifier: Apache-2.0
// The kernel's knowledge of one of its interfaces and of the hosts behind it, read by rtnetlink(7). Any thread may call
// this; a call takes one or two system calls. Units: bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "link/address.h"
#include "wire/frame.h"

namespace rove::datapath {

class Rtnetlink {
  public:
    // Opens the interface of this name, in the calling thread's network namespace. Returns nothing, with the reason in
    // `*error`, if there is no such interface.
    static std::optional<Rtnetlink> open(const std::string& interface, std::string* error);

    unsigned index() const { return index_; }

    struct Link {
        bool is_ethernet = false, is_up = false;  // up: enabled by the administrator, and with a carrier
        uint32_t mtu = 0;                         // limit of an IP packet
        wire::MacAddress mac{};
    };
    std::optional<Link> link() const;
    // Returns the addresses that can be used. An IPv6 address can be used once no other host was found to have it.
    std::vector<Subnet> addresses() const;
    // Returns the neighbour that a packet to `destination` is handed to: the destination itself, or a gateway. Returns
    // nothing if no route leads there over this interface.
    std::optional<wire::Gid> next_hop(const wire::Gid& destination) const;
    // Returns the MAC of a neighbour, as far as the kernel believes it.
    std::optional<wire::MacAddress> neighbour(const wire::Gid& address) const;
    // Acts as if the kernel had a packet for the neighbour. The kernel then looks for an unknown neighbour, and soon
    // asks again for one that has been silent for long.
    void use(const wire::Gid& neighbour) const;
    // Makes the kernel ask at once, at the neighbour's last known MAC.
    void probe(const wire::Gid& neighbour) const;

    // Returns the file that announces changes, which take_changes() reads.
    int changes() const { return changes_.get(); }
    struct Changes {
        bool link = false, addresses = false;
        struct Neighbour {
            wire::Gid address{};
            std::optional<wire::MacAddress> mac;  // nothing if the neighbour was lost
        };
        std::vector<Neighbour> neighbours;
        bool incomplete = false;  // some changes were missed, so anything may have changed
    };
    Changes take_changes() const;

    // Closes the file in a forked child.
    void close();

  private:
    Rtnetlink() = default;

    unsigned index_ = 0;
    FileDescriptor changes_;
};

}  // namespace rove::datapath
