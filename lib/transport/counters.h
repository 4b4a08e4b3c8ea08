// SPDX-License-Identifier: Apache-2.0
// What the transport counts, per worker. Free-running, never reset; readers take differences. Units: packets unless
// named.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rove::transport {

// When a value is added, name it in to_string() too.
enum class Counter : uint8_t {
    kRxPackets,  // RoCEv2 packets that reached a QP, or the memory of one that is gone
    kRxBytes,    // payload bytes of them
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
    kRxCe,         // data packets that carried Congestion Experienced
    kRxDuplicate,  // requests seen before: acknowledged or replayed, not executed
    kRetransmittedPackets,
    kResentNack,  // rc: of these, by cause; mp's are PathsCounters
    kResentRnr,
    kResentInferred,  // an answer to something later came
    kResentEarly,     // tail probes, and READs that they ask for again
    kResentTimeout,
    kTimeouts,
    kTailProbes,
    kPsnsSent,          // by RC QPs; of a READ in rc mode those that it asks for, as for the next three
    kPsnsAcknowledged,  // rc; mp's are PathsCounters, as for what is abandoned
    kPsnsLost,          // sent again
    kPsnsAbandoned,     // on their way when the QP was flushed
    kDelayedPackets,    // mp: waited at the sender for what is before them (MP-12, EU-7)
    kLocalErrors,       // work requests that failed on this side
    kCqOverruns,
    // Drops, by reason.
    kDropUnknownQp,
    kDropQpState,      // QP not ready for it
    kDropService,      // opcode of another transport service than the QP's
    kDropPort,         // QP of another port
    kDropSource,       // connected QP, packet from another address than the peer's
    kDropDestination,  // connected QP, packet to another address than its own; or a multicast address with a QP's
                       // number
    kDropPkey,
    kDropQkey,
    kDropSequence,   // request ahead of the expected PSN
    kDropEarlySync,  // mp: overtook what it must not (MP-12)
    kDropResponse,   // response or ACK that answers nothing outstanding
    kDropLength,     // payload does not fit the opcode, the MTU or the request
    kDropNoReceive,  // UC, UD: no receive posted
    kDropMulticast,  // no QP attached
    kDropOverload,   // a duplicate READ beyond what the responder keeps
    kCount,
};

const char* to_string(Counter counter);

struct Counters {
    std::array<uint64_t, static_cast<size_t>(Counter::kCount)> values{};
    uint64_t& operator[](Counter counter) { return values[static_cast<size_t>(counter)]; }
    uint64_t operator[](Counter counter) const { return values[static_cast<size_t>(counter)]; }
};

}  // namespace rove::transport
