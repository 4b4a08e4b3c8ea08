// SPDX-License-Identifier: Apache-2.0
// The kernel's interface through which a port sends, as ethtool and the older calls describe it. DPDK's net_af_packet
// and net_af_xdp (22.11) always report the link as up, and know neither the interface's MTU nor most of its filter.
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

    // Selects the interface with this index, in the calling thread's network namespace.
    void open(unsigned index);
    bool is_open() const { return socket_ >= 0; }

    // Returns true if the carrier is known to be lost. Returns false while nothing is known, because no interface is
    // open or its driver does not report the carrier.
    bool lost_carrier() const;
    std::optional<uint32_t> mtu() const;  // bytes
    // Returns the number of RX queues in use, or 1 if the driver does not report it.
    uint32_t rx_queues() const;
    // Makes the interface's filter pass frames to `mac`, or frames to all groups, until this object or the process
    // ends. This concerns the process alone: the interface's own address stays. Returns false and sets errno if the
    // kernel refuses.
    bool receive_at(const wire::MacAddress& mac);
    bool receive_all_groups();

  private:
    bool join(uint16_t type, const wire::MacAddress& mac);

    int socket_ = -1;
    int filter_ = -1;  // a packet socket that receives nothing itself: its memberships are the filter
    int index_ = 0;
    std::string name_;
};

}  // namespace rove::datapath
