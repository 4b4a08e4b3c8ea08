// SPDX-License-Identifier: Apache-2.0
// A DPDK port: configured, started, restarted when its peer went away. Units: bytes.
#pragma once

#include <rte_ethdev.h>
#include <rte_mempool.h>

#include <atomic>
#include <string>
#include <vector>

#include "datapath/carrier.h"
#include "datapath/config.h"
#include "wire/frame.h"

namespace rove::datapath {

class Port {
  public:
    // Configures the port that EAL made for `config`. Without config.queues it gets a queue pair for each of `pools`, a
    // worker's each, where it has as many; but one, if the peer's process must have the same number. A tap's signals
    // come to the calling thread from then on. Returns false and says why.
    bool open(const DeviceConfig& config, const std::vector<rte_mempool*>& pools, std::string* error);
    // Starts it, or tries: a memif client whose server is not there yet stays stopped until restart().
    void start();
    void close();
    // Held: not ready, and not started before it is let go. stop() while it is held and no worker is inside it.
    void hold(bool held);
    void stop();

    uint16_t id() const { return id_; }
    uint16_t queues() const { return queues_; }
    const wire::MacAddress& mac() const { return mac_; }  // the port's own; zero if it has none for us
    // Whether a frame can be sent. Workers read it; written while they are paused or by the housekeeping thread.
    bool ready() const { return ready_.load(std::memory_order_relaxed); }
    // Ports between processes have no carrier: their link is up whether or not the peer runs.
    bool has_carrier() const { return !peer_to_peer_; }

    // Housekeeping: reads the link state. Returns true if it changed.
    bool poll_link();
    // A memif client of 22.11 does not try again by itself: not when the server was missing at start, and not when it
    // went away. `patience_over`: the last start had time enough to succeed.
    bool wants_restart(bool patience_over) const {
        return !ready() && !held_.load(std::memory_order_relaxed) && (!started_ || (memif_client_ && patience_over));
    }
    // Only while the port is not ready() and no worker is inside it.
    void restart();

  private:
    uint16_t id_ = RTE_MAX_ETHPORTS;
    uint16_t queues_ = 0;
    bool peer_to_peer_ = false;
    bool memif_client_ = false;
    Carrier carrier_;
    // Both relaxed: written, and read again where it counts, under Runtime::port_control().
    std::atomic<bool> started_{false}, held_{false};
    wire::MacAddress mac_{};
    // Relaxed everywhere: a late reading sends a frame to a port that takes none, or drops one that it would have
    // taken.
    std::atomic<bool> ready_{false};
};

}  // namespace rove::datapath
