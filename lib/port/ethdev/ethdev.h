// SPDX-License-Identifier: Apache-2.0
// A port that DPDK drives: configured, started, restarted when its peer went away. Units: bytes.
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

// The bytes that a buffer must hold for the ports that EAL has made for `config`: the most that one of their drivers
// asks for, and a frame of Ethernet's usual MTU. 0 without such ports.
uint32_t least_buffer_bytes(const std::vector<DeviceConfig>& devices);

class EthdevPort final : public Port {
  public:
    explicit EthdevPort(uint16_t id) : Port(id) {}
    // Configures the port that EAL made for `config`. Without config.queues it gets a queue pair for each of `pools`, a
    // worker's each, where it has as many; but one, if the peer's process must have the same number. Where the file
    // gives no mtu, config.mtu becomes the largest that the port has room for. A tap's signals come to the calling
    // thread from then on. Returns false and says why.
    bool open(DeviceConfig& config, const std::vector<rte_mempool*>& pools, std::string* error);

    std::unique_ptr<RxQueue> make_rx_queue(uint16_t queue) override;
    std::unique_ptr<TxQueue> make_tx_queue(uint16_t queue) override;
    // Starts it, or tries: a memif client whose server is not there yet stays stopped until restart().
    void start() override;
    void close() override;
    void stop() override;
    // A memif client of 22.11 does not try again by itself: not when the server was missing at start, and not when it
    // went away.
    bool wants_restart(bool patience_over) const override {
        return !ready() && !is_held() && (!started_ || (memif_client_ && patience_over));
    }
    void restart() override;
    uint32_t rate_mbps() const override { return ready() ? rate_mbps_.load(std::memory_order_relaxed) : 0; }
    // Those of other drivers follow the kernel's carrier, which our start leaves alone.
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
    int start_result_ = 0;                // of the last start: a negative errno
    std::atomic<bool> started_{false};    // relaxed: as held_
    std::atomic<uint32_t> rate_mbps_{0};  // of the link when is_up() asked for it; relaxed
};

}  // namespace rove::datapath
