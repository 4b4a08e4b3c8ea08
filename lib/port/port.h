// SPDX-License-Identifier: Apache-2.0
// The interface of a port, as workers and the runtime see it: queues that receive and send frames, and the state of the
// link. Each implementation decides how frames move. ethdev.h uses DPDK's drivers, udp.h and interface.h use the
// kernel, and memif.h and mesh.h use memory that is shared with another process. Units: frames, bytes.
#pragma once

#include <rte_mbuf.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "link/address.h"
#include "port/counters.h"
#include "transport/queue_pair.h"
#include "wire/frame.h"

namespace rove::datapath {

// The number of descriptors in a port's ring, where the port does not choose it itself. (DPDK's net_memif has its
// argument `rsize` instead.)
inline constexpr uint16_t kDescriptors = 1024;

// The source of a worker's frames. Only the thread that holds the worker's drive lock calls it.
class RxQueue {
  public:
    // The largest burst, in frames. Bursts of 8 or 16 were slower. A burst of 64 made rc's 8-byte SENDs 8 % faster, but
    // mp's 8-byte WRITEs 5 % slower and large WRITEs over many QPs 10 % slower.
    static constexpr uint16_t kBurst = 32;

    explicit RxQueue(bool is_zero_copy) : zero_copy_(is_zero_copy) {}
    virtual ~RxQueue() = default;
    RxQueue(const RxQueue&) = delete;
    RxQueue& operator=(const RxQueue&) = delete;

    // Receives up to kBurst frames and returns their number. A zero-copy queue leaves the frames where the peer has
    // built them, so the peer can still change them. Their mbufs belong to no pool, and release() returns all of them
    // together. The frames of other queues belong to the caller.
    virtual uint16_t burst(rte_mbuf** frames) = 0;
    virtual void release() {}
    bool is_zero_copy() const { return zero_copy_; }

    // Makes the next frame ring the doorbell (Port::rings()), because the polling thread is about to sleep. Returns
    // false if a frame is already there.
    virtual bool arm() { return true; }
    virtual void disarm() {}

  private:
    const bool zero_copy_;
};

// The destination of a worker's frames that were built in mbufs.
class TxQueue {
  public:
    TxQueue() = default;
    virtual ~TxQueue() = default;
    TxQueue(const TxQueue&) = delete;
    TxQueue& operator=(const TxQueue&) = delete;

    // The burst that the port wants to be handed at once, limited in frames and in bytes. 8 frames of 4 KiB stay in or
    // near L1 from when they are built until they are sent: 1 MiB WRITEs over memif ran at 5.6-6.4 GB/s with 4 or 8
    // frames, and at 5.1-5.3 with 16 or 32. A memif whose peer runs on a far core accepts 32 small frames for few more
    // cache misses than 8.
    static constexpr uint16_t kMaxBurst = 64;
    struct Burst {
        uint16_t frames = 32;  // at most kMaxBurst
        uint32_t bytes = 8 * 4096;
    };
    virtual Burst wanted() const { return {}; }
    // Accepts the first of `frames` and returns their number. The other frames stay the caller's.
    virtual uint16_t burst(rte_mbuf** frames, uint16_t count) = 0;
};

class Port {
  public:
    explicit Port(uint16_t id) : id_(id) {}
    virtual ~Port() = default;
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;

    uint16_t id() const { return id_; }  // index among the runtime's ports
    uint16_t queues() const { return queues_; }
    const wire::MacAddress& mac() const { return mac_; }  // the port's own; zero if it has no MAC for us
    // Returns the largest path MTU that all paths through the port carry, as far as the port knows.
    virtual uint32_t path_mtu() const { return UINT32_MAX; }
    // Returns true if a frame can be sent. Workers read it. It is written while they are paused, or by the housekeeping
    // thread.
    bool ready() const { return ready_.load(std::memory_order_relaxed); }
    // Returns true if the link has a carrier. A link between processes has no carrier: it is up whether or not the peer
    // runs.
    bool has_carrier() const { return has_carrier_; }
    // Returns the rate of the link in Mb/s, or 0 if there is no link or the driver does not report its rate.
    virtual uint32_t rate_mbps() const { return 0; }
    // Returns true if the link comes up only some time after start(), like that of a NIC which DPDK has taken from the
    // kernel.
    virtual bool negotiates_link() const { return false; }

    // Creates the queue of this number, for one worker. Returns null if the port's rings come and go with its peers
    // (link_port.h).
    virtual std::unique_ptr<RxQueue> make_rx_queue(uint16_t queue) = 0;
    virtual std::unique_ptr<TxQueue> make_tx_queue(uint16_t queue) = 0;
    // Returns true if a frame that arrives at an armed RxQueue ends the sleep of the progress thread. Otherwise that
    // thread has to poll.
    virtual bool rings() const { return false; }

    virtual void start() = 0;
    virtual void close() = 0;
    // Holds the port, or releases it. A held port is not ready and is not started. Call stop() while the port is held
    // and no worker is inside it.
    void hold(bool held) {
        held_.store(held, std::memory_order_relaxed);
        if (held) ready_.store(false, std::memory_order_relaxed);
    }
    virtual void stop() = 0;
    // Reads the link state, for housekeeping. Returns true if it has changed.
    bool poll_link() {
        const bool up = !held_.load(std::memory_order_relaxed) && is_up();
        return ready_.exchange(up, std::memory_order_relaxed) != up;
    }
    // Returns true if the port should be restarted. `patience_over` says that the last start has had enough time to
    // succeed.
    virtual bool wants_restart(bool /*patience_over*/) const { return false; }
    // Restarts the port. Call it only while the port is not ready() and no worker is inside it.
    virtual void restart() {}
    // Returns true if housekeeping has to poll the link state from time to time, because nothing reports its changes.
    virtual bool needs_polling() const { return true; }

    // Returns true if the kernel uses the same link with our addresses (interface.h). The kernel then has the routes,
    // answers ARP, ND and echo requests, and reports multicast groups.
    virtual bool has_kernel_stack() const { return false; }

    // The result of find(). Some ports find neighbours themselves, without our ARP and ND (mesh.h, interface.h). find()
    // waits up to `timeout_ms` for a path to a neighbour or, where the kernel has the routes, to any destination. If
    // there is no path, it returns nothing and sets errno to EHOSTUNREACH or to the error of a resource that this
    // process lacks. Any thread but a worker may call it.
    struct ResolvedNextHop {
        uint16_t outlet;  // for Path::outlet
        std::shared_ptr<const transport::NextHop> next_hop;
    };
    virtual bool resolves_neighbours() const { return false; }
    virtual std::optional<ResolvedNextHop> find(const wire::Gid& /*neighbour*/, int /*timeout_ms*/) {
        errno = EHOSTUNREACH;
        return std::nullopt;
    }
    // Tells the port that a destination which find() has found does not answer requests. A worker calls it.
    virtual void suspect(const wire::Gid& /*destination*/) {}
    // Returns the addresses of the kernel's stack if they have changed since the last call.
    virtual std::optional<std::vector<Subnet>> take_addresses() { return std::nullopt; }
    // Returns true if frames to a neighbour need only its MAC, so that a reply to the source MAC of a request needs no
    // find().
    virtual bool answers_by_mac() const { return false; }
    // Makes one of our QPs a member of a multicast group. Each join() that succeeds is followed by one leave(). Returns
    // 0 or an errno; on failure, nothing is received for the group. Workers do not call join() or leave().
    virtual int join(const wire::Gid& /*group*/) { return 0; }
    virtual void leave(const wire::Gid& /*group*/) {}
    // Prepares for frames to and from groups, for which every host is a neighbour.
    virtual void resolve_all() {}

    virtual void after_fork_in_child() {}

    virtual PortStatistics statistics() const = 0;
    // Returns DPDK's number of the port if DPDK drives it.
    virtual std::optional<uint16_t> dpdk_id() const { return std::nullopt; }

  protected:
    virtual bool is_up() = 0;
    bool is_held() const { return held_.load(std::memory_order_relaxed); }

    uint16_t queues_ = 1;
    bool has_carrier_ = false;
    wire::MacAddress mac_{};

  private:
    const uint16_t id_;
    // Both are relaxed. They are written under Runtime::port_control(), and where it matters they are read again under
    // it. A stale `ready_` sends a frame to a port that accepts none, or drops a frame that the port would have
    // accepted.
    std::atomic<bool> held_{false}, ready_{false};
};

}  // namespace rove::datapath
