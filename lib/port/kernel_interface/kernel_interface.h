// SPDX-License-Identifier: Apache-2.0
// The interface of the kernel that a port sends through: what ethtool and the older calls tell of it. DPDK's
// net_af_packet and net_af_xdp (22.11) call the link up whatever becomes of it, and know nothing of the interface's MTU
// and of most of its filter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "wire/frame.h"

namespace rove::datapath {

class KernelInterface {
  public:
    KernelInterface() = default;
    ~KernelInterface();
    KernelInterface(const KernelInterface&) = delete;
    KernelInterface& operator=(const KernelInterface&) = delete;

    // From now on that with this index, in the calling thread's network namespace.
    void open(unsigned index);
    bool is_open() const { return socket_ >= 0; }

    // False as long as nothing is known: none is open, or its driver does not tell.
    bool lost_carrier() const;
    std::optional<uint32_t> mtu() const;  // bytes
    // In use; 1 if its driver does not tell.
    uint32_t rx_queues() const;
    // Has its filter pass frames to `mac`, and frames to all groups, until this object or the process ends. Of the
    // process alone: the interface's own address stays. Return false if the kernel refuses, and leave why in errno.
    bool receive_at(const wire::MacAddress& mac);
    bool receive_all_groups();

  private:
    bool join(uint16_t type, const wire::MacAddress& mac);

    int socket_ = -1;
    int filter_ = -1;  // a packet socket that receives nothing itself: filters are its memberships
    int index_ = 0;
    std::string name_;
};

}  // namespace rove::datapath
