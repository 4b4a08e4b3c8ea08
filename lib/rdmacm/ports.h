// SPDX-License-Identifier: Apache-2.0
// The ports that rdma_cm's ids are bound to. Nobody else shares our addresses, so one space per port space and process
// is all there is.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <utility>

#include "rdmacm/address.h"

namespace rove::verbs::ucma {

class Ports {
  public:
    // What Linux takes where a program names no port (net.ipv4.ip_local_port_range).
    static constexpr uint16_t kFirstEphemeral = 32768, kLastEphemeral = 60999;

    explicit Ports(uint64_t seed) : random_(seed) {}

    struct Binding {
        SocketAddress address;   // perhaps a wildcard, perhaps port 0
        bool reuse = false;      // RDMA_OPTION_ID_REUSEADDR
        bool ipv6_only = false;  // RDMA_OPTION_ID_AFONLY
        bool listens = false;
    };
    // Binds `owner`, which is bound to nothing; of port 0, to one that is free, which is then in `binding.address`.
    // Returns 0, EADDRINUSE (an overlapping address has it, and not both may share) or EADDRNOTAVAIL (all ephemeral
    // ports are taken).
    int bind(uint16_t port_space, Binding& binding, const void* owner);
    // `owner` is about to listen: it shares its port with nobody from now on. EADDRINUSE: somebody has it too.
    int listen(uint16_t port_space, uint16_t port, const void* owner);
    void release(uint16_t port_space, uint16_t port, const void* owner);

  private:
    using Key = std::pair<uint16_t, uint16_t>;  // port space, port
    struct Bound {
        const void* owner;
        Binding binding;
    };
    bool is_free(const Key& key, const Binding& binding, const void* owner) const;

    std::multimap<Key, Bound> bound_;
    std::mt19937_64 random_;
};

}  // namespace rove::verbs::ucma
