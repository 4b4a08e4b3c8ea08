// SPDX-License-Identifier: Apache-2.0
// The responder of RC, and of XRC (P): executes requests in PSN order, and answers them. Units: bytes, packets.
//
// DESIGN NOTES
// 1. Answers leave in PSN order: READ data and atomic results wait in a ring of jobs, and one ACK, the latest, behind
//    them. So a burst of requests costs one ACK, and a READ response makes an ACK before it unnecessary (IBTA
//    9.7.5.1.2).
// 2. A repeated READ or atomic shows that the requester went back to its PSN: jobs from there on are dropped, since it
//    will request them again. READs are executed again, atomics answered from the stored results. The ring therefore
//    holds at most the answers of one full set of requests twice: repeated ones whose first answer sufficed, and the
//    next set. A requester beyond that has more outstanding than max_dest_rd_atomic, which is an invalid request.
// 3. Ping-pong: where a program answers each message at once by a request of its own, the ACK is sent just before that
//    request, in the same burst (RFC 1122's delayed ACK, with Linux TCP's pingpong rule). It saves the peer a round,
//    and more: a peer that polls its CQ for the ACK and then spins on memory, like ib_write_lat, drives its worker only
//    while it polls, and finds the answer in memory when the ACK ends its poll. An ACK that waits without such a
//    request ends the mode.
#pragma once

#include <utility>

#include "transport/message_receiver.h"

namespace rove::transport {

template <class S, class P>
class RcResponderLogic {
  public:
    RcResponderLogic(Core<S>& core, QueuePair& qp, P& rc)
        : core_(core), qp_(qp), s_(rc.responder), congestion_(rc.congestion.rate), executor_(core, qp) {}

    // Receives a packet of the path MTU; `op` is that of a SEND or WRITE.
    [[gnu::always_inline]] inline DirectPlacement receive_in_place(const wire::ParsedFrame& frame, wire::Op op);
    [[gnu::always_inline]] inline void receive(const wire::ParsedFrame& frame);
    bool has_jobs() const { return !s_.jobs.empty(); }
    // Returns true if there is an answer that need not wait.
    bool can_send() const { return has_jobs() || (s_.ack_due && s_.delay.not_before <= core_.now_ns); }
    uint32_t transmit(uint32_t budget) { return s_.has_answers() ? send_answers(budget) : 0; }
    // Repairs the state after a fault (recover-inl.h); `packets` of a burst were sent.
    void recover(uint32_t packets) {
        RcJob& job = s_.jobs.front();
        job.sent += packets * qp_.mtu;
        job.next = job.next + packets;
    }
    // Sends a waiting ACK before the QP goes away.
    void flush_ack() {
        if (s_.ack_due && s_.jobs.empty() && core_.ready(qp_.path)) send_ack();
    }

  private:
    static constexpr bool kIsXrc = P::kService == wire::Service::kXrc;

    // Returns the domain of the memory that a repeated READ request names, and of the data of an answer.
    const void* domain_of(const wire::Headers& headers) const {
        if constexpr (!kIsXrc) return qp_.pd;
        const SharedRecvQueue* srq = core_.find_xrc_srq(qp_, headers.xrc_srqn);
        return srq != nullptr ? srq->pd : nullptr;
    }
    const void* domain_of(const RcJob& job) const { return kIsXrc ? job.pd : qp_.pd; }
    [[gnu::always_inline]] inline void forget_nak();
    [[gnu::always_inline]] inline void go_on(Psn psn, bool acknowledge);
    [[gnu::always_inline]] inline Outcome execute(const wire::ParsedFrame& frame, wire::Op op);
    [[gnu::always_inline]] inline Outcome count_message(Outcome outcome, wire::Op op);
    [[gnu::always_inline]] inline bool execute_small_send(const wire::ParsedFrame& frame);
    Outcome execute_read(const wire::Headers& headers);
    Outcome execute_atomic(const wire::Headers& headers, wire::Op op);
    Outcome execute_empty_answered(const wire::ParsedFrame& frame, wire::Op op);
    void repeat(const wire::Headers& headers, wire::Op op);
    bool drop_jobs_from(Psn psn);
    void push_read(Psn first, const wire::Reth& reth, const void* pd);
    void push_atomic(Psn psn, uint64_t original);
    void queue_ack(Psn psn, uint8_t syndrome);
    void refuse(Outcome outcome, Psn psn);
    uint32_t send_answers(uint32_t budget);
    [[gnu::noinline]] uint32_t send_read_middles(RcJob& job, uint32_t budget);
    [[gnu::always_inline]] inline bool send_read_packet(RcJob& job);
    void send_ack();

    Core<S>& core_;
    QueuePair& qp_;
    RcResponder& s_;
    Dcqcn& congestion_;
    Executor<S> executor_;
};

template <class S, class P>
DirectPlacement RcResponderLogic<S, P>::receive_in_place(const wire::ParsedFrame& frame, wire::Op op) {
    const wire::Bth& bth = frame.headers.bth;
    if (Psn(bth.psn) != s_.epsn) return DirectPlacement::kNotEligible;
    wire::VerifyingReader payload(frame);
    MessageInProgress& m = s_.message;
    if (op == wire::Op::kWriteMiddle) {
        if (m.kind != MessageInProgress::Kind::kWrite || m.write_length - m.offset <= qp_.mtu)
            return DirectPlacement::kNotEligible;
        uint8_t* target = executor_.write_target(m.write_rkey, m.write_va + m.offset, qp_.mtu);
        if (target == nullptr) return DirectPlacement::kNotEligible;
        payload.read(target, qp_.mtu);
    } else {
        const ReceiveSlot& slot = qp_.slot;
        if (m.kind != MessageInProgress::Kind::kSend || slot.wqe.length - m.offset < qp_.mtu)
            return DirectPlacement::kNotEligible;
        if (core_.scatter(slot.sges.get(), slot.wqe.num_sge, m.offset, payload, qp_.mtu, qp_.recv_pd) !=
            IBV_WC_SUCCESS) {
            return DirectPlacement::kNotEligible;
        }
    }
    if (!payload.icrc_matches()) return DirectPlacement::kBadIcrc;
    m.offset += qp_.mtu;
    forget_nak();
    go_on(Psn(bth.psn), bth.ack_req);
    return DirectPlacement::kPlaced;
}

template <class S, class P>
void RcResponderLogic<S, P>::receive(const wire::ParsedFrame& frame) {
    const wire::Headers& h = frame.headers;
    const wire::Op op = wire::op_of(h.bth.opcode);
    const Psn psn(h.bth.psn);
    const int32_t ahead = psn - s_.epsn;
    if (ahead > 0) {
        ++core_.counters[Counter::kDropSequence];
        if (!s_.nak_sent) {
            s_.nak_sent = true;
            queue_ack(s_.epsn, wire::kSyndromeNakSequence);
        }
        return;
    }
    if (ahead < 0) {
        core_.note_duplicate(qp_);
        repeat(h, op);
        return;
    }
    const Outcome outcome = execute(frame, op);
    forget_nak();
    if (outcome != Outcome::kDone) {
        refuse(outcome, psn);
        return;
    }
    if (op != wire::Op::kReadRequest) {
        go_on(psn, h.bth.ack_req && !asks_for_response(op));
        if (is_last(op)) s_.delay.received_ns = core_.now_ns;
    }
}

// Called when the expected packet has arrived.
template <class S, class P>
void RcResponderLogic<S, P>::forget_nak() {
    if (!s_.nak_sent) return;
    s_.nak_sent = false;
    if (s_.ack_syndrome == wire::kSyndromeNakSequence) s_.ack_due = false;  // not sent yet, and no longer true
}

// Moves on behind a packet that was executed.
template <class S, class P>
void RcResponderLogic<S, P>::go_on(Psn psn, bool acknowledge) {
    s_.epsn = psn + 1;
    if (!acknowledge) return;
    // Only one waits: a second one shows that the peer sends on without an answer.
    const bool wait = s_.delay.ping_pong && !s_.ack_due;
    s_.delay.ping_pong = wait;
    queue_ack(psn, wire::kSyndromeAck);
    if (wait) {
        s_.delay.not_before = core_.now_ns + kAckWaitNs;
        core_.deadlines.schedule(qp_, s_.delay.not_before);
    }
}

template <class S, class P>
Outcome RcResponderLogic<S, P>::execute(const wire::ParsedFrame& frame, wire::Op op) {
    if constexpr (kIsXrc) {
        const bool in_message = s_.message.kind != MessageInProgress::Kind::kNone || qp_.slot.taken;
        if (!core_.enter_xrc_srq(qp_, frame.headers.xrc_srqn, in_message)) return Outcome::kRemoteAccess;
    }
    MessageReceiver<S> receiver(core_, qp_, s_.message);
    switch (op) {
        case wire::Op::kReadRequest:
            return execute_read(frame.headers);
        case wire::Op::kCompareSwap:
        case wire::Op::kFetchAdd:
            return execute_atomic(frame.headers, op);
        case wire::Op::kFlush:
        case wire::Op::kAtomicWrite:
            return execute_empty_answered(frame, op);
        // The most frequent case is compiled separately, so that most properties of the operation are constants.
        case wire::Op::kWriteOnly:
            return count_message(receiver.execute_write(frame, wire::Op::kWriteOnly), op);
        case wire::Op::kSendOnly:
            if (execute_small_send(frame)) return Outcome::kDone;
            [[fallthrough]];
        default:
            return count_message(is_send(op) ? receiver.execute_send(frame, op) : receiver.execute_write(frame, op),
                                 op);
    }
}

// Executes a SEND of one packet, without immediate, to a QP with receives of its own, and uses the receive in place.
// Returns false in any unusual case; then only the receive's memory has changed.
template <class S, class P>
bool RcResponderLogic<S, P>::execute_small_send(const wire::ParsedFrame& frame) {
    if (s_.message.kind != MessageInProgress::Kind::kNone || qp_.slot.taken || qp_.srq != nullptr) return false;
    const uint32_t index = qp_.rq.consumed(), bytes = frame.payload_bytes;
    if (index == qp_.rq.available_until() || bytes > qp_.mtu) return false;
    RecvWqe& wqe = qp_.rq.at(index);
    BytesReader payload{frame.payload};
    if (bytes > wqe.length ||
        core_.scatter(wqe.sges(), wqe.num_sge, 0, payload, bytes, qp_.recv_pd) != IBV_WC_SUCCESS) {
        return false;
    }
    const uint64_t wr_id = wqe.wr_id;
    qp_.rq.consume_to(index + 1);
    s_.msn = (s_.msn + 1) & Psn::kMask;
    core_.complete(qp_.recv_cq, frame.headers.bth.solicited(), [&](ibv_wc& wc) {
        wc.wr_id = wr_id;
        wc.opcode = IBV_WC_RECV;
        wc.byte_len = bytes;
        wc.qp_num = qp_.qpn;
        wc.src_qp = qp_.remote_qpn;
    });
    return true;
}

// IBTA 9.7.5.1.2: the MSN counts complete requests.
template <class S, class P>
Outcome RcResponderLogic<S, P>::count_message(Outcome outcome, wire::Op op) {
    if (outcome == Outcome::kDone && is_last(op)) s_.msn = (s_.msn + 1) & Psn::kMask;
    return outcome;
}

template <class S, class P>
Outcome RcResponderLogic<S, P>::execute_read(const wire::Headers& h) {
    if (s_.message.kind != MessageInProgress::Kind::kNone || s_.jobs.full()) return Outcome::kInvalidRequest;
    const Outcome outcome = executor_.check_read(h.reth, qp_.pd);
    if (outcome != Outcome::kDone) return outcome;
    s_.msn = (s_.msn + 1) & Psn::kMask;
    push_read(s_.epsn, h.reth, qp_.pd);
    s_.epsn = s_.epsn + executor_.packets(h.reth.length);
    return Outcome::kDone;
}

template <class S, class P>
Outcome RcResponderLogic<S, P>::execute_atomic(const wire::Headers& h, wire::Op op) {
    if (s_.message.kind != MessageInProgress::Kind::kNone || s_.jobs.full()) return Outcome::kInvalidRequest;
    uint64_t original;
    const Outcome outcome = executor_.execute_atomic(h.atomic, op, original);
    if (outcome != Outcome::kDone) return outcome;
    s_.msn = (s_.msn + 1) & Psn::kMask;
    s_.atomics.record(s_.epsn, original);
    push_atomic(s_.epsn, original);
    return Outcome::kDone;
}

// FLUSH and ATOMIC WRITE: the answer is a READ response without data.
template <class S, class P>
Outcome RcResponderLogic<S, P>::execute_empty_answered(const wire::ParsedFrame& frame, wire::Op op) {
    if (s_.message.kind != MessageInProgress::Kind::kNone || s_.jobs.full()) return Outcome::kInvalidRequest;
    const Outcome outcome =
        op == wire::Op::kFlush ? executor_.execute_flush(frame.headers) : executor_.execute_atomic_write(frame);
    if (outcome != Outcome::kDone) return outcome;
    s_.msn = (s_.msn + 1) & Psn::kMask;
    push_read(s_.epsn, {}, qp_.pd);
    return Outcome::kDone;
}

template <class S, class P>
void RcResponderLogic<S, P>::push_read(Psn first, const wire::Reth& reth, const void* pd) {
    RcJob job;
    job.va = reth.va;
    job.rkey = reth.rkey;
    job.bytes = reth.length;
    job.first = job.next = first;
    job.end = first + executor_.packets(reth.length);
    job.msn = s_.msn;
    if constexpr (kIsXrc) job.pd = pd;
    s_.jobs.push(job);
    s_.ack_due = s_.ack_due && s_.ack_syndrome != wire::kSyndromeAck;
}

template <class S, class P>
void RcResponderLogic<S, P>::push_atomic(Psn psn, uint64_t original) {
    RcJob job;
    job.first = job.next = psn;
    job.end = psn + 1;
    job.is_atomic = true;
    job.original = original;
    job.msn = s_.msn;
    s_.jobs.push(job);
    s_.ack_due = s_.ack_due && s_.ack_syndrome != wire::kSyndromeAck;
}

template <class S, class P>
void RcResponderLogic<S, P>::queue_ack(Psn psn, uint8_t syndrome) {
    s_.ack_due = true;
    s_.delay.not_before = 0;
    s_.ack_psn = psn;
    s_.ack_syndrome = syndrome;
}

// Design note 2. Returns false if the ring is full of older jobs.
template <class S, class P>
bool RcResponderLogic<S, P>::drop_jobs_from(Psn psn) {
    while (!s_.jobs.empty() && s_.jobs.back().end > psn) --s_.jobs.tail;
    return !s_.jobs.full();
}

// Answers a request that was executed before (IBTA 9.7.5.1.3, 9.4.5).
template <class S, class P>
void RcResponderLogic<S, P>::repeat(const wire::Headers& h, wire::Op op) {
    const Psn psn(h.bth.psn);
    if (op == wire::Op::kReadRequest) {
        // A range that was never requested is not a repetition, and rights are checked as for a new one.
        const void* const pd = domain_of(h);
        if (executor_.check_read(h.reth, pd) != Outcome::kDone || psn + executor_.packets(h.reth.length) > s_.epsn ||
            !drop_jobs_from(psn)) {
            ++core_.counters[Counter::kDropOverload];
            return;
        }
        push_read(psn, h.reth, pd);
    } else if (op == wire::Op::kFlush || op == wire::Op::kAtomicWrite) {
        // It is not executed again: the memory may have been written since.
        if (drop_jobs_from(psn)) push_read(psn, {}, nullptr);
    } else if (op == wire::Op::kCompareSwap || op == wire::Op::kFetchAdd) {
        const uint64_t* original = s_.atomics.find(psn);
        if (original == nullptr) {
            ++core_.counters[Counter::kDropOverload];
        } else if (drop_jobs_from(psn)) {
            push_atomic(psn, *original);
        }
    } else if (!s_.ack_due) {
        queue_ack(s_.epsn.previous(), wire::kSyndromeAck);
    }
}

// Refuses a packet: tells the requester, and ends the QP where IBTA demands it (9.9.3).
template <class S, class P>
void RcResponderLogic<S, P>::refuse(Outcome outcome, Psn psn) {
    const Consequence& consequence = consequence_of(outcome);
    queue_ack(psn, outcome == Outcome::kNoReceive ? consequence.syndrome | qp_.min_rnr_timer : consequence.syndrome);
    // IBTA 9.7.5.2.8: until this packet is repeated, later ones are dropped silently. A sequence NAK would make the
    // requester go back before its RNR timer has passed.
    s_.nak_sent = outcome == Outcome::kNoReceive;
    if (consequence.is_error) executor_.apply(consequence);
}

template <class S, class P>
uint32_t RcResponderLogic<S, P>::send_answers(uint32_t budget) {
    uint32_t packets = 0;
    while (!s_.jobs.empty() && packets < budget && core_.ready(qp_.path)) {
        RcJob& next = s_.jobs.front();
        if (!next.is_atomic && congestion_.limited() && congestion_.next_send_ns() > core_.now_ns) {
            core_.deadlines.schedule(qp_, congestion_.next_send_ns());
            break;
        }
        if (next.is_atomic) {
            wire::Headers h;
            h.bth.opcode = wire::opcode(P::kService, wire::Op::kAtomicAck);
            h.bth.pkey = qp_.pkey;
            h.bth.dest_qpn = qp_.remote_qpn;
            h.bth.psn = next.first.value();
            h.aeth = {wire::kSyndromeAck, next.msn};
            h.atomic_original = next.original;
            core_.send(qp_.path, h, {}, 0);
            ++s_.jobs.head;
        } else if (const uint32_t middles = send_read_middles(next, budget - packets); middles != 0) {
            packets += middles;
            continue;
        } else if (!send_read_packet(next)) {
            return packets;
        }
        ++packets;
    }
    if (s_.ack_due && s_.delay.not_before > core_.now_ns) {
        core_.deadlines.schedule(qp_, s_.delay.not_before);
        return packets;
    }
    if (s_.ack_due && s_.jobs.empty() && packets < budget && core_.ready(qp_.path)) {
        if (s_.delay.not_before != 0) s_.delay.ping_pong = false;
        send_ack();
        ++packets;
    }
    return packets;
}

// Sends packets from the middle of READ data. With 0 the next one is its first or last, or needs its own look-up.
template <class S, class P>
uint32_t RcResponderLogic<S, P>::send_read_middles(RcJob& job, uint32_t budget) {
    if (!job.started || job.left() <= qp_.mtu || congestion_.limited()) return 0;
    const uint32_t most = std::min(budget, (job.left() - 1) / qp_.mtu);
    const uint8_t* at = executor_.read_source(job.rkey, job.va + job.sent, most * qp_.mtu, domain_of(job));
    if (at == nullptr) return 0;
    wire::Headers h;
    h.bth.opcode = wire::opcode(P::kService, wire::Op::kReadResponseMiddle);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.psn = job.next.value();
    const uint32_t packets = core_.send_burst(BurstKind::kAnswers, qp_.path, h, qp_.mtu, most,
                                              [&](wire::Headers&) { return std::exchange(at, at + qp_.mtu); });
    job.sent += packets * qp_.mtu;
    job.next = job.next + packets;
    return packets;
}

template <class S, class P>
bool RcResponderLogic<S, P>::send_read_packet(RcJob& job) {
    const uint32_t bytes = std::min(job.left(), qp_.mtu);
    const uint8_t* source = executor_.read_source(job.rkey, job.va + job.sent, bytes, domain_of(job));
    if (source == nullptr) {  // deregistered since the request arrived
        s_.jobs.head = s_.jobs.tail;
        refuse(Outcome::kRemoteAccess, job.next);
        return false;
    }
    const bool last = bytes == job.left();
    using wire::Op;
    const Op op = read_response_op(!job.started, last);
    wire::Headers h;
    h.bth.opcode = wire::opcode(P::kService, op);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.psn = job.next.value();
    h.aeth = {wire::kSyndromeAck, job.msn};
    const wire::Segment segment{source, bytes};
    core_.send(qp_.path, h, {&segment, bytes != 0 ? 1u : 0u}, bytes);
    if (congestion_.limited()) congestion_.on_sent(core_.config.dcqcn, bytes + kHeaderBytes, core_.now_ns);
    job.started = true;
    job.sent += bytes;
    ++job.next;
    if (last) ++s_.jobs.head;
    return true;
}

template <class S, class P>
void RcResponderLogic<S, P>::send_ack() {
    wire::Headers h;
    h.bth.opcode = wire::opcode(P::kService, wire::Op::kAck);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.psn = s_.ack_psn.value();
    h.aeth = {s_.ack_syndrome, s_.msn};
    switch (s_.ack_syndrome >> 5) {
        case 0:
            ++core_.counters[Counter::kTxAcks];
            break;
        case 1:
            ++core_.counters[Counter::kTxNakRnr];
            break;
        default:
            ++core_.counters[s_.ack_syndrome == wire::kSyndromeNakSequence ? Counter::kTxNakSequence
                                                                           : Counter::kTxNakError];
    }
    core_.send(qp_.path, h, {}, 0);
    s_.ack_due = false;
}

}  // namespace rove::transport
