// SPDX-License-Identifier: Apache-2.0
// Summarizes a stream's latest packets by path, for telemetry. A sender keeps no state per path (paths.h, note 1), so
// this is computed from its records on demand.
#pragma once

#include <map>

#include "transport/paths/paths.h"

namespace rove::transport {

// Counts packets that Paths::for_each() visits.
struct PathTally {
    uint32_t packets = 0;  // packets whose latest transmission took this path; the sum of the next three
    uint32_t on_their_way = 0, acknowledged = 0;
    uint32_t to_send_again = 0;  // lost or refused, not yet sent again
    uint32_t marked = 0;         // packets that met congestion: their ACK has ECE
    uint32_t lost = 0;           // packets whose last loss happened on this path, whatever path they took afterwards
    uint32_t retransmitted = 0;
    uint32_t acks_to_use = 0;  // ACKs from this path that may still let packets out (MP-3)

    void add(const PathTally& other);

    // Returns "good", "congested" (marks), "lossy", "dead" (losses and no answer), or "unknown".
    const char* state() const;
};

// Returns the tallies by virtual path.
std::map<uint16_t, PathTally> tally(const Paths& paths, const SendStream& stream);

}  // namespace rove::transport
