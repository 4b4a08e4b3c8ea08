// SPDX-License-Identifier: Apache-2.0
// A port that DPDK drives. It is configured, started, and restarted if its peer was lost. Units: bytes.
#pragma once

#include <rte_ethdev.h>
#include <rte_mempool.h>

#include <atomic>
#include <string>
#include <vector>

#include "port/device_config.h"
#include "port/kernel_interface/kernel_interface.h"
#include "port/port.h"

namespace rove::datapath {

// Returns the number of bytes that a buffer must hold for the ports that EAL has created for `devices`: the largest
// that one of their drivers requires, and a frame of Ethernet's usual MTU. Returns 0 if there are no such ports.
uint32_t least_buffer_bytes(const std::vector<DeviceConfig>& devices);

class EthdevPort final : public Port {
  public:
    explicit EthdevPort(uint16_t id) : Port(id) {}
    // Configures the port that EAL has created for `config`. If config.queues is 0, the port gets a pair of queues for
    // each of `pools`, one for each worker, up to its number of queues, or only one if the peer's process must have the
    // same number. If the file gives no mtu, config.mtu becomes the largest that the port has room for. A tap's signals
    // arrive at the calling thread from then on. Returns false on failure, with the reason in `*error`.
    bool open(DeviceConfig& config, const std::vector<rte_mempool*>& pools, std::string* error);

    std::unique_ptr<RxQueue> make_rx_queue(uint16_t queue) override;
    std::unique_ptr<TxQueue> make_tx_queue(uint16_t queue) override;
    // Starts the port if possible. A memif client whose server is missing stays stopped until restart().
    void start() override;
    void close() override;
    void stop() override;
    // A memif client of DPDK 22.11 does not try again by itself, neither if the server was missing at the start nor if
    // it was lost later.
    bool wants_restart(bool patience_over) const override {
        return !ready() && !is_held() && (!started_ || (memif_client_ && patience_over));
    }
    void restart() override;
    uint32_t rate_mbps() const override { return ready() ? rate_mbps_.load(std::memory_order_relaxed) : 0; }
    // The link of other drivers follows the kernel's carrier, which our start does not change.
    bool negotiates_link() const override { return started_ && has_carrier_ && !interface_.is_open(); }
    PortStatistics statistics() const override;
    uint32_t path_mtu() const override;
    std::optional<uint16_t> dpdk_id() const override { return dpdk_id_; }

  private:
    bool is_up() override;
    bool choose_mtu(const rte_eth_dev_info& info, DeviceConfig& config, uint32_t* mtu, std::string* error) const;
    int receive_at(const wire::MacAddress& mac);
    void receive_groups();

    std::string name_;
    uint16_t dpdk_id_ = RTE_MAX_ETHPORTS;
    bool memif_client_ = false;
    KernelInterface interface_;
    int start_result_ = 0;                // result of the last start, 0 or a negative errno
    std::atomic<bool> started_{false};    // relaxed, like held_
    std::atomic<uint32_t> rate_mbps_{0};  // rate of the link at the last is_up(); relaxed
};

}  // namespace rove::datapath
