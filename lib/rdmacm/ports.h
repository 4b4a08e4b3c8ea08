// SPDX-License-Identifier: Apache-2.0
// The ports to which rdma_cm's ids are bound. No other process shares the addresses of rove's devices, so each process
// has its own ports in each port space.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <utility>

#include "rdmacm/address.h"

namespace rove::verbs::ucma {

class Ports {
  public:
    // The ports that Linux assigns if a program names no port (net.ipv4.ip_local_port_range).
    static constexpr uint16_t kFirstEphemeral = 32768, kLastEphemeral = 60999;

    explicit Ports(uint64_t seed) : random_(seed) {}

    struct Binding {
        SocketAddress address;   // may be a wildcard, and may have port 0
        bool reuse = false;      // RDMA_OPTION_ID_REUSEADDR
        bool ipv6_only = false;  // RDMA_OPTION_ID_AFONLY
        bool listens = false;
    };
    // Binds `owner`, which must not be bound. Port 0 selects a free port, which is written to `binding.address`.
    // Returns 0, EADDRINUSE (an overlapping address has the port, and they may not share it) or EADDRNOTAVAIL (no
    // ephemeral port is free).
    int bind(uint16_t port_space, Binding& binding, const void* owner);
    // Marks `owner` as listening, so that it no longer shares its port. Returns 0, EADDRINUSE if another owner has the
    // port too, or EINVAL if `owner` is not bound to it.
    int listen(uint16_t port_space, uint16_t port, const void* owner);
    void release(uint16_t port_space, uint16_t port, const void* owner);

  private:
    using Key = std::pair<uint16_t, uint16_t>;  // port space and port
    struct Bound {
        const void* owner;
        Binding binding;
    };
    bool is_free(const Key& key, const Binding& binding, const void* owner) const;

    std::multimap<Key, Bound> bound_;
    std::mt19937_64 random_;
};

}  // namespace rove::verbs::ucma
