// SPDX-License-Identifier: Apache-2.0
// A port, as workers and the runtime see it: queues of frames, and whether its link is up. How frames come and go is an
// implementation's own: ethdev.h (all that DPDK drives), memif.h and mesh.h (memory shared with another process).
// Units: frames, bytes.
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

// The descriptors of a port's ring, where the port does not choose the number itself. (memif has `rsize`.)
inline constexpr uint16_t kDescriptors = 1024;

// Where a worker takes frames from. Only the holder of its drive lock calls it.
class RxQueue {
  public:
    // Frames that a burst has at most. 8 or 16 were slower; 64 gave rc's 8 B SENDs 8 %, but took 5 % of mp's 8 B WRITEs
    // and 10 % of large ones over many QPs.
    static constexpr uint16_t kBurst = 32;

    explicit RxQueue(bool is_zero_copy) : zero_copy_(is_zero_copy) {}
    virtual ~RxQueue() = default;
    RxQueue(const RxQueue&) = delete;
    RxQueue& operator=(const RxQueue&) = delete;

    // Takes what came, kBurst frames at most. Those of a queue that lends stay where the peer has built them, and can
    // still change them: their mbufs are of no pool, and go back together by release(). Others are the caller's.
    virtual uint16_t burst(rte_mbuf** frames) = 0;
    virtual void release() {}
    bool is_zero_copy() const { return zero_copy_; }

    // Whoever polls wants to sleep: the next frame shall ring for him (Port::rings()). False: one is there already.
    virtual bool arm() { return true; }
    virtual void disarm() {}

  private:
    const bool zero_copy_;
};

// Where a worker's frames go that were built in mbufs.
class TxQueue {
  public:
    TxQueue() = default;
    virtual ~TxQueue() = default;
    TxQueue(const TxQueue&) = delete;
    TxQueue& operator=(const TxQueue&) = delete;

    // What it is handed at once: so many frames, or so many bytes. 8 frames of 4 KiB stay in L1 or nearly so between
    // being built and being sent: 1 MiB WRITEs over memif ran at 5.6-6.4 GB/s with 4 or 8, at 5.1-5.3 with 16 or 32. Of
    // small ones, a memif with its peer on a far core takes 32 at the cost of few more cache misses than 8.
    static constexpr uint16_t kMaxBurst = 64;
    struct Burst {
        uint16_t frames = 32;  // kMaxBurst at most
        uint32_t bytes = 8 * 4096;
    };
    virtual Burst wanted() const { return {}; }
    // Takes the first of `frames`, and returns how many.
    virtual uint16_t burst(rte_mbuf** frames, uint16_t count) = 0;
};

class Port {
  public:
    explicit Port(uint16_t id) : id_(id) {}
    virtual ~Port() = default;
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;

    uint16_t id() const { return id_; }  // its place among the runtime's ports
    uint16_t queues() const { return queues_; }
    const wire::MacAddress& mac() const { return mac_; }  // the port's own; zero if it has none for us
    // The largest path MTU that all ways through it carry, as far as it knows.
    virtual uint32_t path_mtu() const { return UINT32_MAX; }
    // Whether a frame can be sent. Workers read it; written while they are paused or by the housekeeping thread.
    bool ready() const { return ready_.load(std::memory_order_relaxed); }
    // Ports between processes have no carrier: their link is up whether or not the peer runs.
    bool has_carrier() const { return has_carrier_; }
    // Mb/s of its link, if its driver tells; 0: it does not, or there is no link.
    virtual uint32_t rate_mbps() const { return 0; }
    // Whether its link comes up only some time after its start, as that of a NIC which DPDK has taken.
    virtual bool negotiates_link() const { return false; }

    // Of a worker's, by number. Null: what there is to read and to write comes and goes with peers (link_port.h).
    virtual std::unique_ptr<RxQueue> make_rx_queue(uint16_t queue) = 0;
    virtual std::unique_ptr<TxQueue> make_tx_queue(uint16_t queue) = 0;
    // Whether a frame that comes to an armed RxQueue ends the background thread's sleep. Otherwise he looks himself.
    virtual bool rings() const { return false; }

    virtual void start() = 0;
    virtual void close() = 0;
    // Held: not ready, and not started before it is let go. stop() while it is held and no worker is inside it.
    void hold(bool held) {
        held_.store(held, std::memory_order_relaxed);
        if (held) ready_.store(false, std::memory_order_relaxed);
    }
    virtual void stop() = 0;
    // Housekeeping: reads the link state. Returns true if it changed.
    bool poll_link() {
        const bool up = !held_.load(std::memory_order_relaxed) && is_up();
        return ready_.exchange(up, std::memory_order_relaxed) != up;
    }
    // Whether it should be started anew. `patience_over`: the last start had time enough to succeed.
    virtual bool wants_restart(bool /*patience_over*/) const { return false; }
    // Only while the port is not ready() and no worker is inside it.
    virtual void restart() {}
    // Whether housekeeping has to look at it now and then, because nobody tells when its link changes.
    virtual bool needs_polling() const { return true; }

    // Whether the kernel is on the same link, with our addresses (interface.h): it has the routes, answers ARP, ND and
    // echo requests, and reports groups.
    virtual bool has_kernel_stack() const { return false; }

    // Ports that find their neighbours themselves, without our ARP and ND (mesh.h, interface.h): waits for the way to
    // one for at most `timeout_ms`; where the kernel has the routes, to any destination. Returns null, and errno, if
    // there is none: EHOSTUNREACH, or what this process lacks for it. Any thread but a worker.
    struct ResolvedNextHop {
        uint16_t outlet;  // for Path::outlet
        std::shared_ptr<const transport::NextHop> next_hop;
    };
    virtual bool resolves_neighbours() const { return false; }
    virtual std::optional<ResolvedNextHop> find(const wire::Gid& /*neighbour*/, int /*timeout_ms*/) {
        errno = EHOSTUNREACH;
        return std::nullopt;
    }
    // Requests to a destination that was found are not answered. A worker calls it.
    virtual void suspect(const wire::Gid& /*destination*/) {}
    // Of the kernel's stack: its addresses, if they have changed since the last call.
    virtual std::optional<std::vector<Subnet>> take_addresses() { return std::nullopt; }
    // Returns true if frames to a neighbour need nothing of it but its MAC, so that an answer to the MAC from which its
    // question came needs no find().
    virtual bool answers_by_mac() const { return false; }
    // A QP of ours becomes a member of a multicast group, or ceases to be one; there is a leave() for each join() that
    // succeeds. join() returns 0 or errno: then nothing is received for the group. No worker calls these.
    virtual int join(const wire::Gid& /*group*/) { return 0; }
    virtual void leave(const wire::Gid& /*group*/) {}
    // Frames to groups are about to come or go: everybody is a neighbour.
    virtual void resolve_all() {}

    virtual void after_fork_in_child() {}

    virtual PortStatistics statistics() const = 0;
    // DPDK's number of the port, if DPDK drives it.
    virtual std::optional<uint16_t> dpdk_id() const { return std::nullopt; }

  protected:
    virtual bool is_up() = 0;
    bool is_held() const { return held_.load(std::memory_order_relaxed); }

    uint16_t queues_ = 1;
    bool has_carrier_ = false;
    wire::MacAddress mac_{};

  private:
    const uint16_t id_;
    // Both relaxed: written, and read again where it counts, under Runtime::port_control(). A late reading of the
    // second sends a frame to a port that takes none, or drops one that it would have taken.
    std::atomic<bool> held_{false}, ready_{false};
};

}  // namespace rove::datapath
