// SPDX-License-Identifier: Apache-2.0
// The counters of the connection manager. They run freely and are never reset; readers take differences. The unit is
// MADs unless the comment names another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rove::cm {

// A new value also needs its name in to_string().
enum class Counter : uint8_t {
    kReceived,              // MADs of any kind
    kSent,                  // including retransmissions
    kRetransmitted,         // sent again by a timer
    kDuplicates,            // received again and answered as before
    kConnectionsRequested,  // connections: REQs sent
    kConnectionsReceived,   // connections: REQs reported to a listener
    kEstablished,           // connections
    kRejectedByPeer,        // connections
    kRejectedByUs,          // REJs sent, including stateless ones
    kTimedOut,              // connections and address resolutions abandoned after a timeout
    kTimeWaitCut,           // records removed early to make room for a new one
    kStaleProbes,           // DREQs that ask whether the peer still knows a connection
    // Drops, by reason.
    kDropLength,  // not 256 bytes
    kDropVersion,
    kDropClass,
    kDropMethod,
    kDropAttribute,  // LAP and APR for unknown connections, and undefined attributes
    kDropUnknownId,  // an answer that matches no message of ours
    kDropSource,     // ids of a connection, but not its peer's address
    kDropQpn,        // DREQ with the ids of a connection, but not its QP
    kDropState,      // a message that the connection's state does not expect
    kDropBacklog,    // REQ, SIDR_REQ: the listener's queue is full, or the source has used its share
    kDropTable,      // REQ, SIDR_REQ: the limit on connections is reached
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
