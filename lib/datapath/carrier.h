// SPDX-License-Identifier: Apache-2.0
// The carrier, and the MTU, of a kernel interface that a port sends through. AF_PACKET's and AF_XDP's drivers of DPDK
// 22.11 call the link up whatever becomes of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rove::datapath {

class Carrier {
  public:
    Carrier() = default;
    ~Carrier();
    Carrier(const Carrier&) = delete;
    Carrier& operator=(const Carrier&) = delete;

    // From now on that of the interface with this index, in the calling thread's network namespace.
    void watch(unsigned index);
    // False as long as nothing is known: nothing is watched, or its driver does not tell.
    bool lost() const;
    // The interface's MTU, bytes; none if nothing is watched.
    std::optional<uint32_t> mtu() const;

  private:
    int socket_ = -1;
    std::string interface_;
};

}  // namespace rove::datapath
