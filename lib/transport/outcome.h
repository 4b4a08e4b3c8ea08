// SPDX-License-Identifier: Apache-2.0
// The outcome of a request that a responder executes, and its consequences: the NAK, the asynchronous event, the
// completion of the receive request, and the QP's state. One table for rc, mp and uc, after IBTA's "Responder error
// behavior" (9.9.3, table 59 of release 1.3; classes A to J).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/headers.h"

namespace rove::transport {

enum class Outcome : uint8_t {
    kDone,
    kBusy,             // mp: an answer has no room yet; the request is repeated
    kNoReceive,        // no receive request is posted
    kInvalidRequest,   // sequence, opcode, length, alignment or rights of the QP
    kRemoteAccess,     // key, bounds, protection domain or rights of the memory that the request names
    kTooLong,          // a SEND does not fit its receive request
    kLocalProtection,  // the memory of the receive request
    kBadInvalidate,    // a SEND with invalidate names a key that cannot be invalidated
    kCount,
};

struct Consequence {
    uint8_t syndrome;  // in the answer; an RNR NAK also has the timer's code
    bool is_error;     // rc, mp: the QP enters ERR
    bool has_event;
    ibv_event_type event;
    ibv_wc_status receive;  // status of the receive request that the message has taken
    bool uc_is_error;       // uc: the QP enters ERR; otherwise the message is dropped silently (9.8.3)
};

// Indexed by Outcome.
inline constexpr std::array<Consequence, static_cast<size_t>(Outcome::kCount)> kConsequences{{
    {wire::kSyndromeAck, false, false, {}, IBV_WC_SUCCESS, false},
    // This answer is mp's own (NACK), not IBTA's.
    {wire::kSyndromeNakSequence, false, false, {}, IBV_WC_SUCCESS, false},
    // 9.7.5.2.8, class B: RNR NAK, and the QP continues. UC: 9.8.3.2, the message is dropped.
    {wire::kSyndromeRnrNak, false, false, {}, IBV_WC_SUCCESS, false},
    // Class C: NAK invalid request, an affiliated event (11.6.3.2).
    {wire::kSyndromeNakInvalidRequest, true, true, IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR, false},
    // Class C: NAK remote access error, an affiliated event (11.6.3.2). The receive that a WRITE's immediate has taken
    // fails as in 11.6.2, "local access error".
    {wire::kSyndromeNakRemoteAccess, true, true, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR, false},
    // Class C as well: NAK invalid request; the receive reports the reason, so there is no event (11.6.2, "local length
    // error").
    {wire::kSyndromeNakInvalidRequest, true, false, {}, IBV_WC_LOC_LEN_ERR, true},
    // Class A: NAK remote operational error; the completion reports the local fault (11.6.2).
    {wire::kSyndromeNakRemoteOperation, true, false, {}, IBV_WC_LOC_PROT_ERR, true},
    // 9.9.6.3, 10.6.7: a key that is not valid for the QP is a remote access error for an invalidation as for a WRITE.
    // The message's data is in place, but its last packet is refused. The receive reports that, and there is no event.
    {wire::kSyndromeNakRemoteAccess, true, false, {}, IBV_WC_REM_INV_REQ_ERR, false},
}};

constexpr const Consequence& consequence_of(Outcome outcome) {
    return kConsequences[static_cast<size_t>(outcome)];
}

// Returns the status of a request that its responder answered with this NAK, which is no sequence error (11.6.2).
constexpr ibv_wc_status status_of_nak(uint8_t syndrome) {
    switch (syndrome) {
        case wire::kSyndromeNakRemoteAccess:
            return IBV_WC_REM_ACCESS_ERR;
        case wire::kSyndromeNakRemoteOperation:
            return IBV_WC_REM_OP_ERR;
        default:
            return IBV_WC_REM_INV_REQ_ERR;
    }
}

}  // namespace rove::transport
