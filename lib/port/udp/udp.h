// SPDX-License-Identifier: Apache-2.0
// The port "udp:ADDRESS" or "udp": RoCEv2 over the kernel's UDP sockets (udp_sockets.h), for any user, in any
// container, over any interface of the kernel. Workers build and read whole frames, so a datagram that arrives gets
// headers in front, and a frame that leaves loses them. The kernel routes and finds neighbours. So no ARP, ND, IGMP or
// MLD leaves the port, and the MAC of a neighbour is derived from its address.
//
// The ICRC covers IPv4's identification. Ours is known: it is 0, or the number of the datagram among those that the
// kernel makes of one call. That of other senders is computed (wire/datagram.h). If they number their packets, this
// leaves 16 of the ICRC's 32 bits as a check, in addition to the UDP checksum, which the kernel verifies if the sender
// has made one. A packet with the expected number, as rove's have, is checked by all 32 bits.
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
    // A socket that receives RoCE for one of our addresses or for a multicast group.
    struct Receiver {
        Receiver(const wire::Gid& to, const wire::MacAddress& to_mac, FileDescriptor socket)
            : address(to), mac(to_mac), ipv4(wire::is_ipv4_mapped(to)), file(std::move(socket)) {}

        const wire::Gid address;
        const wire::MacAddress mac;  // destination MAC of its frames
        const bool ipv4;
        FileDescriptor file;
        uint32_t joined = 0;  // number of its group's members
    };
    // The receivers, which the worker reads without a lock. An object that remove() has returned may be destroyed after
    // a grace period.
    class Receivers {
      public:
        static constexpr size_t kMost = 64;  // each adds a system call to every poll

        Receivers() = default;
        ~Receivers();
        Receivers(const Receivers&) = delete;
        Receivers& operator=(const Receivers&) = delete;

        size_t size() const { return size_.load(std::memory_order_acquire); }  // pairs with add()
        // Returns one receiver. A worker that has read the size before a remove() may visit a receiver twice in that
        // round.
        Receiver& operator[](size_t at) const { return *all_[at].load(std::memory_order_acquire); }
        // Adds a receiver. Returns null if there are kMost already.
        Receiver* add(std::unique_ptr<Receiver> receiver);
        std::unique_ptr<Receiver> remove(const Receiver& receiver);

      private:
        std::array<std::atomic<Receiver*>, kMost> all_{};  // the first size_ are owned
        std::atomic<size_t> size_{0};
    };
    // One of our addresses. There are at most two, one of each family.
    struct Local {
        wire::Gid address;
        bool ipv4;
        const Receiver* receiver;
        SourcePorts sources;
    };
    // `grace` is the grace period of the worker that polls the queues.
    UdpPort(uint16_t id, rte_mempool* pool, EventLoop& poller,
            transport::GracePeriod& grace = transport::NoReaders::instance())
        : Port(id), pool_(pool), event_loop_(poller), grace_(grace) {}
    // Opens sockets for the addresses in `config`. Returns false on failure, with the reason in `*error`.
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
    // Finds every destination to which the kernel has a route. The port keeps no state for it.
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
    std::string name_;                      // for messages
    uint32_t path_mtu_ = Port::path_mtu();  // the largest that fits the interfaces
    KernelInterface interface_;
    std::atomic<bool> started_{false};  // relaxed, like Port::held_
    FrameCounts received_, sent_;
    mutable std::mutex mutex_;  // guards receivers_, except against the worker's reads; not held during a grace period
    uint64_t missed_ = 0;       // datagrams that removed receivers have missed
};

}  // namespace rove::datapath
