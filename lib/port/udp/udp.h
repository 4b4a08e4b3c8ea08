// SPDX-License-Identifier: Apache-2.0
// "udp:ADDRESS" or "udp": RoCEv2 over the kernel's UDP sockets (udp_sockets.h), for any user, in any container, over
// whatever interface the kernel has. A frame is what workers build and read, so it gets headers in front when it
// comes, and loses them when it goes; the kernel routes, and finds neighbours. So nothing of ARP, ND, IGMP or MLD
// leaves, and a neighbour's MAC is one made of its address.
//
// The ICRC covers IPv4's identification. Ours is known: 0, or the number of the datagram among those that the kernel
// makes of one call. Others' is computed (wire/datagram.h), which leaves 16 bits of the ICRC's 32 as a check of IPv4
// packets from hosts that number them, beside the UDP checksum that the kernel looks at if the sender has made one.
// A packet with the number that is expected, as rove's have, is checked by all 32 bits.
#pragma once

#include <rte_mempool.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "port/device_config.h"
#include "port/event_loop.h"
#include "port/kernel_interface/kernel_interface.h"
#include "port/kernel_interface/udp_sockets.h"
#include "port/port.h"
#include "port/segmentation/segmentation.h"
#include "transport/quiescence.h"

namespace rove::datapath {

class UdpPort final : public Port {
  public:
    // A socket that RoCE comes to: of one of our addresses, or of a multicast group.
    struct Receiver {
        Receiver(const wire::Gid& to, const wire::MacAddress& to_mac, FileDescriptor socket)
            : address(to), mac(to_mac), ipv4(wire::is_ipv4_mapped(to)), file(std::move(socket)) {}

        const wire::Gid address;
        const wire::MacAddress mac;  // that frames to it have
        const bool ipv4;
        FileDescriptor file;
        uint32_t joined = 0;  // how many members its group has
    };
    // The worker reads them without a lock. What remove() returns may be destroyed after a grace period.
    class Receivers {
      public:
        static constexpr size_t kMost = 64;  // each costs every poll a system call

        Receivers() = default;
        ~Receivers();
        Receivers(const Receivers&) = delete;
        Receivers& operator=(const Receivers&) = delete;

        size_t size() const { return size_.load(std::memory_order_acquire); }  // pairs with add()
        // A worker that has read the size before a remove() may visit one receiver twice in that round.
        Receiver& operator[](size_t at) const { return *all_[at].load(std::memory_order_acquire); }
        // Returns null if there are kMost.
        Receiver* add(std::unique_ptr<Receiver> receiver);
        std::unique_ptr<Receiver> remove(const Receiver& receiver);

      private:
        std::array<std::atomic<Receiver*>, kMost> all_{};  // owned, those before size_
        std::atomic<size_t> size_{0};
    };
    // One of our addresses: two at most, of a family each.
    struct Local {
        wire::Gid address;
        bool ipv4;
        const Receiver* receiver;
        SourcePorts sources;
    };
    // `grace` is that of who polls the queues.
    UdpPort(uint16_t id, rte_mempool* pool, EventLoop& poller,
            transport::GracePeriod& grace = transport::NoReaders::instance())
        : Port(id), pool_(pool), event_loop_(poller), grace_(grace) {}
    // Takes the addresses in `config`. False, and says why in `*error`.
    bool open(const DeviceConfig& config, std::string* error);

    std::unique_ptr<RxQueue> make_rx_queue(uint16_t queue) override;
    std::unique_ptr<TxQueue> make_tx_queue(uint16_t queue) override;
    bool rings() const override { return true; }
    uint32_t path_mtu() const override { return path_mtu_; }
    void start() override;
    void stop() override { started_ = false; }
    void close() override;
    bool wants_restart(bool) const override { return !started_ && !is_held(); }
    void restart() override { start(); }
    bool needs_polling() const override { return false; }

    bool resolves_neighbours() const override { return true; }
    // Finds every destination that the kernel has a route to. Nothing is kept of it.
    std::optional<ResolvedNextHop> find(const wire::Gid& neighbour, int timeout_ms) override;
    bool answers_by_mac() const override { return true; }

    int join(const wire::Gid& group) override;
    void leave(const wire::Gid& group) override;

    void after_fork_in_child() override;
    PortStatistics statistics() const override;

  private:
    bool is_up() override;
    Receiver* receiver_of(const wire::Gid& group);

    rte_mempool* const pool_;
    EventLoop& event_loop_;
    transport::GracePeriod& grace_;
    Receivers receivers_;
    std::vector<Local> locals_;
    std::string name_;                      // in messages
    uint32_t path_mtu_ = Port::path_mtu();  // the largest that fits the interfaces'
    KernelInterface interface_;
    std::atomic<bool> started_{false};  // relaxed: as Port::held_
    FrameCounts received_, sent_;
    mutable std::mutex mutex_;  // held by who changes receivers, or reads them and is no worker. No grace period in it
    uint64_t missed_ = 0;       // by receivers that have gone
};

}  // namespace rove::datapath
