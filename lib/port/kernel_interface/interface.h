// SPDX-License-Identifier: Apache-2.0
// The port "interface:NAME", an interface that stays with the kernel. RoCEv2 that arrives there is ours, and all other
// frames are the kernel's. The addresses, routes and neighbours are the kernel's too, and we ask for them.
//
// Frames are received and sent through AF_PACKET, with GSO and GRO (packet_queue.h). If the interface has several RX
// queues and its driver has XDP, frames are received through AF_XDP (xdp_queue.h), with a socket for each queue. Frames
// in RX queues beyond those, which XDP leaves to the kernel, are received through AF_PACKET. Nothing of this outlives
// the process.
//
// For a bridge, too, the interface stays with the kernel. But the addresses belong to the bridge's members, so the
// bridge does ARP and ND, and its members do IGMP and MLD.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "port/device_config.h"
#include "port/kernel_interface/kernel_interface.h"
#include "port/kernel_interface/kernel_queue.h"
#include "port/kernel_interface/packet_queue.h"
#include "port/kernel_interface/rtnetlink.h"
#include "port/kernel_interface/xdp_program.h"
#include "port/memif/link_port.h"
#include "port/port.h"

namespace rove::datapath {

class InterfacePort final : public Port {
  public:
    InterfacePort(uint16_t id, const PortEnvironment& environment)
        : Port(id), event_loop_(environment.poller), user_(environment.user), for_bridge_(environment.for_bridge) {}
    // Adds the interface's addresses to `config`, and lowers its MTU to one that the interface carries. Each queue
    // belongs to the worker whose pool it uses. Returns false on failure, with the reason in `*error`.
    bool open(DeviceConfig& config, const std::vector<rte_mempool*>& pools, std::string* error);

    std::unique_ptr<RxQueue> make_rx_queue(uint16_t queue) override { return std::move(opened_[queue]); }
    std::unique_ptr<TxQueue> make_tx_queue(uint16_t queue) override { return std::move(opened_senders_[queue]); }
    bool rings() const override { return true; }

    void start() override;
    void stop() override { started_ = false; }
    void close() override;
    bool wants_restart(bool) const override { return !started_ && !is_held(); }
    void restart() override { start(); }
    bool needs_polling() const override { return false; }
    void after_fork_in_child() override;

    uint32_t path_mtu() const override { return path_mtu_.load(std::memory_order_relaxed); }
    bool has_kernel_stack() const override { return !for_bridge_; }
    bool resolves_neighbours() const override { return !for_bridge_; }
    std::optional<ResolvedNextHop> find(const wire::Gid& destination, int timeout_ms) override;
    void suspect(const wire::Gid& destination) override;
    std::optional<std::vector<Subnet>> take_addresses() override;
    int join(const wire::Gid& group) override;
    void leave(const wire::Gid& group) override;

    PortStatistics statistics() const override;

  private:
    bool is_up() override;
    // Returns the addresses in the order of verbs: a link-local one first, then IPv4, then IPv6.
    std::vector<Subnet> read_addresses() const;
    // Sets the addresses whose frames XDP takes from the kernel.
    void take_frames_to(const std::vector<Subnet>& addresses);
    bool open_xdp(uint32_t frame_bytes, const std::vector<rte_mempool*>& pools, std::string* error);
    void take_changes();
    void serve_other_queues();

    EventLoop& event_loop_;
    LinkObserver& user_;
    const bool for_bridge_;
    std::string name_;
    std::optional<Rtnetlink> kernel_;
    KernelInterface interface_;
    std::unique_ptr<XdpProgram> program_;  // null with AF_PACKET
    uint32_t xdp_queues_ = 0;              // RX queues that have an AF_XDP socket
    PacketQueue* other_queues_ = nullptr;  // for the frames of the other RX queues, with XDP
    bool serves_other_queues_ = false;     // for the housekeeping thread only
    // The queues, until the workers have taken them.
    std::vector<std::unique_ptr<KernelQueue>> opened_;
    std::vector<std::unique_ptr<PacketSender>> opened_senders_;
    std::vector<KernelQueue*> receivers_;
    std::vector<PacketSender*> senders_;
    std::set<wire::Gid> taken_;
    std::atomic<uint32_t> path_mtu_{UINT32_MAX};
    std::atomic<bool> started_{false}, addresses_changed_{false};  // relaxed, like Port::held_
    // The time of the last probe, which any worker may make.
    std::atomic<std::chrono::steady_clock::time_point> probed_{};

    std::mutex mutex_;  // guards the members that follow
    std::condition_variable learnt_;
    std::map<wire::Gid, std::shared_ptr<transport::NextHop>> next_hops_;  // keyed by neighbour
    struct Group {
        FileDescriptor file;  // a socket that has joined it
        uint32_t joined = 0;  // number of its members
    };
    std::map<wire::Gid, Group> groups_;
};

}  // namespace rove::datapath
