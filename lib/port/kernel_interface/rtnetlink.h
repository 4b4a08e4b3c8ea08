// SPDX-License-Identifier: Apache-2.0
// What the kernel knows of one of its interfaces and of who is reached through it, asked and told by rtnetlink(7).
// Any thread; a call is a system call or two. Units: bytes.
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
    // Of the interface of this name, in the calling thread's network namespace. Nothing, with the reason in `*error`,
    // if there is none.
    static std::optional<Rtnetlink> open(const std::string& interface, std::string* error);

    unsigned index() const { return index_; }

    struct Link {
        bool is_ethernet = false, is_up = false;  // up: by the administrator, and there is a carrier
        uint32_t mtu = 0;                         // of IP packets
        wire::MacAddress mac{};
    };
    std::optional<Link> link() const;
    // Those that can be used: an IPv6 address is one after nobody else was found to have it.
    std::vector<Subnet> addresses() const;
    // Whom a packet to `destination` is handed to: itself, or a gateway. Nothing: no route leads there over this
    // interface.
    std::optional<wire::Gid> next_hop(const wire::Gid& destination) const;
    // Where a neighbour is, as far as the kernel believes it.
    std::optional<wire::MacAddress> neighbour(const wire::Gid& address) const;
    // As if the kernel had a packet for it: it looks for who is not known, and soon again for who has been silent for
    // long.
    void use(const wire::Gid& neighbour) const;
    // It asks at once, where the neighbour was last.
    void probe(const wire::Gid& neighbour) const;

    // What changes is told through this file, to be read by take_changes().
    int changes() const { return changes_.get(); }
    struct Changes {
        bool link = false, addresses = false;
        struct Neighbour {
            wire::Gid address{};
            std::optional<wire::MacAddress> mac;  // none: it is lost
        };
        std::vector<Neighbour> neighbours;
        bool incomplete = false;  // some were missed: anything may have changed
    };
    Changes take_changes() const;

    // In a forked child.
    void close();

  private:
    Rtnetlink() = default;

    unsigned index_ = 0;
    FileDescriptor changes_;
};

}  // namespace rove::datapath
