// SPDX-License-Identifier: Apache-2.0
// A verbs device is a DPDK port with addresses: this is that port, as the protocol sees it. Units: bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "link/membership.h"
#include "link/neighbour.h"
#include "port/counters.h"
#include "transport/mp/peer_capability_cache.h"
#include "transport/queue_pair.h"
#include "wire/frame.h"

namespace rove::datapath {

class Port;
class Runtime;
struct DeviceConfig;

class RdmaInterface {
  public:
    // `port` is open; all of them outlive the interface.
    RdmaInterface(Runtime& runtime, const DeviceConfig& config, std::string name, Port& port);
    ~RdmaInterface();

    const std::string& name() const { return name_; }
    // Of the one that many-th.
    static std::string name_of(const DeviceConfig& config, size_t index);
    uint16_t port() const { return port_; }  // its place among the runtime's
    const wire::MacAddress& mac() const { return mac_; }
    // The GID table: 0 the IPv6 link-local address made from the MAC, then each configured IPv4 (::ffff:a.b.c.d) and
    // IPv6. Of a port with the kernel's stack: the kernel's, and zeros, which are places for those that come; what goes
    // leaves its place to zeros. The size does not change.
    std::vector<wire::Gid> gids() const;
    // The same addresses with their subnets.
    std::vector<Subnet> subnets() const;
    // Whether destinations beyond the subnets can be reached.
    bool has_gateway(bool ipv4) const;
    uint32_t max_mtu() const { return max_mtu_; }  // largest IBTA path MTU that fits: 256 .. 4096
    uint32_t active_mtu() const;                   // ... through the network behind the port, too; it may change
    // Of ports with a carrier. Ports between processes (memif, vhost, virtio-user) are up whether or not the peer runs:
    // a server must be able to open its device before the client exists.
    bool link_up() const;
    // Mb/s: what is configured, else what the link has.
    uint32_t rate_mbps() const;
    // Whether frames can be sent now: it is not stopped, and a memif's peer is there.
    bool ready() const;

    uint16_t queues() const;  // of its port
    PortStatistics statistics() const;
    std::optional<uint16_t> dpdk_port() const;  // DPDK's number of the port, if DPDK drives it

    // Completes `flow` (dst and src GID, traffic class, hop limit, flow label and udp_src are set; a VLAN's PCP in
    // flow.vlan) with MACs and VLAN, resolving the destination by ARP or ND for at most 3 s of the protocol's time
    // (protocol_clock.h), and builds `path`. Multicast and own addresses need no resolution. Returns 0, EINVAL
    // (families differ, source not ours) or EHOSTUNREACH. Must not be called from a worker or inside a Runtime::Pause.
    int resolve(const wire::Flow& flow, transport::Path& path);

    // As resolve(), but does not wait: without an entry for the neighbour, frames go to `flow.dst_mac`. False: that is
    // zero, and the neighbour is asked; or resolve()'s EINVAL. The path does not follow a neighbour that moves.
    bool find_path(const wire::Flow& flow, transport::Path& path);

    // Whom the way to `destination` is asked of: a neighbour, or, where the kernel has the routes, itself.
    wire::Gid next_hop(const wire::Gid& destination) const;

    // Whether frames to `address` can go now. A port that finds its neighbours itself begins to look for this one.
    bool reaches(const wire::Gid& address);

    // A QP joins a multicast group, or leaves it: the link is told. join() returns 0 or errno, as ibv_attach_mcast
    // does. Any thread, but no worker.
    int join(const wire::Gid& group);
    void leave(const wire::Gid& group);

    // Whether `qp`, an RC QP that is about to be connected to `remote_qpn` over `path`, shall speak mp: by the
    // configuration, and if both ends say so. Asks the peer for about 250 ms of the protocol's time (protocol_clock.h),
    // and then takes it for a standard endpoint, without a question for the next minute. But a peer that spoke mp
    // before (hello.h, note 5), or that must by our configuration, is asked for about 1 s. Returns 0, ETIMEDOUT (such a
    // peer was silent) or EPROTONOSUPPORT (the configuration demands mp, and the peer refuses). As resolve().
    int agree_on_multipath(transport::QueuePair& qp, const transport::Path& path, uint32_t remote_qpn, bool& multipath);

    // UDP source port of a connected QP: the flow label rule of annex A17.9.2 / rdma-core's
    // rdma_flow_label_to_udp_sport, so 0xC000..0xFFFF.
    static uint16_t udp_source_port(uint32_t flow_label, uint32_t local_qpn, uint32_t remote_qpn);

    // Of lib/datapath.
    Neighbours& neighbours() { return *neighbours_; }
    // The kernel's stack has these addresses now. While no worker runs. Returns whether the GID table has changed.
    bool set_addresses(const std::vector<Subnet>& addresses);
    // Requests to `destination` are not answered. On a worker.
    void suspect(const wire::Gid& destination, uint64_t now_ns);
    transport::PeerCapabilityCache& hello_peers() { return hello_peers_; }
    bool on_vlan(const std::optional<uint16_t>& tci) const {
        return vlan_ ? tci && (*tci & 0xFFF) == *vlan_ : !tci || (*tci & 0xFFF) == 0;
    }
    // Whether a RoCE frame with these headers is meant for us: our VLAN, and our MAC with one of our addresses, or a
    // group's with that group's. And whether its source may be true: our own addresses are those of frames to
    // ourselves, and never of frames `from_port`.
    bool receives(const wire::Flow& flow, bool from_port) const;
    Memberships& memberships() { return *memberships_; }
    // When a worker shall send what neighbours are asked, or multicast groups reported.
    uint64_t due_ns() const { return std::min(neighbours_->due_ns(), memberships_->due_ns()); }

  private:
    // All of `path` but its next hop and, of one that needs it, the destination's MAC. Returns 0 or EINVAL.
    int begin_path(const wire::Flow& flow, transport::Path& path) const;
    bool owns(const wire::Gid& address) const;
    // Of a port that finds its neighbours itself.
    bool take_way(transport::Path& path, int timeout_ms) const;

    Runtime& runtime_;
    Port& device_port_;
    std::string name_;
    uint16_t port_ = 0;
    wire::MacAddress mac_{};
    // What the GID table is made of, and the addresses that are in it. Changed while no worker runs, and under the
    // mutex: workers read the second without it.
    mutable std::mutex addresses_mutex_;
    std::vector<Subnet> table_;
    std::vector<wire::Gid> addresses_;
    uint32_t max_mtu_ = 4096;
    const DeviceConfig& config_;
    std::optional<uint16_t> vlan_;  // VID
    std::unique_ptr<Neighbours> neighbours_;
    std::unique_ptr<Memberships> memberships_;
    transport::PeerCapabilityCache hello_peers_;
};

}  // namespace rove::datapath
