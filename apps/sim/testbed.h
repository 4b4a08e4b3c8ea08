// SPDX-License-Identifier: Apache-2.0
// MP-RDMA's testbed (section 5, Fig. 10), and the transports that are compared on it. Units: picoseconds, bytes, Gb/s.
//
// What the text leaves open:
// - The MTU. There are two hints, and they do not agree. Where goodput counts, 2048 bytes: of those that verbs have,
//   the payload's share of the wire, 0.951, is nearest to the 0.942 that the paper reaches and calls near to optimal.
//   (1024 bytes would be 0.906.) Where packets count (Fig. 5, 14, 18, 19: K, delta, L), 1024 bytes: half a round trip
//   of delay with alpha 1 and a delta of 32 (section 5.4) is a window of 64 packets, and five connections have four
//   times 60 KB on their way and four times 20 KB in queues.
// - A path's middle switch. It is a part of the cable: what it adds is delay.
// - The NIC's ring. An FPGA makes a packet when the port takes it. That is modelled in Fig. 18 and 19, where a ring
//   would take a quarter of the delay that is measured; elsewhere the ring is a network's usual one.
// - RED for ACKs: they are marked like data, which says nothing to anybody.
// - The path that ACKs take. Theirs is the VP of the packet that they acknowledge, and the switches' hash takes that,
//   from the other side, to another path.
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
// probability of 1, and its PFC has a dynamic threshold, which no port reaches that is marked. MP-RDMA's switches mark
// from 60 KB on, and have the same PFC.
inline constexpr Red kDcqcnRed{1.0, 40 * 1030, 1000 * 1030}, kScaleRed{1.0, 60'000, 60'000};
inline constexpr DynamicPfc kScalePfc{.alpha = 16, .frame_bytes = kMtu + 90};

// MP-RDMA's rules over rove's sender: without BX-1, BX-3 and BX-4, but with what paths.h says in its notes 2, 3 and 5.
// use_published_rules(): from then on a window counts ACKs (MP-2), and recovery repeats everything (MP-9), as by its
// text.
transport::Config mp_rdma(uint32_t mtu = kMtu);
void use_published_rules();
// IRN (SIGCOMM'18): selective repeat, and a window of one bandwidth-delay product instead of congestion control.
transport::Config irn();
// Of a packet from the middle of a WRITE on the wire, the part that is payload: without Ethernet with preamble, gap and
// FCS 38, IP 20, UDP 8, BTH 12, ICRC 4, and in mp MPETH 8 and RETH 16.
constexpr double mp_share(uint32_t mtu = kMtu) {
    return mtu / (mtu + 106.0);
}
constexpr double rc_share(uint32_t mtu = kMtu) {
    return mtu / (mtu + 82.0);
}

inline constexpr QpConfig kMp{.multipath = true, .mtu = kMtu}, kSmallMp{.multipath = true, .mtu = kSmallMtu};
inline constexpr QpConfig kRc{.mtu = kMtu}, kSmallRc{.mtu = kSmallMtu};

// Two racks of five hosts, joined by paths that are alike but for the rates.
struct Testbed {
    Testbed(uint64_t seed, const transport::Config& transport,
            const std::vector<uint64_t>& path_gbps = std::vector<uint64_t>(kPaths, 40),
            uint32_t ring_packets = HostConfig{}.ring_packets);

    Network network;
    TwoRacks racks;
    Host& left(size_t host) const { return *racks.left.hosts[host]; }
    Host& right(size_t host) const { return *racks.right.hosts[host]; }
    // With which packets from left(0) to right(0) take a path.
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

// What the flows of `flows` complete together in `time` from now on.
double goodput(Network& network, const std::deque<Flow>& flows, Time time);

}  // namespace rove::sim
