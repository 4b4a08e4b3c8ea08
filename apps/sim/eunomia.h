// SPDX-License-Identifier: Apache-2.0
// Eunomia's evaluation (section 5): the network, the schemes that it compares, and the results of a point.
//
// Parameters are taken from ConWeave's public simulator, which the paper names as its source: 8 leaves with 16 hosts
// each, 8 spines, links of 100 Gb/s and 1 us; 9 MiB of buffer, dynamic PFC; ECN from 100 to 400 KB with 0.2 at most;
// DCQCN that cuts at most every 4 us; acknowledgements of every packet, in a class of their own. Frames have the sizes
// of that simulator: 48 bytes plus the payload, and 60 for an acknowledgement, without gaps. RoCEv2's sizes would fill
// an uplink at 80 % to 95 % instead of 89. A host sends one packet of each of its flows in turn. The load refers to the
// uplinks: 80 % is 40 % of each host's link. bench/conweave runs the same flows in that simulator and in this one.
//
// Where that simulator differs from the papers of the schemes, this one follows the simulator, unless
// Variant::follow_papers is set:
// - DRILL remembers the least loaded path of each destination, rather than of each set of paths.
// - A NIC that receives a packet out of order, in rc or IRN, also reports congestion.
// - IRN's sender then retransmits all that is not acknowledged, rather than only packets that it has reason to consider
//   lost.
// - Pauses of PFC end after 5 us, and packets to a port that should pause use the rest of the buffer, so that an incast
//   of 64 loses packets. By IEEE 802.1Qbb pauses are repeated, and each port has its headroom.
//
// Other differences from the simulator:
// - Packets have 1024 bytes of payload instead of 1000, which is no MTU of verbs.
// - In mp, DCQCN reacts to the ECE of acknowledgements, as ConWeave's does; rc sends CNPs, at most one per microsecond,
//   which is one for each interval of alpha. DCQCN itself is ConWeave's, and thus HPCC's (dcqcn.h, kHpcc).
// - IRN's timer backs off, as in its paper.
#pragma once

#include "completion_times.h"
#include "fabric/topology.h"
#include "testbed.h"
#include "workloads.h"

namespace rove::sim {

inline constexpr uint64_t kLinkRate = 100 * kGbps;
inline constexpr uint32_t kBdp = 104'000;  // bytes
inline constexpr uint32_t kEunomiaMtu = 1024;

enum class TransportScheme : uint8_t {
    kGoBackN,  // rc with DCQCN
    kMpRdma,
    kIrn,      // with DCQCN, without PFC
    kEunomia,  // DCQCN and a hybrid bitmap of 256 packets
    kIdeal,    // kEunomia with an unlimited bitmap
    kReps,     // recycled entropies, NSCC
};

struct Scheme {
    const char* name;
    Balancer balancer;
    TransportScheme speaks;
};
inline constexpr Scheme kEcmpScheme{"ecmp", Balancer::kEcmp, TransportScheme::kGoBackN};
inline constexpr Scheme kMpRdmaScheme{"mp-rdma", Balancer::kEcmp, TransportScheme::kMpRdma};
inline constexpr Scheme kIrnScheme{"irn", Balancer::kEcmp, TransportScheme::kIrn};
inline constexpr Scheme kRepsScheme{"reps-nscc", Balancer::kEcmp, TransportScheme::kReps};
// Schemes in the switches, packet by packet: round robin, the shorter of two queues, DRILL.
inline constexpr std::array kBareSchemes{Scheme{"spray", Balancer::kSpray, TransportScheme::kGoBackN},
                                         Scheme{"po2", Balancer::kPowerOfTwo, TransportScheme::kGoBackN},
                                         Scheme{"drill", Balancer::kDrill, TransportScheme::kGoBackN}};
// Schemes by flowlets, and ConWeave.
inline constexpr std::array kFlowSchemes{Scheme{"letflow", Balancer::kLetFlow, TransportScheme::kGoBackN},
                                         Scheme{"conga", Balancer::kConga, TransportScheme::kGoBackN},
                                         Scheme{"conweave", Balancer::kConWeave, TransportScheme::kGoBackN}};
inline constexpr std::array kBareIrnSchemes{Scheme{"spray-irn", Balancer::kSpray, TransportScheme::kIrn},
                                            Scheme{"po2-irn", Balancer::kPowerOfTwo, TransportScheme::kIrn},
                                            Scheme{"drill-irn", Balancer::kDrill, TransportScheme::kIrn}};
inline constexpr std::array kIdealSchemes{Scheme{"spray-ideal", Balancer::kSpray, TransportScheme::kIdeal},
                                          Scheme{"po2-ideal", Balancer::kPowerOfTwo, TransportScheme::kIdeal},
                                          Scheme{"drill-ideal", Balancer::kDrill, TransportScheme::kIdeal}};
inline constexpr std::array kEunomiaSchemes{Scheme{"spray-eunomia", Balancer::kSpray, TransportScheme::kEunomia},
                                            Scheme{"po2-eunomia", Balancer::kPowerOfTwo, TransportScheme::kEunomia},
                                            Scheme{"drill-eunomia", Balancer::kDrill, TransportScheme::kEunomia}};

enum class Losses : uint8_t {
    kOfScheme,  // no losses, except with IRN
    kNone,      // PFC
    kDrops,
    kTrims,  // a packet without room in its queue continues as its headers
};

// Each has 128 hosts. The latter two have 80 switches of 8 ports, and a path out of a rack for each of its hosts.
enum class TopologyKind : uint8_t {
    kLeafSpine,
    kFatTree,
    kJellyfish,  // the first switch chooses among the eight shortest paths
};

// The differences of a point from its scheme.
struct Variant {
    TopologyKind shape = TopologyKind::kLeafSpine;
    Ports ports{};            // per host
    uint8_t deflections = 0;  // DIBS: the maximum for a packet that finds its queue full
    std::optional<ShortestFirst> srpt{};
    bool synchronises = false;  // WorkloadConfig::synchronises
    uint32_t static_bytes = 0;  // a static bitmap of two bits per packet; 0: Eunomia's
    transport::Ordering ordering = transport::Ordering::kReceiverHold;
    Losses losses = Losses::kOfScheme;
    bool follow_papers = false;          // DRILL, IRN, PFC, and the NIC's reaction to packets out of order
    uint32_t slow_uplinks = 0;           // the number of uplinks at a tenth of the rate
    double failed_part = 0;              // the fraction of the cables between switches that fails, from the start on
    Time flaps = 0;                      // the interval at which these recover and others fail; 0: never
    Time reaction = 100 * kMicrosecond;  // delay until routes avoid failed cables
};

inline constexpr uint32_t kEunomiaHosts = 128, kEunomiaRackHosts = 16;

// Flows, and the end of their arrivals.
struct OfferedLoad {
    std::vector<FlowSpec> flows;
    uint64_t ring_bytes = 0;  // in addition: an all-reduce of this size by a ring of all hosts in random order
    Time until = 0;
    Time drain = 0;         // how long the run waits for them after `until`
    Time counted_from = 0;  // earlier flows are not counted
};
// Makes Poisson flows at a load of the uplinks, in networks with as many uplinks as hosts.
OfferedLoad poisson_load(const RunContext& with, const FlowSizes& sizes, double load,
                         TopologyKind shape = TopologyKind::kLeafSpine);
// Makes queries, in each of which 50 hosts send 40 KB to one host at the same time. With `background`, adds
// poisson_load() of AliStorage.
OfferedLoad query_load(const RunContext& with, double load, double background = 0);

transport::Config transport_of(const Scheme& scheme, const Variant& variant = {});

// Runs the flows and returns: completion times, as CompletionTimes::tell() names them, for all flows ("all "), for
// those shorter than a BDP ("short ") and the rest ("long "), by size class (kSizeClasses, "size-N "), for all flows
// including unfinished ones, as if these ended with the run ("begun "), and of these for flows that lost a packet to a
// failed link ("hit "); counts of packets out of order, refused, retransmitted, paused and kept; "held links", which
// PFC has stopped for long when the run ends; for queries the mean and the 99th percentile; for a ring, whose flows are
// the steps of the hosts, its time divided by that in an empty network.
Values run_flows(const RunContext& with, const Scheme& scheme, const OfferedLoad& offered, const Variant& variant = {});
// Does the same for Poisson flows of `sizes` at a load of the uplinks.
inline Values run_load(const RunContext& with, const Scheme& scheme, const FlowSizes& sizes, double load,
                       const Variant& variant = {}) {
    return run_flows(with, scheme, poisson_load(with, sizes, load, variant.shape), variant);
}

// Upper ends of the size classes, in bytes.
inline constexpr std::array<uint64_t, 8> kSizeClasses{4'000,  8'000,   16'000,  32'000,
                                                      64'000, 128'000, 256'000, 30'000'000};

}  // namespace rove::sim
