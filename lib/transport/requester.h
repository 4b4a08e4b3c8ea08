// SPDX-License-Identifier: Apache-2.0
// The requester of RC, UC and UD: turns work requests into packets, follows ACKs and responses, recovers.
// Units: nanoseconds, bytes, packets.
//
// DESIGN NOTES
// 1. Go-back-N resumes at `una`, never elsewhere: all before it is done, all after it is sent again. So no list of packets
//    is kept; a packet is made from its work request each time. A READ of which a part has arrived is asked for again
//    from there (IBTA 9.4.4.2 allows a READ request that starts inside an earlier one's PSN range).
// 2. A large READ goes out as several READ requests of half a window each. On the wire their PSNs are those that one
//    request would have used, and the responder cannot run further ahead than our window.
// 3. Loss of a last packet, of its ACK, or of a NAK leaves nothing that provokes another NAK. Waiting for the verbs' timeout
//    (67 ms and more) would be right but slow, so after twice the usual silence the packet at `una` is sent once more
//    (after the tail loss probe of RFC 8985, section 7). If it had arrived, it is a duplicate, and every responder
//    acknowledges all that it has; if not, its own ACK says that what was sent behind it is gone too. Probes do not count as
//    retries. For a READ, the probe asks for all its data again. Too early, it lengthens the queue that was slow: so the usual
//    silence is a peak that fades, and probes stay as far apart as they had to go until a flight was answered without one.
#pragma once

#include "transport/core.h"
#include "transport/rnr_timer.h"
#include "transport/send_op.h"

namespace rove::transport {

template <class S>
class RequesterLogic {
  public:
    RequesterLogic(Core<S>& core, QueuePair& qp) : core_(core), qp_(qp), r_(qp.requester) {}

    uint32_t transmit(uint32_t budget);
    // Whether transmit() would find a request that nothing but a fence can hold back.
    bool can_send() const {
        return qp_.state == IBV_QPS_RTS && r_.next_wqe != limit() && r_.rnr_until <= core_.now_ns && window_open();
    }
    void receive_ack(const wire::Headers& headers);
    // As ResponderLogic's: whether the frame is the next in the middle of the oldest READ's data, and its reception.
    bool expects_middle(const wire::ParsedFrame& frame, wire::Op op);
    bool receive_read_response(const wire::ParsedFrame& frame);
    void receive_atomic_response(const wire::Headers& headers);
    void expire();
    void enter_drain();
    uint64_t next_deadline() const {
        uint64_t deadline = std::min(r_.ack_deadline, r_.probe_deadline);
        if (r_.rnr_until != 0) deadline = std::min(deadline, r_.rnr_until);
        return deadline;
    }

  private:
    enum class Begin : uint8_t { kSend, kWait, kDone };

    bool window_open() const { return r_.next_psn - r_.una < static_cast<int32_t>(core_.config.window_packets); }
    uint32_t limit() const { return qp_.state == IBV_QPS_SQD ? r_.drain_wqe : qp_.sq.available_until(); }
    bool outstanding() const { return r_.una != r_.max_psn; }
    uint64_t timeout_ns() const {
        if (qp_.timeout == 0) return kNever;
        return std::max<uint64_t>(4096ull << qp_.timeout, core_.config.min_timeout_ns);
    }
    uint64_t probe_ns() const {
        return std::max(core_.config.min_probe_ns, 2 * r_.silence_ns) << std::min<uint8_t>(r_.probes, 10);
    }
    // Packets per READ request (design note 2). With one request at a time the pieces would only wait for each other.
    uint32_t read_chunk() const {
        return qp_.max_rd_atomic < 2 ? UINT32_MAX : std::max(core_.config.window_packets / 2, 1u);
    }

    Begin begin(SendWqe& wqe);
    bool emit(SendWqe& wqe, uint32_t packet, Psn psn, bool ack_req);
    void emit_read(const SendWqe& wqe);
    void emit_atomic(const SendWqe& wqe);
    bool send_datagram(SendWqe& wqe);
    bool want_ack(const SendWqe& wqe, bool last);
    void sent(Psn first, uint32_t psns);
    void complete_unacknowledged();
    void execute_local(SendWqe& wqe);
    bool acknowledge(Psn end);
    void progress();
    void hear();
    void restart_timers();
    void resume_at_una();
    void rewind();
    void fail(ibv_wc_status status);
    void fail_if_oldest();
    void probe();
    SendWqe* answered_by(Psn psn, bool (SendWqe::*kind)() const);
    void take_response(bool last);
    void check_drained();
    SendWqe& oldest() { return qp_.sq.at(qp_.sq.consumed()); }
    bool rewound_here() const { return r_.rewound && r_.rewound_to == r_.una; }
    bool any_begun() const { return qp_.sq.consumed() != r_.begun_wqe; }

    Core<S>& core_;
    QueuePair& qp_;
    Requester& r_;
};

template <class S>
uint32_t RequesterLogic<S>::transmit(uint32_t budget) {
    if (qp_.state != IBV_QPS_RTS && qp_.state != IBV_QPS_SQD) return 0;
    if (r_.rnr_until > core_.now_ns) return 0;
    uint32_t packets = 0;
    const uint32_t end = limit();
    while (packets < budget && r_.next_wqe != end && !r_.failed) {
        const bool reliable = qp_.type == IBV_QPT_RC;
        if (reliable && !window_open()) break;
        if (qp_.congestion.limited() && qp_.congestion.next_send_ns() > core_.now_ns) {
            core_.deadlines.schedule(qp_, qp_.congestion.next_send_ns());
            break;
        }
        if (!core_.ready()) break;
        SendWqe& wqe = qp_.sq.at(r_.next_wqe);
        if (r_.next_packet == 0) {
            const Begin what = begin(wqe);
            if (what == Begin::kWait) break;
            if (what == Begin::kDone) continue;
        } else if (wqe.is_read() && r_.reads_outstanding >= qp_.max_rd_atomic) {
            break;                              // design note 2: each part counts
        }
        ++packets;
        if (qp_.type == IBV_QPT_UD) {
            if (!send_datagram(wqe)) break;
            complete_unacknowledged();
            continue;
        }
        if (wqe.is_read()) {
            emit_read(wqe);
            continue;
        }
        if (wqe.is_atomic()) {
            emit_atomic(wqe);
            continue;
        }
        const bool last = r_.next_packet + 1 == wqe.packets;
        const Psn psn = r_.next_psn;
        if (!emit(wqe, r_.next_packet, psn, reliable && want_ack(wqe, last))) break;
        ++r_.next_packet;
        if (last) {
            ++r_.next_wqe;
            r_.next_packet = 0;
        }
        sent(psn, 1);
        if (last && !reliable) complete_unacknowledged();
    }
    if (r_.failed) fail_if_oldest();
    if (packets != 0 && qp_.type == IBV_QPT_RC) core_.deadlines.schedule(qp_, next_deadline());
    return packets;
}

// Whether the request at next_wqe may start now; gives it its PSNs.
template <class S>
auto RequesterLogic<S>::begin(SendWqe& wqe) -> Begin {
    if ((wqe.send_flags & IBV_SEND_FENCE) != 0 && r_.reads_outstanding != 0) return Begin::kWait;
    if (wqe.is_local()) {
        execute_local(wqe);
        return Begin::kDone;
    }
    if (wqe.awaits_response() && r_.reads_outstanding >= qp_.max_rd_atomic) return Begin::kWait;
    wqe.first_psn = r_.next_psn.value();
    wqe.packets = wqe.is_atomic() || wqe.length == 0 ? 1 : (wqe.length + qp_.mtu - 1) / qp_.mtu;
    if (r_.next_wqe == r_.begun_wqe) ++r_.begun_wqe;
    return Begin::kSend;
}

template <class S>
bool RequesterLogic<S>::want_ack(const SendWqe& wqe, bool last) {
    return (last && ((wqe.send_flags & (IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)) != 0 ||
                     r_.next_wqe + 1 == qp_.sq.available_until())) ||
           r_.since_ack_req + 1u >= core_.config.ack_interval_packets ||
           r_.next_psn - r_.una + 1 >= static_cast<int32_t>(core_.config.window_packets);
}

// Packet number `packet` of a SEND or WRITE. False: its data may not be read; the request fails in its turn.
template <class S>
bool RequesterLogic<S>::emit(SendWqe& wqe, uint32_t packet, Psn psn, bool ack_req) {
    const uint32_t offset = packet * qp_.mtu;
    const bool first = packet == 0, last = packet + 1 == wqe.packets;
    const uint32_t bytes = std::min(qp_.mtu, wqe.length - offset);
    wire::Segment segments[kMaxSge];
    const int count = core_.gather(wqe, offset, bytes, qp_.pd, segments);
    if (count < 0) {
        r_.failed = true;
        r_.failure = IBV_WC_LOC_PROT_ERR;
        return false;
    }
    wire::Headers h;
    h.bth.opcode = wire::opcode(qp_.type == IBV_QPT_RC ? wire::Service::kRc : wire::Service::kUc,
                                send_op(wqe.opcode, first, last));
    h.bth.solicited = last && (wqe.send_flags & IBV_SEND_SOLICITED) != 0;
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.ack_req = ack_req;
    h.bth.psn = psn.value();
    h.reth = {wqe.remote_addr, wqe.rkey, wqe.length};
    h.immediate = h.invalidate_rkey = wqe.immediate;
    r_.since_ack_req = ack_req ? 0 : static_cast<uint16_t>(r_.since_ack_req + 1);
    core_.send(qp_.path, h, {segments, static_cast<size_t>(count)}, bytes);
    if (qp_.congestion.limited()) qp_.congestion.on_sent(core_.config.dcqcn, bytes + kHeaderBytes, core_.now_ns);
    return true;
}

template <class S>
void RequesterLogic<S>::emit_read(const SendWqe& wqe) {
    const uint32_t chunk = read_chunk();
    const uint32_t end = wqe.packets - r_.next_packet / chunk * chunk > chunk ? (r_.next_packet / chunk + 1) * chunk : wqe.packets;
    const uint32_t offset = r_.next_packet * qp_.mtu;
    const uint32_t length = end == wqe.packets ? wqe.length - offset : end * qp_.mtu - offset;
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kRc, wire::Op::kReadRequest);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.ack_req = true;
    h.bth.psn = r_.next_psn.value();
    h.reth = {wqe.remote_addr + offset, wqe.rkey, length};
    core_.send(qp_.path, h, {}, 0);
    ++r_.reads_outstanding;
    r_.since_ack_req = 0;
    const Psn first = r_.next_psn;
    const uint32_t psns = end - r_.next_packet;
    r_.next_packet = end;
    if (end == wqe.packets) {
        ++r_.next_wqe;
        r_.next_packet = 0;
    }
    sent(first, psns);
}

template <class S>
void RequesterLogic<S>::emit_atomic(const SendWqe& wqe) {
    wire::Headers h;
    const bool swap = wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    h.bth.opcode = wire::opcode(wire::Service::kRc, swap ? wire::Op::kCompareSwap : wire::Op::kFetchAdd);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.ack_req = true;
    h.bth.psn = r_.next_psn.value();
    h.atomic = {wqe.remote_addr, wqe.rkey, swap ? wqe.swap : wqe.compare_add, swap ? wqe.compare_add : 0};
    core_.send(qp_.path, h, {}, 0);
    ++r_.reads_outstanding;
    r_.since_ack_req = 0;
    const Psn first = r_.next_psn;
    ++r_.next_wqe;
    sent(first, 1);
}

template <class S>
bool RequesterLogic<S>::send_datagram(SendWqe& wqe) {
    wire::Segment segments[kMaxSge];
    const int count = core_.gather(wqe, 0, wqe.length, qp_.pd, segments);
    if (count < 0) {
        r_.failed = true;
        r_.failure = IBV_WC_LOC_PROT_ERR;
        return false;
    }
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kUd, send_op(wqe.opcode, true, true));
    h.bth.solicited = (wqe.send_flags & IBV_SEND_SOLICITED) != 0;
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = wqe.remote_qpn;
    h.bth.psn = r_.next_psn.value();
    h.deth = {wqe.remote_qkey, qp_.qpn};
    h.immediate = wqe.immediate;
    core_.send(*wqe.path, h, {segments, static_cast<size_t>(count)}, wqe.length);
    ++r_.next_wqe;
    ++r_.next_psn;
    return true;
}

// Packets [first, first + psns) went out.
template <class S>
void RequesterLogic<S>::sent(Psn first, uint32_t psns) {
    r_.next_psn = first + psns;
    if (r_.next_psn > r_.max_psn) {
        r_.max_psn = r_.next_psn;
    } else {
        ++core_.counters[Counter::kRetransmittedPackets];
    }
    if (qp_.type != IBV_QPT_RC) {
        r_.una = r_.max_psn;
        return;
    }
    if (r_.ack_deadline == kNever) restart_timers();
}

// UC and UD: done when sent.
template <class S>
void RequesterLogic<S>::complete_unacknowledged() {
    r_.begun_wqe = r_.next_wqe;
    r_.una = r_.max_psn = r_.next_psn;
    core_.complete_send(qp_, r_.next_wqe - 1, IBV_WC_SUCCESS);
    check_drained();
}

// A local operation takes no PSN: it is executed when its turn to be sent comes, and completes in its turn.
template <class S>
void RequesterLogic<S>::execute_local(SendWqe& wqe) {
    wqe.first_psn = r_.next_psn.value();
    wqe.packets = 0;
    if (r_.next_wqe == r_.begun_wqe) {          // not again after a rewind
        const bool bind = wqe.opcode == IBV_WR_BIND_MW;
        const bool done = bind ? core_.memory.bind(*wqe.window, wqe.immediate, wqe.rkey, wqe.remote_addr, wqe.swap,
                                                   wqe.bind_access, qp_)
                               : core_.memory.invalidate(wqe.immediate, qp_);
        if (!done) {
            r_.failed = true;
            r_.failure = bind ? IBV_WC_MW_BIND_ERR : IBV_WC_LOC_PROT_ERR;
            return;
        }
        ++r_.begun_wqe;
    }
    ++r_.next_wqe;
    if (r_.una == r_.max_psn) acknowledge(r_.una);
}

// All packets before `end` are acknowledged; completes the requests that this ends. Stops at a READ or atomic whose
// response is missing. Returns whether anything moved.
template <class S>
bool RequesterLogic<S>::acknowledge(Psn end) {
    const Psn before = r_.una;
    uint32_t index = qp_.sq.consumed();
    const uint32_t first = index;
    while (index != r_.begun_wqe) {
        SendWqe& wqe = qp_.sq.at(index);
        const Psn begin(wqe.first_psn);
        if (wqe.awaits_response() && begin < end) break;
        if (begin + wqe.packets > end) {
            if (end > r_.una) r_.una = end;
            break;
        }
        if (begin + wqe.packets > r_.una) r_.una = begin + wqe.packets;
        core_.complete_send(qp_, index++, IBV_WC_SUCCESS);
    }
    if (r_.una == before && index == first) return false;
    if (r_.una > r_.next_psn || static_cast<int32_t>(index - r_.next_wqe) > 0) resume_at_una();
    progress();
    return true;
}

template <class S>
void RequesterLogic<S>::progress() {
    r_.retries_left = qp_.retry_cnt;
    r_.rnr_retries_left = qp_.rnr_retry;
    r_.rewound = false;
    hear();
    if (r_.una > r_.flight_end) {
        if (!r_.flight_probed) {                // Karn: what was asked for twice tells no time
            r_.silence_ns = std::max(r_.flight_silence_ns, (7 * r_.silence_ns + r_.flight_silence_ns) / 8);
            r_.probes = 0;
        }
        r_.flight_end = r_.max_psn;
        r_.flight_silence_ns = 0;
        r_.flight_probed = false;
    }
    restart_timers();
    if (r_.failed) fail_if_oldest();
    check_drained();
}

template <class S>
void RequesterLogic<S>::hear() {
    r_.flight_silence_ns = std::max(r_.flight_silence_ns, core_.now_ns - r_.heard_ns);
    r_.heard_ns = core_.now_ns;
}

template <class S>
void RequesterLogic<S>::restart_timers() {
    r_.heard_ns = core_.now_ns;
    if (!outstanding()) {
        r_.ack_deadline = r_.probe_deadline = kNever;
        return;
    }
    const uint64_t timeout = timeout_ns();
    r_.ack_deadline = timeout == kNever ? kNever : core_.now_ns + timeout;
    r_.probe_deadline = core_.now_ns + probe_ns();
    core_.deadlines.schedule(qp_, next_deadline());
}

// The next packet to send is the one at `una`.
template <class S>
void RequesterLogic<S>::resume_at_una() {
    r_.next_wqe = qp_.sq.consumed();
    r_.next_packet = 0;
    r_.next_psn = r_.una;
    r_.reads_outstanding = 0;
    // A begun request is somewhere in its packets; one that never began starts at `una` by itself.
    if (any_begun()) r_.next_packet = static_cast<uint32_t>(r_.una - Psn(oldest().first_psn));
}

template <class S>
void RequesterLogic<S>::rewind() {
    r_.rewound = true;
    r_.rewound_to = r_.una;
    r_.failed = false;                          // found again when its turn comes
    resume_at_una();
    core_.activate(qp_);
}

// The oldest request ends with `status`, and the QP with it (RC), or its send queue (UC, UD).
template <class S>
void RequesterLogic<S>::fail(ibv_wc_status status) {
    const uint32_t index = qp_.sq.consumed();
    core_.complete_send(qp_, index, status);
    if (qp_.type == IBV_QPT_RC) {
        core_.enter_error(qp_);
    } else {
        qp_.state = IBV_QPS_SQE;
        core_.flush_sends(qp_);
    }
}

template <class S>
void RequesterLogic<S>::fail_if_oldest() {
    if (r_.failed && qp_.sq.consumed() == r_.next_wqe) fail(r_.failure);
}

template <class S>
void RequesterLogic<S>::receive_ack(const wire::Headers& headers) {
    const Psn psn(headers.bth.psn);
    const uint8_t syndrome = headers.aeth.syndrome;
    const uint8_t kind = syndrome >> 5;
    // An ACK may repeat the PSN before `una`; everything else names a packet that is on its way.
    if (psn >= r_.max_psn || psn < r_.una.previous() || kind == 2 || kind > 3) {
        ++core_.counters[Counter::kDropResponse];
        return;
    }
    if (kind == 0) {
        ++core_.counters[Counter::kRxAcks];
        acknowledge(psn + 1);
        if (r_.probed && qp_.state != IBV_QPS_ERR) {
            // Nothing behind the probe has arrived, and what was sent before it would have.
            if (psn == r_.probe_psn && r_.una == psn + 1 && outstanding()) rewind();
            r_.probed = false;
        }
        // A READ or atomic before the acknowledged packet without its response: the response was lost.
        if (qp_.state != IBV_QPS_ERR && any_begun() && psn >= r_.una && oldest().awaits_response() &&
            !rewound_here()) {
            rewind();
        }
        return;
    }
    if (psn < r_.una) {
        ++core_.counters[Counter::kDropResponse];
        return;
    }
    acknowledge(psn);
    if (qp_.state == IBV_QPS_ERR) return;
    const bool here = r_.una == psn;            // false: a response before it is missing
    if (kind == 1 && here) {
        ++core_.counters[Counter::kRxNakRnr];
        if (r_.rnr_until > core_.now_ns) return;            // said already
        if (qp_.rnr_retry != 7 && r_.rnr_retries_left-- == 0) {
            fail(IBV_WC_RNR_RETRY_EXC_ERR);
            return;
        }
        r_.retries_left = qp_.retry_cnt;        // somebody answers
        rewind();
        r_.rnr_until = core_.now_ns + rnr_timer_ns(syndrome & 0x1F);
        r_.ack_deadline = r_.probe_deadline = kNever;       // the peer is alive
        core_.deadlines.schedule(qp_, r_.rnr_until);
        return;
    }
    if (kind == 3 && here && syndrome != wire::kSyndromeNakSequence) {
        ++core_.counters[Counter::kRxNakError];
        switch (syndrome) {
            case wire::kSyndromeNakRemoteAccess: fail(IBV_WC_REM_ACCESS_ERR); break;
            case wire::kSyndromeNakRemoteOperation: fail(IBV_WC_REM_OP_ERR); break;
            default: fail(IBV_WC_REM_INV_REQ_ERR); break;
        }
        return;
    }
    ++core_.counters[Counter::kRxNakSequence];
    // One rewind per place: a repeated NAK says nothing new, and a lost retransmission is the timer's.
    if (!rewound_here()) rewind();
}

// The request that a response with this PSN answers: the oldest, if it is of that kind and nothing before it is missing.
// Null otherwise; what is missing is asked for again.
template <class S>
SendWqe* RequesterLogic<S>::answered_by(Psn psn, bool (SendWqe::*kind)() const) {
    const bool on_its_way = psn >= r_.una && psn < r_.max_psn;
    if (on_its_way) acknowledge(psn);           // a response acknowledges what was before it
    if (qp_.state == IBV_QPS_ERR) return nullptr;
    if (on_its_way && r_.una == psn && any_begun() && (oldest().*kind)()) return &oldest();
    ++core_.counters[Counter::kDropResponse];
    if (outstanding()) {                        // perhaps what was asked for twice: the peer is not silent
        hear();
        r_.probe_deadline = core_.now_ns + probe_ns();
    }
    if (on_its_way && r_.una < psn && any_begun() && oldest().awaits_response() && !rewound_here()) rewind();
    return nullptr;
}

// The response packet at `una` was placed; `last` ends its request.
template <class S>
void RequesterLogic<S>::take_response(bool last) {
    ++r_.una;
    if (last) {
        core_.complete_send(qp_, qp_.sq.consumed(), IBV_WC_SUCCESS);
        acknowledge(r_.una);                    // local operations behind it
    }
    if (r_.una > r_.next_psn) resume_at_una();
    progress();
}

template <class S>
bool RequesterLogic<S>::expects_middle(const wire::ParsedFrame& frame, wire::Op op) {
    const Psn psn(frame.headers.bth.psn);
    if (op != wire::Op::kReadResponseMiddle || psn != r_.una || !(psn < r_.max_psn) || !any_begun()) return false;
    const SendWqe& wqe = oldest();
    return wqe.is_read() && frame.payload_bytes == qp_.mtu && psn + 1 < Psn(wqe.first_psn) + wqe.packets;
}

template <class S>
bool RequesterLogic<S>::receive_read_response(const wire::ParsedFrame& frame) {
    const Psn psn(frame.headers.bth.psn);
    SendWqe* wqe = answered_by(psn, &SendWqe::is_read);
    if (wqe == nullptr) return true;
    const auto packet = static_cast<uint32_t>(psn - Psn(wqe->first_psn));
    const uint32_t offset = packet * qp_.mtu;
    if (frame.payload_bytes != std::min(qp_.mtu, wqe->length - offset)) {
        fail(IBV_WC_BAD_RESP_ERR);
        return true;
    }
    wire::PayloadReader payload(frame);
    const ibv_wc_status status = core_.scatter(wqe->sges(), wqe->num_sge, offset, payload, frame.payload_bytes, qp_.pd);
    if (status != IBV_WC_SUCCESS) {
        fail(status);
        return true;
    }
    if (!payload.intact()) return false;
    const bool last = packet + 1 == wqe->packets;
    if ((last || (packet + 1) % read_chunk() == 0) && r_.reads_outstanding != 0) --r_.reads_outstanding;
    take_response(last);
    return true;
}

template <class S>
void RequesterLogic<S>::receive_atomic_response(const wire::Headers& headers) {
    SendWqe* wqe = answered_by(Psn(headers.bth.psn), &SendWqe::is_atomic);
    if (wqe == nullptr) return;
    BytesReader original{reinterpret_cast<const uint8_t*>(&headers.atomic_original)};
    const ibv_wc_status status = core_.scatter(wqe->sges(), wqe->num_sge, 0, original, sizeof headers.atomic_original, qp_.pd);
    if (status != IBV_WC_SUCCESS) {
        fail(status);
        return;
    }
    if (r_.reads_outstanding != 0) --r_.reads_outstanding;
    take_response(true);
}

template <class S>
void RequesterLogic<S>::expire() {
    const uint64_t now = core_.now_ns;
    if (r_.rnr_until != 0 && r_.rnr_until <= now) {
        r_.rnr_until = 0;
        r_.rewound = false;                     // a sequence NAK now says that the first packet of this attempt was lost
    }
    if (r_.ack_deadline <= now) {
        ++core_.counters[Counter::kTimeouts];
        if (r_.retries_left == 0) {
            fail(IBV_WC_RETRY_EXC_ERR);
            return;
        }
        --r_.retries_left;
        r_.flight_probed = true;
        rewind();
        restart_timers();
    } else if (r_.probe_deadline <= now) {
        probe();
    }
    core_.deadlines.schedule(qp_, next_deadline());
}

// Design note 3.
template <class S>
void RequesterLogic<S>::probe() {
    const uint64_t late_ns = core_.now_ns - r_.probe_deadline;
    if (late_ns > core_.config.min_probe_ns / 2) {              // we were away: what came meanwhile is still to be read
        r_.probe_deadline = core_.now_ns + core_.config.min_probe_ns / 2;
        return;
    }
    if (r_.probes < 255) ++r_.probes;
    r_.flight_probed = true;
    r_.probe_deadline = core_.now_ns + probe_ns();
    if (r_.next_psn != r_.max_psn || !any_begun()) return;      // already sending again
    ++core_.counters[Counter::kTailProbes];
    SendWqe& wqe = oldest();
    // A READ's or atomic's answer is missing: ask again.
    if (wqe.awaits_response() || wqe.packets == 0) {
        rewind();
        return;
    }
    if (!core_.ready()) return;
    if (!emit(wqe, static_cast<uint32_t>(r_.una - Psn(wqe.first_psn)), r_.una, true)) {
        rewind();                               // its memory has gone: the request fails in its turn
        return;
    }
    r_.probed = true;
    r_.probe_psn = r_.una;
    ++core_.counters[Counter::kRetransmittedPackets];
}

template <class S>
void RequesterLogic<S>::enter_drain() {
    r_.draining = true;
    r_.drain_wqe = r_.begun_wqe;
    check_drained();
}

template <class S>
void RequesterLogic<S>::check_drained() {
    if (!r_.draining || qp_.state != IBV_QPS_SQD || any_begun()) return;
    r_.draining = false;
    core_.sink.event(IBV_EVENT_SQ_DRAINED, qp_);
}

}  // namespace rove::transport
