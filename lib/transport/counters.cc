// SPDX-License-Identifier: Apache-2.0
#include "transport/counters.h"

namespace rove::transport {

const char* to_string(Counter counter) {
    switch (counter) {
        case Counter::kRxPackets:
            return "rx_packets";
        case Counter::kRxBytes:
            return "rx_bytes";
        case Counter::kTxPackets:
            return "tx_packets";
        case Counter::kTxBytes:
            return "tx_bytes";
        case Counter::kTxAcks:
            return "tx_acks";
        case Counter::kTxNakSequence:
            return "tx_nak_sequence";
        case Counter::kTxNakRnr:
            return "tx_nak_rnr";
        case Counter::kTxNakError:
            return "tx_nak_error";
        case Counter::kTxCnp:
            return "tx_cnp";
        case Counter::kRxAcks:
            return "rx_acks";
        case Counter::kRxNakSequence:
            return "rx_nak_sequence";
        case Counter::kRxNakRnr:
            return "rx_nak_rnr";
        case Counter::kRxNakError:
            return "rx_nak_error";
        case Counter::kRxCnp:
            return "rx_cnp";
        case Counter::kRxCe:
            return "rx_ce";
        case Counter::kRxDuplicate:
            return "rx_duplicate";
        case Counter::kRetransmittedPackets:
            return "retransmitted_packets";
        case Counter::kResentNack:
            return "resent_nack";
        case Counter::kResentRnr:
            return "resent_rnr";
        case Counter::kResentInferred:
            return "resent_inferred";
        case Counter::kResentEarly:
            return "resent_early";
        case Counter::kResentTimeout:
            return "resent_timeout";
        case Counter::kTimeouts:
            return "timeouts";
        case Counter::kTailProbes:
            return "tail_probes";
        case Counter::kPsnsSent:
            return "psns_sent";
        case Counter::kPsnsAcknowledged:
            return "psns_acknowledged";
        case Counter::kPsnsLost:
            return "psns_lost";
        case Counter::kPsnsAbandoned:
            return "psns_abandoned";
        case Counter::kDelayedPackets:
            return "delayed_packets";
        case Counter::kDowngrades:
            return "downgrades";
        case Counter::kLocalErrors:
            return "local_errors";
        case Counter::kCqOverruns:
            return "cq_overruns";
        case Counter::kDropUnknownQp:
            return "drop_unknown_qp";
        case Counter::kDropQpState:
            return "drop_qp_state";
        case Counter::kDropService:
            return "drop_service";
        case Counter::kDropPort:
            return "drop_port";
        case Counter::kDropSource:
            return "drop_source";
        case Counter::kDropDestination:
            return "drop_destination";
        case Counter::kDropPkey:
            return "drop_pkey";
        case Counter::kDropQkey:
            return "drop_qkey";
        case Counter::kDropSequence:
            return "drop_sequence";
        case Counter::kDropEarlySync:
            return "drop_early_sync";
        case Counter::kDropResponse:
            return "drop_response";
        case Counter::kDropLength:
            return "drop_length";
        case Counter::kDropNoReceive:
            return "drop_no_receive";
        case Counter::kDropMulticast:
            return "drop_multicast";
        case Counter::kDropOverload:
            return "drop_overload";
        case Counter::kCount:
            break;
    }
    return "unknown";
}

}  // namespace rove::transport
