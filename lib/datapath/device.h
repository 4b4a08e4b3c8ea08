// SPDX-License-Identifier: Apache-2.0
// A verbs device is a DPDK port with addresses. Units: bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/queue_pair.h"
#include "wire/frame.h"

namespace rove::datapath {

class Device {
  public:
    const std::string& name() const { return name_; }               // "rove0"
    uint16_t port() const { return port_; }                         // DPDK port id
    const wire::MacAddress& mac() const { return mac_; }
    // The GID table: 0 the IPv6 link-local address made from the MAC, then each configured IPv4 (::ffff:a.b.c.d) and IPv6.
    const std::vector<wire::Gid>& gids() const { return gids_; }
    uint32_t max_mtu() const { return max_mtu_; }                   // largest IBTA path MTU that fits: 256 .. 4096
    bool link_up() const;

    // Completes `flow` (dst and src GID, traffic class, hop limit, flow label and udp_src are set) with MACs and VLAN, resolving
    // the destination by ARP or ND for at most `timeout_ms`, and builds `path`. Multicast and own addresses need no
    // resolution. Returns 0, EINVAL (families differ, source not ours) or EHOSTUNREACH. Must not be called from a worker
    // or inside a Runtime::Pause.
    int resolve(const wire::Flow& flow, transport::Path& path, int timeout_ms = 3000);

    // UDP source port of a connected QP: the flow label rule of annex A17.9.2 / rdma-core's rdma_flow_label_to_udp_sport,
    // so 0xC000..0xFFFF.
    static uint16_t udp_source_port(uint32_t flow_label, uint32_t local_qpn, uint32_t remote_qpn);

  private:
    friend class Runtime;
    std::string name_;
    uint16_t port_ = 0;
    wire::MacAddress mac_{};
    std::vector<wire::Gid> gids_;
    uint32_t max_mtu_ = 4096;
};

}  // namespace rove::datapath
