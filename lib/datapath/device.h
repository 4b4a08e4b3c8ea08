// SPDX-License-Identifier: Apache-2.0
// A verbs device is a DPDK port with addresses. Units: bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "transport/mp/hello_peers.h"
#include "transport/queue_pair.h"
#include "wire/frame.h"

namespace rove::datapath {

class Neighbours;
class Port;
class Runtime;
struct DeviceConfig;

class Device {
  public:
    // `port` is open; both it and `runtime` outlive the device.
    Device(Runtime& runtime, const DeviceConfig& config, std::string name, const Port& port);
    ~Device();

    const std::string& name() const { return name_; }
    static std::string name_of(size_t index) { return "rove" + std::to_string(index); }  // of the one that many-th
    uint16_t port() const { return port_; }            // DPDK port id
    const wire::MacAddress& mac() const { return mac_; }
    // The GID table: 0 the IPv6 link-local address made from the MAC, then each configured IPv4 (::ffff:a.b.c.d) and
    // IPv6.
    const std::vector<wire::Gid>& gids() const { return gids_; }
    uint32_t max_mtu() const { return max_mtu_; }  // largest IBTA path MTU that fits: 256 .. 4096
    // Of ports with a carrier. Ports between processes (memif, vhost, virtio-user) are up whether or not the peer runs:
    // a server must be able to open its device before the client exists.
    bool link_up() const;
    // Whether frames can be sent now: it is not stopped, and a memif's peer is there.
    bool ready() const;

    uint16_t queues() const;  // of its port

    // Completes `flow` (dst and src GID, traffic class, hop limit, flow label and udp_src are set; a VLAN's PCP in
    // flow.vlan) with MACs and VLAN, resolving the destination by ARP or ND for at most `timeout_ms`, and builds
    // `path`. Multicast and own addresses need no resolution. Returns 0, EINVAL (families differ, source not ours) or
    // EHOSTUNREACH. Must not be called from a worker or inside a Runtime::Pause.
    int resolve(const wire::Flow& flow, transport::Path& path, int timeout_ms = 3000);

    // The resolved path of an address handle, which is renewed when the neighbour moves, until it is forgotten. Any
    // thread.
    void keep(transport::Path& path);
    void forget(transport::Path& path);

    // Whether `qp`, an RC QP that is about to be connected to `remote_qpn` over `path`, shall speak mp: by the
    // configuration, and if both ends say so. Asks the peer for at most about 250 ms, and then takes it for a standard
    // endpoint, without a question for the next minute. But a peer that spoke mp before (hello.h, note 5), or that must
    // by our configuration, is asked for about 1 s. Returns 0, ETIMEDOUT (such a peer was silent) or EPROTONOSUPPORT
    // (the configuration demands mp, and the peer refuses). As resolve().
    int agree_on_multipath(transport::QueuePair& qp, const transport::Path& path, uint32_t remote_qpn, bool& multipath);

    // UDP source port of a connected QP: the flow label rule of annex A17.9.2 / rdma-core's
    // rdma_flow_label_to_udp_sport, so 0xC000..0xFFFF.
    static uint16_t udp_source_port(uint32_t flow_label, uint32_t local_qpn, uint32_t remote_qpn);

    // Of lib/datapath.
    Neighbours& neighbours() { return *neighbours_; }
    transport::HelloPeers& hello_peers() { return hello_peers_; }
    bool on_vlan(const std::optional<uint16_t>& tci) const {
        return vlan_ ? tci && (*tci & 0xFFF) == *vlan_ : !tci || (*tci & 0xFFF) == 0;
    }
    // Whether a RoCE frame with these headers is meant for us: our VLAN, and our MAC with one of our addresses, or a group's
    // with that group's. And whether its source may be true: our own addresses are those of frames to ourselves, and never of
    // frames `from_port`.
    bool receives(const wire::Flow& flow, bool from_port) const;
    // Puts the MAC of the path's next hop into it again, if that is `neighbour`. While the workers that read it stand
    // still.
    void renew(const transport::Held&, transport::Path& path, const wire::Gid& neighbour);
    // The same, of a path that was resolved before it could be renewed.
    void renew(const transport::Held&, transport::Path& path);
    void renew_handles(const transport::Paused&, const wire::Gid& neighbour);  // the same, of all address handles

  private:
    void renew_unread(transport::Path& path, const wire::Gid& neighbour);

    Runtime& runtime_;
    const Port& dpdk_port_;
    std::string name_;
    uint16_t port_ = 0;
    wire::MacAddress mac_{};
    std::vector<wire::Gid> gids_;
    uint32_t max_mtu_ = 4096;
    std::optional<uint16_t> vlan_;  // VID
    std::unique_ptr<Neighbours> neighbours_;
    transport::HelloPeers hello_peers_;
    std::mutex handles_mutex_;
    std::unordered_set<transport::Path*> handles_;
};

}  // namespace rove::datapath
