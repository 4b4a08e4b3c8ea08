// SPDX-License-Identifier: Apache-2.0
// Eunomia's evaluation (section 5): the network, the schemes that are compared in it, and what one of its points gives.
//
// Parameters are those of ConWeave's public simulator, which the paper names as its source: 8 leaves with 16 hosts
// each, 8 spines, links of 100 Gb/s and 1 us; 9 MiB of buffer, dynamic PFC; ECN from 100 to 400 KB with 0.2 at most;
// DCQCN that cuts at most every 4 us; acknowledgements of every packet, in a class of their own. Frames count as there:
// 48 bytes and the payload, an acknowledgement 60, without gaps; RoCEv2's would fill an uplink at 80 % to 95 % instead
// of 89. A host sends one packet of each of its flows in turn. The load is that of the uplinks: 80 % is 40 % of each
// host's link. bench/conweave has that simulator and this one do the same flows.
//
// Where that simulator differs from the papers of what it has, it is followed (Variant::follow_papers: not):
// - DRILL remembers the least loaded way of each destination, not of each set of ways.
// - A NIC that receives a packet out of order, rc or IRN, also says that there is congestion.
// - IRN's sender then repeats all that is not acknowledged, not only what it has reason to take for lost.
// - Pauses of PFC end after 5 us, and what comes to a port that should pause takes what is left of the buffer, so an
//   incast of 64 loses packets. By IEEE 802.1Qbb they are repeated, and each port has its headroom.
//
// What is otherwise here:
// - Packets have 1024 bytes of payload instead of 1000, since verbs have no such MTU.
// - In mp DCQCN is told by the ECE of acknowledgements, as ConWeave's is; rc sends CNPs, at most one in a microsecond,
//   which is once for each of alpha's intervals. DCQCN itself is ConWeave's, and so HPCC's (dcqcn.h, kHpcc).
// - IRN's timer is backed off, as by its paper.
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
    kIdeal,    // ... of as many as there can be
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
// In the network: packet by packet, in turn, to the shorter of two queues, or DRILL.
inline constexpr std::array kBareSchemes{Scheme{"spray", Balancer::kSpray, TransportScheme::kGoBackN},
                                         Scheme{"po2", Balancer::kPowerOfTwo, TransportScheme::kGoBackN},
                                         Scheme{"drill", Balancer::kDrill, TransportScheme::kGoBackN}};
// By flowlets, and ConWeave.
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
    kOfScheme,  // none, but with IRN
    kNone,      // PFC
    kDrops,
    kTrims,  // what a queue has no room for goes on as its headers
};

// 128 hosts in each; the latter two have 80 switches of 8 ports, and a way out of a rack for each of its hosts.
enum class TopologyKind : uint8_t {
    kLeafSpine,
    kFatTree,
    kJellyfish,  // the first switch chooses among the eight shortest paths
};

// What is otherwise in a point than the scheme says.
struct Variant {
    TopologyKind shape = TopologyKind::kLeafSpine;
    Ports ports{};            // of each host
    uint8_t deflections = 0;  // DIBS: of a packet that finds its queue full, at most
    std::optional<ShortestFirst> srpt{};
    bool synchronises = false;  // WorkloadConfig::synchronises
    uint32_t static_bytes = 0;  // a static bitmap of two bits a packet; 0: Eunomia's
    transport::Ordering ordering = transport::Ordering::kReceiverHold;
    Losses losses = Losses::kOfScheme;
    bool follow_papers = false;          // DRILL, IRN, PFC, and what a NIC does out of order
    uint32_t slow_uplinks = 0;           // have a tenth of the rate
    double failed_part = 0;              // of the cables between switches, from the start on
    Time flaps = 0;                      // these come back, and others fail, at this interval; 0: never
    Time reaction = 100 * kMicrosecond;  // until there are routes about what has failed
};

inline constexpr uint32_t kEunomiaHosts = 128, kEunomiaRackHosts = 16;

// Flows, and when the last of them may begin.
struct OfferedLoad {
    std::vector<FlowSpec> flows;
    uint64_t ring_bytes = 0;  // beside them: all-reduce of so many by a ring of all hosts, whose order is random
    Time until = 0;
    Time drain = 0;         // how long after that they are waited for
    Time counted_from = 0;  // what begins before is not counted
};
// Of the uplinks; in networks with as many as hosts of those.
OfferedLoad poisson_load(const RunContext& with, const FlowSizes& sizes, double load,
                         TopologyKind shape = TopologyKind::kLeafSpine);
// Queries: 50 hosts send 40 KB each to one at the same time. With `background`, poisson_load() of AliStorage beside it.
OfferedLoad query_load(const RunContext& with, double load, double background = 0);

transport::Config transport_of(const Scheme& scheme, const Variant& variant = {});

// Values: of completion times, as CompletionTimes::tell() names them, for all flows ("all "), those of less than a BDP
// ("short ") and others ("long "), for classes of sizes (kSizeClasses, "size-N "), for all and those that have not
// ended, as if they ended with the run ("begun "), and of these that lost a packet to a link that failed ("hit "); what
// was out of order, refused, sent again, paused and kept; "held links", which PFC has stopped for long when the run
// ends; of queries the mean and the 99th percentile; of a ring, each step of each host of which is a flow, its time by
// that in an empty network.
Values run_flows(const RunContext& with, const Scheme& scheme, const OfferedLoad& offered, const Variant& variant = {});
// The same of Poisson flows of `sizes` at a load of the uplinks.
inline Values run_load(const RunContext& with, const Scheme& scheme, const FlowSizes& sizes, double load,
                       const Variant& variant = {}) {
    return run_flows(with, scheme, poisson_load(with, sizes, load, variant.shape), variant);
}

// Upper ends of classes, in bytes.
inline constexpr std::array<uint64_t, 8> kSizeClasses{4'000,  8'000,   16'000,  32'000,
                                                      64'000, 128'000, 256'000, 30'000'000};

}  // namespace rove::sim
