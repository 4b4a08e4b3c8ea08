// SPDX-License-Identifier: Apache-2.0
// MP-RDMA's testbed (section 5, Fig. 10), and the transports that are compared on it. Units: picoseconds, bytes, Gb/s.
//
// The text leaves these details open:
// - The MTU. There are two hints, and they disagree. Where goodput counts, it is 2048 bytes: among the MTUs of verbs,
//   its payload share of the wire, 0.951, is nearest to the 0.942 that the paper reaches and calls near to optimal
//   (1024 bytes would give 0.906). Where packets count (Fig. 5, 14, 18, 19: K, delta, L), it is 1024 bytes: half a
//   round trip of delay with alpha 1 and a delta of 32 (section 5.4) is a window of 64 packets, and five connections
//   have four times 60 KB in flight and four times 20 KB in queues.
// - The middle switch of a path. It is modelled as a part of the cable: it adds delay only.
// - The NIC's ring. An FPGA makes a packet when the port takes it. That is modelled in Fig. 18 and 19, where a ring
//   would take a quarter of the measured delay; elsewhere the ring is the usual one of a network.
// - RED for ACKs: they are marked like data, which has no effect.
// - The path of ACKs. They have the VP of the packet that they acknowledge, and the switches' hash sends that, from the
//   other side, to another path.
#pragma once

#include <deque>

#include "fabric/flow.h"
#include "fabric/sampler.h"
#include "fabric/topology.h"

namespace rove::sim {

using namespace fabric;

inline constexpr uint32_t kMtu = 2048, kSmallMtu = 1024;
inline constexpr Time kBaseRtt = 12 * kMicrosecond;  // between the racks
inline constexpr Red kRed{1.0, 20'000, 20'000};
inline constexpr uint32_t kPaths = 4;
// Fig. 12b and 13 are simulations, DCQCN's by "the simulation code and parameter settings provided by the authors".
// That code (bobzhuyb/ns3-rdma, its sample configuration; a unit is 1030 bytes) marks from 40 to 1000 units up to a
// probability of 1, and its PFC has a dynamic threshold, which no port with marks reaches. MP-RDMA's switches mark from
// 60 KB on and have the same PFC.
inline constexpr Red kDcqcnRed{1.0, 40 * 1030, 1000 * 1030}, kScaleRed{1.0, 60'000, 60'000};
inline constexpr DynamicPfc kScalePfc{.alpha = 16, .frame_bytes = kMtu + 90};

// Returns MP-RDMA's rules over rove's sender: without BX-1, BX-3 and BX-4, but with notes 2, 3 and 5 of paths.h. After
// use_published_rules() a window counts ACKs (MP-2) and recovery retransmits everything (MP-9), as in the text.
transport::Config mp_rdma(uint32_t mtu = kMtu);
void use_published_rules();
// Returns IRN (SIGCOMM'18): selective repeat, and a window of one bandwidth-delay product instead of congestion
// control.
transport::Config irn();
// Returns the payload's share of a packet from the middle of a WRITE on the wire: the rest is Ethernet with preamble,
// gap and FCS 38, IP 20, UDP 8, BTH 12, ICRC 4, and in mp MPETH 8 and RETH 16.
constexpr double mp_share(uint32_t mtu = kMtu) {
    return mtu / (mtu + 106.0);
}
constexpr double rc_share(uint32_t mtu = kMtu) {
    return mtu / (mtu + 82.0);
}

inline constexpr QpConfig kMp{.multipath = true, .mtu = kMtu}, kSmallMp{.multipath = true, .mtu = kSmallMtu};
inline constexpr QpConfig kRc{.mtu = kMtu}, kSmallRc{.mtu = kSmallMtu};

// Two racks of five hosts, joined by paths that differ only in their rates.
struct Testbed {
    Testbed(uint64_t seed, const transport::Config& transport,
            const std::vector<uint64_t>& path_gbps = std::vector<uint64_t>(kPaths, 40),
            uint32_t ring_packets = HostConfig{}.ring_packets);

    Network network;
    TwoRacks racks;
    Host& left(size_t host) const { return *racks.left.hosts[host]; }
    Host& right(size_t host) const { return *racks.right.hosts[host]; }
    // Returns the source port with which packets from left(0) to right(0) take a path.
    uint16_t port_via(size_t path) const {
        return network.source_port_via(racks.paths[path].forward, left(0), right(0));
    }
};

constexpr double seconds(Time time) {
    return static_cast<double>(time) / kSecond;
}
constexpr double gbps(uint64_t bytes, Time time) {
    return static_cast<double>(bytes) * 8 / seconds(time) / kGbps;
}

// Returns the rate at which all flows of `flows` complete data during `time` from now on.
double goodput(Network& network, const std::deque<Flow>& flows, Time time);

}  // namespace rove::sim
