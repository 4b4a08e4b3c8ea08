// SPDX-License-Identifier: Apache-2.0
// The requester of RC: ACKs, NAKs and responses.
#pragma once

#include "transport/requester.h"

namespace rove::transport {

template <class S, class P>
void RcRequesterLogic<S, P>::receive_ack(const wire::Headers& headers) {
    const Psn psn(headers.bth.psn);
    const uint8_t syndrome = headers.aeth.syndrome;
    const uint8_t kind = syndrome >> 5;
    // An ACK may repeat the PSN before `una`; anything else must name a packet in flight.
    if (psn >= r_.max_psn || psn < r_.una.previous() || kind == 2 || kind > 3) {
        ++core_.counters[Counter::kDropResponse];
        return;
    }
    // The backoff is for READs, whose probes request all their data (note 3). For other requests a probe is one packet,
    // and probes come sooner again when answers arrive without them: the answers of a slow peer may all be far apart.
    if (r_.probes != 0 && psn >= r_.una && any_begun() && !oldest().awaits_response()) {
        if (!r_.probed || r_.probes == 1) --r_.probes;
        r_.probe_deadline = core_.now_ns + probe_ns();  // sooner than before
        core_.deadlines.schedule(qp_, r_.probe_deadline);
    }
    if (kind == 0) {
        ++core_.counters[Counter::kRxAcks];
        if (r_.probed && r_.is_guess && psn == r_.probe_psn) {
            // No answer came within the time that was taken for a round trip, so this one answers the probe.
            r_.srtt_ns = 0;
            r_.is_guess = false;
            measure(core_.now_ns - r_.probed_ns);
        }
        if (!acknowledge(psn + 1)) on_valid_response();
        if (r_.probed && qp_.state != IBV_QPS_ERR) {
            // Nothing behind the probe has arrived, although packets sent before it would have.
            if (psn == r_.probe_psn && r_.una == psn + 1 && r_.outstanding()) {
                if (may_answer(r_.probed_ns)) {
                    reduce_window();
                    rewind_carefully(Counter::kResentInferred);
                    r_.probed = false;
                }
            } else {
                r_.probed = false;
            }
        }
        // A READ or atomic before the acknowledged packet has no response, so the response was lost.
        if (qp_.state != IBV_QPS_ERR && any_begun() && psn >= r_.una && oldest().awaits_response() && !rewound_here()) {
            rewind(Counter::kResentInferred);
        }
        return;
    }
    if (psn < r_.una) {
        ++core_.counters[Counter::kDropResponse];
        return;
    }
    if (!acknowledge(psn)) on_valid_response();
    if (qp_.state == IBV_QPS_ERR) return;
    const bool here = r_.una == psn;  // false: a response before it is missing
    if (kind == 1 && here) {
        ++core_.counters[Counter::kRxNakRnr];
        if (retry_.rnr_until > core_.now_ns) return;  // reported already
        if (qp_.rnr_retry != 7 && retry_.rnr_retries_left-- == 0) {
            fail(IBV_WC_RNR_RETRY_EXC_ERR);
            return;
        }
        retry_.retries_left = qp_.retry_cnt;  // the peer answers
        rewind(Counter::kResentRnr);
        retry_.rnr_until = core_.now_ns + rnr_timer_ns(syndrome & 0x1F);
        retry_.ack_deadline = r_.probe_deadline = kNever;  // the peer is alive
        core_.deadlines.schedule(qp_, retry_.rnr_until);
        return;
    }
    if (kind == 3 && here && syndrome != wire::kSyndromeNakSequence) {
        ++core_.counters[Counter::kRxNakError];
        fail(status_of_nak(syndrome));
        return;
    }
    ++core_.counters[Counter::kRxNakSequence];
    if (core_.config.dcqcn.disorder_is_cnp) congestion_.on_cnp(core_.config.dcqcn, core_.now_ns);
    // Each place causes one rewind: a repeated NAK brings nothing new, and a lost retransmission is left to the timer.
    if (rewound_here()) return;
    reduce_window();
    rewind(Counter::kResentNack);
}

// Returns the request that a response with this PSN answers: the oldest, if it has that kind and nothing before it is
// missing. Returns null otherwise, and requests missing data again.
template <class S, class P>
template <bool (SendWqe::*kind)() const>
SendWqe* RcRequesterLogic<S, P>::answered_by(Psn psn) {
    if (is_answered_by<kind>(psn)) [[likely]]
        return &oldest();
    if (psn >= r_.una && psn < r_.max_psn) {  // a response acknowledges everything before it
        acknowledge(psn);
        if (qp_.state == IBV_QPS_ERR) return nullptr;
        if (is_answered_by<kind>(psn)) return &oldest();
    }
    drop_response(psn);
    return nullptr;
}

// Drops a response that is not for the oldest request.
template <class S, class P>
void RcRequesterLogic<S, P>::drop_response(Psn psn) {
    ++core_.counters[Counter::kDropResponse];
    if (r_.outstanding()) {  // for example the answer to a repeated request: the peer is not silent
        r_.probe_deadline = core_.now_ns + probe_ns();
        on_valid_response();
    }
    const bool later = psn > r_.una && psn < r_.max_psn;
    if (later && any_begun() && oldest().awaits_response() && !rewound_here()) rewind(Counter::kResentInferred);
}

// Accounts for the response packet at `una`, which was placed; `last` ends its request.
template <class S, class P>
void RcRequesterLogic<S, P>::take_response(bool last) {
    ++r_.una;
    ++core_.counters[Counter::kPsnsAcknowledged];
    if (last) {
        core_.complete_send(qp_, qp_.sq.consumed(), IBV_WC_SUCCESS);
        if (any_begun() && oldest().packets == 0) acknowledge(r_.una);  // local operations behind it
    }
    if (r_.una > r_.next_psn) resume_at_una();
    progress(1);
}

template <class S, class P>
DirectPlacement RcRequesterLogic<S, P>::receive_in_place(const wire::ParsedFrame& frame) {
    const Psn psn(frame.headers.bth.psn);
    if (psn != r_.una || !(psn < r_.max_psn) || !any_begun()) return DirectPlacement::kNotEligible;
    SendWqe& wqe = oldest();
    const auto packet = static_cast<uint32_t>(psn - Psn(wqe.first_psn));
    if (!wqe.is_read() || !part_at(wqe, packet, psn).is(wire::Op::kReadResponseMiddle))
        return DirectPlacement::kNotEligible;
    wire::VerifyingReader payload(frame);
    if (core_.scatter(wqe.sges(), wqe.num_sge, packet * qp_.mtu, payload, qp_.mtu, qp_.pd) != IBV_WC_SUCCESS) {
        return DirectPlacement::kNotEligible;
    }
    if (!payload.icrc_matches()) return DirectPlacement::kBadIcrc;
    ++r_.una;
    ++core_.counters[Counter::kPsnsAcknowledged];
    if (r_.una > r_.next_psn) resume_at_una();
    progress(1);
    return DirectPlacement::kPlaced;
}

// Returns the operations that packet number `packet` of the READ `wqe` may have. Its data is requested in parts (design
// note 2), and again from the place where an answer was missing. Such a repetition begins with First or Only at a
// standard responder, with Middle or Last at Linux rxe.
template <class S, class P>
auto RcRequesterLogic<S, P>::part_at(const SendWqe& wqe, uint32_t packet, Psn psn) const -> Part {
    const uint32_t chunk = read_chunk(), within = packet % chunk;
    const bool repeated = psn == r_.resumed_at;
    // A packet that begins a part which was requested once can only be its first.
    return {.begins = within == 0 && !repeated,
            .may_begin = within == 0 || repeated,
            .ends = within + 1 == chunk || packet + 1 == wqe.packets};
}

template <class S, class P>
void RcRequesterLogic<S, P>::receive_read_response(const wire::ParsedFrame& frame) {
    const Psn psn(frame.headers.bth.psn);
    SendWqe* wqe = answered_by<&SendWqe::awaits_read_response>(psn);
    if (wqe == nullptr) return;
    const auto packet = static_cast<uint32_t>(psn - Psn(wqe->first_psn));
    const uint32_t offset = packet * qp_.mtu;
    const wire::Op op = wire::op_of(frame.headers.bth.opcode);
    const Part part = part_at(*wqe, packet, psn);
    const bool has_aeth = op != wire::Op::kReadResponseMiddle;
    if (frame.payload_bytes != std::min(qp_.mtu, wqe->response_bytes() - offset) || !part.is(op) ||
        (has_aeth && frame.headers.aeth.syndrome >> 5 != 0)) {
        fail(IBV_WC_BAD_RESP_ERR);
        return;
    }
    ibv_wc_status status = IBV_WC_SUCCESS;
    if (frame.payload_bytes != 0) {
        BytesReader payload{frame.payload};
        status = core_.scatter(wqe->sges(), wqe->num_sge, offset, payload, frame.payload_bytes, qp_.pd);
    }
    if (status != IBV_WC_SUCCESS) {
        fail(status);
        return;
    }
    if (part.ends && r_.reads_outstanding != 0) --r_.reads_outstanding;
    take_response(packet + 1 == wqe->packets);
}

template <class S, class P>
void RcRequesterLogic<S, P>::receive_atomic_response(const wire::Headers& headers) {
    SendWqe* wqe = answered_by<&SendWqe::is_atomic>(Psn(headers.bth.psn));
    if (wqe == nullptr) return;
    if (headers.aeth.syndrome >> 5 != 0) {
        fail(IBV_WC_BAD_RESP_ERR);
        return;
    }
    BytesReader original{reinterpret_cast<const uint8_t*>(&headers.atomic_original)};
    const ibv_wc_status status =
        core_.scatter(wqe->sges(), wqe->num_sge, 0, original, sizeof headers.atomic_original, qp_.pd);
    if (status != IBV_WC_SUCCESS) {
        fail(status);
        return;
    }
    if (r_.reads_outstanding != 0) --r_.reads_outstanding;
    take_response(true);
}

}  // namespace rove::transport
