// SPDX-License-Identifier: Apache-2.0
// The port and addresses of a verbs device, as the protocol sees them. Units: bytes.
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
    // `port` must be open. All arguments that are references must outlive the interface.
    RdmaInterface(Runtime& runtime, const DeviceConfig& config, std::string name, Port& port);
    ~RdmaInterface();

    const std::string& name() const { return name_; }
    // Returns the name of the device with this configuration and index.
    static std::string name_of(const DeviceConfig& config, size_t index);
    uint16_t port() const { return port_; }  // its index in the runtime
    const wire::MacAddress& mac() const { return mac_; }
    // Returns the GID table. Entry 0 is the IPv6 link-local address made from the MAC; then follows each configured
    // address, IPv4 (::ffff:a.b.c.d) or IPv6. For a port with the kernel's stack, the table has the kernel's addresses,
    // and zeros for free entries. An address that is removed becomes zeros. The size does not change.
    std::vector<wire::Gid> gids() const;
    // Returns the same addresses with their subnets.
    std::vector<Subnet> subnets() const;
    // Returns true if destinations outside the subnets can be reached.
    bool has_gateway(bool ipv4) const;
    uint32_t max_mtu() const { return max_mtu_; }  // the largest IBTA path MTU that fits: 256 .. 4096
    uint32_t active_mtu() const;                   // also limited by the network behind the port; it may change
    // Returns true if the port's link is up. Ports without a carrier, between processes (memif, vhost, virtio-user),
    // are always up, whether or not the peer runs, because a server must be able to open its device before the client
    // exists.
    bool link_up() const;
    // Returns the configured rate or else that of the link, in Mb/s.
    uint32_t rate_mbps() const;
    // Returns true if frames can be sent now: the port is not stopped, and a memif's peer is connected.
    bool ready() const;

    uint16_t queues() const;  // number of queues of its port
    PortStatistics statistics() const;
    std::optional<uint16_t> dpdk_port() const;  // DPDK's number of the port, if DPDK drives it

    // Completes `flow` with MACs and VLAN and builds `path`. In `flow`, the GIDs, traffic class, hop limit, flow label
    // and udp_src are set, and a VLAN's PCP is in flow.vlan. The destination is resolved by ARP or ND, for at most 3 s
    // of the protocol's time (protocol_clock.h); multicast and own addresses need no resolution. Returns 0, EINVAL (the
    // families differ, or the source is not ours) or EHOSTUNREACH. Must not be called from a worker or inside a
    // Runtime::Pause.
    int resolve(const wire::Flow& flow, transport::Path& path);

    // Builds a path as resolve() does, but does not wait. If the neighbour is not known, frames go to `flow.dst_mac`.
    // Returns false if that is zero, after sending a question to the neighbour, or if resolve() would return EINVAL.
    // The path does not follow a neighbour that changes its MAC.
    bool find_path(const wire::Flow& flow, transport::Path& path);

    // Returns the address to resolve in order to reach `destination`: a neighbour, or `destination` itself if the
    // kernel has the routes.
    wire::Gid next_hop(const wire::Gid& destination) const;

    // Returns true if frames to `address` can be sent now. A port that resolves neighbours itself begins to resolve
    // this one.
    bool reaches(const wire::Gid& address);

    // Let a QP join or leave a multicast group, which the link is informed of. join() returns 0 or an errno value, as
    // ibv_attach_mcast does. Any thread except a worker may call them.
    int join(const wire::Gid& group);
    void leave(const wire::Gid& group);

    // Decides whether `qp`, an RC QP that is about to be connected to `remote_qpn` over `path`, uses mp: if the
    // configuration allows it and both ends agree. Asks the peer for about 250 ms of the protocol's time
    // (protocol_clock.h), and then treats it as a standard endpoint, without further questions for a second or more
    // (PeerCapabilityCache::kFirstRcNs), and reports this downgrade. A peer that spoke mp before (hello.h, note 5), or
    // must do so by our configuration, gets questions for about 1 s.
    // Returns 0, ETIMEDOUT (such a peer was silent) or EPROTONOSUPPORT (the configuration requires mp, and the peer
    // refuses). The restrictions of resolve() apply.
    int agree_on_multipath(transport::QueuePair& qp, const transport::Path& path, uint32_t remote_qpn, bool& multipath);

    // Returns the UDP source port of a connected QP by the flow label rule of annex A17.9.2 and rdma-core's
    // rdma_flow_label_to_udp_sport, so it is in 0xC000..0xFFFF.
    static uint16_t udp_source_port(uint32_t flow_label, uint32_t local_qpn, uint32_t remote_qpn);

    // For lib/runtime.
    Neighbours& neighbours() { return *neighbours_; }
    // Sets the addresses that the kernel's stack has now. Must be called while no worker runs. Returns true if the GID
    // table has changed.
    bool set_addresses(const std::vector<Subnet>& addresses);
    // Reports that requests to `destination` are not answered. Called on a worker.
    void suspect(const wire::Gid& destination, uint64_t now_ns);
    transport::PeerCapabilityCache& hello_peers() { return hello_peers_; }
    bool on_vlan(const std::optional<uint16_t>& tci) const {
        return vlan_ ? tci && (*tci & 0xFFF) == *vlan_ : !tci || (*tci & 0xFFF) == 0;
    }
    // Returns true if a RoCE frame with these headers is for us: it has our VLAN, and our MAC with one of our addresses
    // or the MAC of a group with that group's address. The source must be plausible too: our own addresses occur only
    // in frames to ourselves, never in frames `from_port`.
    bool receives(const wire::Flow& flow, bool from_port) const;
    Memberships& memberships() { return *memberships_; }
    // Returns the time at which a worker must send questions to neighbours or reports of multicast groups.
    uint64_t due_ns() const { return std::min(neighbours_->due_ns(), memberships_->due_ns()); }

  private:
    // Sets everything in `path` except the next hop and the MAC of a destination that has to be resolved. Returns 0 or
    // EINVAL.
    int begin_path(const wire::Flow& flow, transport::Path& path) const;
    bool owns(const wire::Gid& address) const;
    // Sets the next hop of `path`, for a port that resolves neighbours itself. Returns false if there is no next hop.
    bool take_way(transport::Path& path, int timeout_ms) const;
    // Writes a line to stderr, unless there was one shortly before: the QP speaks rc because `peer` was silent, and is
    // asked again after `rc_ns`.
    void report_downgrade(const wire::Gid& peer, uint64_t rc_ns);

    Runtime& runtime_;
    Port& device_port_;
    std::string name_;
    uint16_t port_ = 0;
    wire::MacAddress mac_{};
    // The GID table with subnets, and the addresses in it. Both change under the mutex and while no worker runs.
    // Workers read the second one without the mutex.
    mutable std::mutex addresses_mutex_;
    std::vector<Subnet> table_;
    std::vector<wire::Gid> addresses_;
    uint32_t max_mtu_ = 4096;
    const DeviceConfig& config_;
    std::optional<uint16_t> vlan_;  // VID
    std::unique_ptr<Neighbours> neighbours_;
    std::unique_ptr<Memberships> memberships_;
    transport::PeerCapabilityCache hello_peers_;
    std::atomic<uint64_t> downgrade_reported_ns_{0};  // time of the last such line; relaxed
};

}  // namespace rove::datapath
