// SPDX-License-Identifier: Apache-2.0
// What the connection manager counts. Free-running, never reset; readers take differences. Units: MADs unless named.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rove::cm {

// When a value is added, name it in to_string() too.
enum class Counter : uint8_t {
    kReceived,              // of any sort
    kSent,                  // with those sent again
    kRetransmitted,         // a timer ran out
    kDuplicates,            // received again: answered as before
    kConnectionsRequested,  // connections: REQs sent
    kConnectionsReceived,   // connections: REQs that a listener was told of
    kEstablished,           // connections
    kRejectedByPeer,        // connections
    kRejectedByUs,          // REJs sent, stateless ones too
    kTimedOut,              // connections and address resolutions that were given up
    kTimeWaitCut,           // records that made room for a new one before their time
    kStaleProbes,           // DREQs that ask whether the peer still knows a connection
    // Drops, by reason.
    kDropLength,  // not 256 bytes
    kDropVersion,
    kDropClass,
    kDropMethod,
    kDropAttribute,  // LAP and APR of unknown connections, and what there is not
    kDropUnknownId,  // an answer to nothing that we sent
    kDropSource,     // the ids of a connection, and another address than its peer's
    kDropQpn,        // DREQ: the ids of a connection, and another QP than its own
    kDropState,      // nothing that the connection waits for
    kDropBacklog,    // REQ, SIDR_REQ: the listener's queue is full, or the source's share of it
    kDropTable,      // REQ, SIDR_REQ: as many connections as there may be
    kCount,
};
inline constexpr size_t kCounters = static_cast<size_t>(Counter::kCount);
const char* to_string(Counter counter);

struct Counters {
    std::array<uint64_t, kCounters> values{};
    uint64_t& operator[](Counter c) { return values[static_cast<size_t>(c)]; }
    uint64_t operator[](Counter c) const { return values[static_cast<size_t>(c)]; }
};

}  // namespace rove::cm
