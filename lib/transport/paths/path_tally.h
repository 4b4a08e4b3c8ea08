// SPDX-License-Identifier: Apache-2.0
// What became of a stream's latest packets on each path: for telemetry. A sender keeps no state per path (paths.h, note
// 1), so this is counted from its records when somebody asks.
#pragma once

#include <map>

#include "transport/paths/paths.h"

namespace rove::transport {

// Of the packets that Paths::for_each() visits.
struct PathTally {
    uint32_t packets = 0;  // whose latest transmission took this path; the sum of the next three
    uint32_t on_their_way = 0, acknowledged = 0;
    uint32_t to_send_again = 0;  // lost or refused
    uint32_t marked = 0;         // met congestion: their ACK has ECE
    uint32_t lost = 0;           // here, the last time they were, whatever path they took afterwards
    uint32_t retransmitted = 0;
    uint32_t acks_to_use = 0;  // MP-3: so many ACKs from here may let packets out

    void add(const PathTally& other);

    // "good", "congested" (marks), "lossy", "dead" (losses, and nothing has come back), "unknown".
    const char* state() const;
};

// By virtual path.
std::map<uint16_t, PathTally> tally(const Paths& paths, const SendStream& stream);

}  // namespace rove::transport
