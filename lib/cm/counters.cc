// SPDX-License-Identifier: Apache-2.0
#include "cm/counters.h"

namespace rove::cm {

const char* to_string(Counter counter) {
    switch (counter) {
        case Counter::kReceived:
            return "received";
        case Counter::kSent:
            return "sent";
        case Counter::kRetransmitted:
            return "retransmitted";
        case Counter::kDuplicates:
            return "duplicates";
        case Counter::kConnectionsRequested:
            return "connections_requested";
        case Counter::kConnectionsReceived:
            return "connections_received";
        case Counter::kEstablished:
            return "established";
        case Counter::kRejectedByPeer:
            return "rejected_by_peer";
        case Counter::kRejectedByUs:
            return "rejected_by_us";
        case Counter::kTimedOut:
            return "timed_out";
        case Counter::kTimeWaitCut:
            return "time_wait_cut";
        case Counter::kStaleProbes:
            return "stale_probes";
        case Counter::kDropLength:
            return "drop_length";
        case Counter::kDropVersion:
            return "drop_version";
        case Counter::kDropClass:
            return "drop_class";
        case Counter::kDropMethod:
            return "drop_method";
        case Counter::kDropAttribute:
            return "drop_attribute";
        case Counter::kDropUnknownId:
            return "drop_unknown_id";
        case Counter::kDropSource:
            return "drop_source";
        case Counter::kDropQpn:
            return "drop_qpn";
        case Counter::kDropState:
            return "drop_state";
        case Counter::kDropBacklog:
            return "drop_backlog";
        case Counter::kDropTable:
            return "drop_table";
        case Counter::kCount:
            break;
    }
    return "unknown";
}

}  // namespace rove::cm
