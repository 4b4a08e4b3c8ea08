// SPDX-License-Identifier: Apache-2.0
// The transport's counters, per worker. They never decrease; readers take differences. Units: packets unless named.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rove::transport {

// A new value must also be named in to_string().
enum class Counter : uint8_t {
    kRxPackets,  // RoCEv2 packets that reached a QP or the record of a destroyed one
    kRxBytes,    // their payload bytes
    kTxPackets,
    kTxBytes,
    kTxAcks,
    kTxNakSequence,
    kTxNakRnr,
    kTxNakError,  // invalid request, access, operation
    kTxCnp,
    kRxAcks,
    kRxNakSequence,
    kRxNakRnr,
    kRxNakError,
    kRxCnp,
    kRxCe,         // data packets with Congestion Experienced
    kRxDuplicate,  // requests seen before: acknowledged or replayed, not executed
    kRetransmittedPackets,
    kResentNack,  // rc: the retransmissions by cause; mp has PathsCounters
    kResentRnr,
    kResentInferred,  // a later request was answered
    kResentEarly,     // tail probes, and READs that they request again
    kResentTimeout,
    kTimeouts,
    kTailProbes,
    kPsnsSent,          // sent by RC QPs; a READ in rc mode counts the PSNs that it requests, as in the next three
    kPsnsAcknowledged,  // rc; for mp see PathsCounters, also for abandoned ones
    kPsnsLost,          // retransmitted
    kPsnsAbandoned,     // in flight when the QP was flushed
    kDelayedPackets,    // mp: waited at the sender for earlier packets (MP-12, EU-7)
    kDowngrades,        // QPs in rc because their peer did not answer HELLO, then or shortly before
    kLocalErrors,       // work requests that failed on this side
    kCqOverruns,
    // Drops by reason.
    kDropUnknownQp,
    kDropQpState,      // the QP's state does not allow it
    kDropService,      // opcode of a transport service that is not the QP's
    kDropPort,         // a QP of another port
    kDropSource,       // connected QP, packet from another address than the peer's
    kDropDestination,  // connected QP, packet to another address than its own; or a multicast address with a QP's
                       // number
    kDropPkey,
    kDropQkey,
    kDropSequence,   // request ahead of the expected PSN
    kDropEarlySync,  // mp: overtook packets that it must not (MP-12)
    kDropResponse,   // response or ACK for nothing outstanding
    kDropLength,     // payload does not fit the opcode, the MTU or the request
    kDropNoReceive,  // UC, UD: no receive posted
    kDropMulticast,  // no QP attached
    kDropOverload,   // a duplicate READ beyond the limit of the responder
    kCount,
};

const char* to_string(Counter counter);

struct Counters {
    std::array<uint64_t, static_cast<size_t>(Counter::kCount)> values{};
    uint64_t& operator[](Counter counter) { return values[static_cast<size_t>(counter)]; }
    uint64_t operator[](Counter counter) const { return values[static_cast<size_t>(counter)]; }
};

}  // namespace rove::transport
