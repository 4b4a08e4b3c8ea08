// SPDX-License-Identifier: Apache-2.0
// "interface:NAME": an interface of the kernel, which keeps it. RoCEv2 that comes to it is ours, all else the kernel's,
// and so are the addresses, the routes and the neighbours, which we ask it for.
//
// Frames come in and go out by AF_PACKET, in trains (packet_queue.h). Of an interface with several RX queues, whose
// driver has XDP, they come in by AF_XDP (xdp_queue.h), a socket a queue; what comes to RX queues beyond those, which
// XDP leaves to the kernel, comes in by AF_PACKET. Nothing of it outlives the process.
//
// For a bridge the interface is the kernel's, too, but the addresses are those of the bridge's members, so ARP and ND
// are the bridge's, and IGMP and MLD its members'.
#pragma once

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
    InterfacePort(uint16_t id, const LinkPort::Environment& environment)
        : Port(id), event_loop_(environment.poller), user_(environment.user), for_bridge_(environment.for_bridge) {}
    // Fills in the addresses of `config`, and lowers its MTU to what the interface carries. Each queue is of the worker
    // whose pool it is. False, and says why in `*error`.
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
    // In the order of verbs: first a link-local one, then IPv4, then IPv6.
    std::vector<Subnet> read_addresses() const;
    // What XDP takes from the kernel.
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
    std::unique_ptr<XdpProgram> program_;  // null: AF_PACKET
    uint32_t xdp_queues_ = 0;              // RX queues that have an AF_XDP socket
    PacketQueue* other_queues_ = nullptr;  // of the frames of the others, with XDP
    bool serves_other_queues_ = false;     // by the housekeeping thread
    // Of the workers, as soon as they have taken them.
    std::vector<std::unique_ptr<KernelQueue>> opened_;
    std::vector<std::unique_ptr<PacketSender>> opened_senders_;
    std::vector<KernelQueue*> receivers_;
    std::vector<PacketSender*> senders_;
    std::set<wire::Gid> taken_;
    std::atomic<uint32_t> path_mtu_{UINT32_MAX};
    std::atomic<bool> started_{false}, addresses_changed_{false};  // relaxed: as Port::held_
    std::chrono::steady_clock::time_point probed_{};               // of the worker whose requests were last suspected

    std::mutex mutex_;  // guards what follows
    std::condition_variable learnt_;
    std::map<wire::Gid, std::shared_ptr<transport::NextHop>> next_hops_;  // by neighbour
    struct Group {
        FileDescriptor file;  // a socket that is in it
        uint32_t joined = 0;  // how many members it has
    };
    std::map<wire::Gid, Group> groups_;
};

}  // namespace rove::datapath
