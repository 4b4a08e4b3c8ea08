// SPDX-License-Identifier: Apache-2.0
// The objects of the process that a port uses.
#pragma once

#include <cstdint>

#include "transport/quiescence.h"

struct rte_mempool;

namespace rove::datapath {

class EventLoop;
class LinkObserver;

struct PortEnvironment {
    EventLoop& poller;
    LinkObserver& user;
    rte_mempool* pool;
    uint32_t frame_bytes;     // the most that a frame of the port can have
    bool for_bridge = false;  // the addresses belong to other hosts, and the bridge does ARP and ND (interface.h)
    transport::GracePeriod& grace = transport::NoReaders::instance();  // the workers' grace period
};

}  // namespace rove::datapath
