// SPDX-License-Identifier: Apache-2.0
// The responder of RC and UC: executes requests in PSN order, and answers them. Units: bytes, packets.
//
// DESIGN NOTES
// 1. Answers leave in PSN order: READ data and atomic results wait in a ring of jobs, and one ACK, the latest, behind them.
//    So a burst of requests costs one ACK, and a READ response makes an ACK before it unnecessary (IBTA 9.7.5.1.2).
// 2. A repeated READ or atomic says that the requester went back to its PSN: jobs from there on are dropped, since it will
//    ask for them again. READs are executed again, atomics answered from what was kept.
//    So the ring holds at most the answers of one full set of requests twice: repeated ones whose first answer sufficed, and
//    the next set. A requester that goes beyond that has more outstanding than max_dest_rd_atomic: an invalid request.
// 3. Ping-pong: where a program answers each message at once by a request of its own, the ACK goes out just before that request,
//    in the same burst (RFC 1122's delayed ACK, with Linux TCP's pingpong rule). It saves the peer a round, and more: a peer
//    that polls its CQ for the ACK and then spins on memory, as ib_write_lat does, drives its worker only while it polls,
//    and finds the answer in memory when the ACK ends its poll. An ACK that waited in vain ends the mode.
// 4. As Linux rxe does: after an RNR NAK the packets behind it still provoke one sequence NAK; a SEND longer than its
//    receive is NAKed as a remote operational error; a SEND with invalidate of what cannot be invalidated is
//    acknowledged and fails at the receiver.
#pragma once

#include <utility>

#include "transport/core.h"
#include "transport/send_op.h"

namespace rove::transport {

template <class S>
class ResponderLogic {
  public:
    ResponderLogic(Core<S>& core, QueuePair& qp) : core_(core), qp_(qp), s_(qp.responder) {}

    // Of the path MTU, and `op` of a SEND or WRITE.
    [[gnu::always_inline]] inline Middle receive_middle(const wire::ParsedFrame& frame, wire::Op op);
    [[gnu::always_inline]] inline void receive_rc(const wire::ParsedFrame& frame);
    void receive_uc(const wire::ParsedFrame& frame);
    bool has_jobs() const { return s_.job_head != s_.job_tail; }
    // Whether there is an answer that need not wait.
    bool can_send() const { return has_jobs() || (s_.ack_due && s_.ack_not_before <= core_.now_ns); }
    uint32_t transmit(uint32_t budget) { return s_.owes() ? send_answers(budget) : 0; }
    // The QP goes: an ACK that waits goes before it.
    void settle() {
        if (s_.ack_due && s_.job_head == s_.job_tail && core_.ready()) send_ack();
    }

  private:
    // What became of a packet: taken, or the NAK that it earns.
    enum class Result : uint8_t { kTaken, kNoReceive, kInvalidRequest, kAccess, kOperation, kLength, kBadInvalidate };

    uint32_t response_packets(uint32_t bytes) const { return bytes <= qp_.mtu ? 1 : (bytes + qp_.mtu - 1) / qp_.mtu; }
    uint32_t job_count() const { return s_.job_tail - s_.job_head; }
    bool jobs_full() const { return job_count() == s_.jobs.size(); }
    ResponderJob& job(uint32_t index) { return s_.jobs[index & (s_.jobs.size() - 1)]; }

    [[gnu::always_inline]] inline void forget_nak();
    [[gnu::always_inline]] inline void go_on(Psn psn, bool acknowledge);
    [[gnu::always_inline]] inline Result execute(const wire::ParsedFrame& frame, wire::Op op);
    [[gnu::always_inline]] inline bool execute_small_send(const wire::ParsedFrame& frame);
    [[gnu::always_inline]] inline Result execute_send(const wire::ParsedFrame& frame, wire::Op op);
    [[gnu::always_inline]] inline Result execute_write(const wire::ParsedFrame& frame, wire::Op op);
    Result execute_read(const wire::Headers& headers);
    Result execute_atomic(const wire::Headers& headers, wire::Op op);
    bool payload_fits(const wire::ParsedFrame& frame, wire::Op op) const;
    void repeat(const wire::Headers& headers, wire::Op op);
    bool drop_jobs_from(Psn psn);
    void push_read(Psn first, const wire::Reth& reth);
    void push_atomic(Psn psn, uint64_t original);
    void owe_ack(Psn psn, uint8_t syndrome);
    void refuse(Result result, Psn psn);
    uint32_t send_answers(uint32_t budget);
    [[gnu::noinline]] uint32_t send_read_middles(ResponderJob& job, uint32_t budget);
    [[gnu::always_inline]] inline bool send_read_packet(ResponderJob& job);
    void send_ack();

    Core<S>& core_;
    QueuePair& qp_;
    Responder& s_;
};

template <class S>
Middle ResponderLogic<S>::receive_middle(const wire::ParsedFrame& frame, wire::Op op) {
    const wire::Bth& bth = frame.headers.bth;
    if (Psn(bth.psn) != s_.epsn) return Middle::kOther;
    wire::VerifyingReader payload(frame);
    if (op == wire::Op::kWriteMiddle) {
        if (s_.message != Responder::Message::kWrite || s_.write_length - s_.offset <= qp_.mtu) return Middle::kOther;
        uint8_t* target = core_.memory.translate(s_.write_rkey, s_.write_va + s_.offset, qp_.mtu,
                                                 IBV_ACCESS_REMOTE_WRITE, qp_.pd, &qp_);
        if (target == nullptr) return Middle::kOther;
        payload.read(target, qp_.mtu);
    } else {
        if (s_.message != Responder::Message::kSend || s_.receive.length - s_.offset < qp_.mtu) return Middle::kOther;
        if (core_.scatter(s_.receive_sges.get(), s_.receive.num_sge, s_.offset, payload, qp_.mtu, qp_.pd) !=
            IBV_WC_SUCCESS) {
            return Middle::kOther;
        }
    }
    if (!payload.intact()) return Middle::kDamaged;
    s_.offset += qp_.mtu;
    forget_nak();
    go_on(Psn(bth.psn), bth.ack_req);
    return Middle::kTaken;
}

template <class S>
void ResponderLogic<S>::receive_rc(const wire::ParsedFrame& frame) {
    const wire::Headers& h = frame.headers;
    const wire::Op op = wire::op_of(h.bth.opcode);
    const Psn psn(h.bth.psn);
    const int32_t ahead = psn - s_.epsn;
    if (ahead > 0) {
        ++core_.counters[Counter::kDropSequence];
        // An RNR NAK not yet sent is not replaced: it is what makes the requester wait.
        const bool rnr_due = s_.ack_due && s_.ack_syndrome >> 5 == 1;
        if (!s_.nak_sent && !rnr_due) {
            s_.nak_sent = true;
            owe_ack(s_.epsn, wire::kSyndromeNakSequence);
        }
        return;
    }
    if (ahead < 0) {
        ++core_.counters[Counter::kRxDuplicate];
        repeat(h, op);
        return;
    }
    const Result result = execute(frame, op);
    forget_nak();
    if (result != Result::kTaken && result != Result::kBadInvalidate) {
        refuse(result, psn);
        return;
    }
    if (op != wire::Op::kReadRequest) {
        go_on(psn, h.bth.ack_req && op != wire::Op::kCompareSwap && op != wire::Op::kFetchAdd);
        if (is_last(op)) s_.received_ns = core_.now_ns;
    }
    if (result == Result::kBadInvalidate) core_.fail_receive(qp_, IBV_WC_REM_INV_REQ_ERR);
}

// The expected packet is here.
template <class S>
void ResponderLogic<S>::forget_nak() {
    if (!s_.nak_sent) return;
    s_.nak_sent = false;
    if (s_.ack_syndrome == wire::kSyndromeNakSequence) s_.ack_due = false;  // not sent yet, no longer true
}

// It was taken.
template <class S>
void ResponderLogic<S>::go_on(Psn psn, bool acknowledge) {
    s_.epsn = psn + 1;
    if (!acknowledge) return;
    // Only one waits: a second says that the peer sends on without an answer.
    const bool wait = s_.ping_pong && !s_.ack_due;
    s_.ping_pong = wait;
    owe_ack(psn, wire::kSyndromeAck);
    if (wait) {
        s_.ack_not_before = core_.now_ns + kAckWaitNs;
        core_.deadlines.schedule(qp_, s_.ack_not_before);
    }
}

template <class S>
auto ResponderLogic<S>::execute(const wire::ParsedFrame& frame, wire::Op op) -> Result {
    switch (op) {
        case wire::Op::kReadRequest: return execute_read(frame.headers);
        case wire::Op::kCompareSwap:
        case wire::Op::kFetchAdd: return execute_atomic(frame.headers, op);
        // What most packets are, compiled by itself: most of what is asked of an operation is then known.
        case wire::Op::kWriteOnly: return execute_write(frame, wire::Op::kWriteOnly);
        case wire::Op::kSendOnly:
            if (execute_small_send(frame)) return Result::kTaken;
            [[fallthrough]];
        default: return is_send(op) ? execute_send(frame, op) : execute_write(frame, op);
    }
}

// IBTA 9.7.4.1.6: all but the last packet are of the path MTU; the last is not empty; none is longer.
template <class S>
bool ResponderLogic<S>::payload_fits(const wire::ParsedFrame& frame, wire::Op op) const {
    if (!is_last(op)) return frame.payload_bytes == qp_.mtu;
    return frame.payload_bytes <= qp_.mtu && (is_only(op) || frame.payload_bytes != 0);
}

// A SEND of one packet, without immediate, to a QP with receives of its own: the receive is used where it lies. False
// where anything is out of the ordinary; nothing but the receive's memory has changed then.
template <class S>
bool ResponderLogic<S>::execute_small_send(const wire::ParsedFrame& frame) {
    if (s_.message != Responder::Message::kNone || s_.has_receive || qp_.srq != nullptr) return false;
    const uint32_t index = qp_.rq.consumed(), bytes = frame.payload_bytes;
    if (index == qp_.rq.available_until() || bytes > qp_.mtu) return false;
    RecvWqe& wqe = qp_.rq.at(index);
    BytesReader payload{frame.payload};
    if (bytes > wqe.length || core_.scatter(wqe.sges(), wqe.num_sge, 0, payload, bytes, qp_.pd) != IBV_WC_SUCCESS) {
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

template <class S>
auto ResponderLogic<S>::execute_send(const wire::ParsedFrame& frame, wire::Op op) -> Result {
    if (is_first(op) != (s_.message == Responder::Message::kNone)) return Result::kInvalidRequest;
    if (!is_first(op) && s_.message != Responder::Message::kSend) return Result::kInvalidRequest;
    if (!payload_fits(frame, op)) return Result::kInvalidRequest;
    if (is_first(op)) {
        // One may be held already: taken for a message that never ended.
        if (!s_.has_receive && core_.take_receive(qp_) != Core<S>::Taken::kYes) return Result::kNoReceive;
        s_.offset = 0;
    }
    if (frame.payload_bytes > s_.receive.length - s_.offset) return Result::kLength;
    BytesReader payload{frame.payload};
    if (core_.scatter(s_.receive_sges.get(), s_.receive.num_sge, s_.offset, payload, frame.payload_bytes, qp_.pd) !=
        IBV_WC_SUCCESS) {
        return Result::kOperation;
    }
    s_.offset += frame.payload_bytes;
    s_.message = Responder::Message::kSend;
    if (!is_last(op)) return Result::kTaken;
    s_.message = Responder::Message::kNone;
    if (op == wire::Op::kSendLastInv || op == wire::Op::kSendOnlyInv) {
        if (!core_.memory.invalidate(frame.headers.invalidate_rkey, qp_)) return Result::kBadInvalidate;
    }
    s_.msn = (s_.msn + 1) & Psn::kMask;
    core_.complete_message(qp_, frame.headers, op, IBV_WC_RECV, s_.offset);
    return Result::kTaken;
}

template <class S>
auto ResponderLogic<S>::execute_write(const wire::ParsedFrame& frame, wire::Op op) -> Result {
    const wire::Headers& h = frame.headers;
    if (is_first(op) != (s_.message == Responder::Message::kNone)) return Result::kInvalidRequest;
    if (!is_first(op) && s_.message != Responder::Message::kWrite) return Result::kInvalidRequest;
    if (!payload_fits(frame, op)) return Result::kInvalidRequest;
    const auto translate = [&](uint64_t va, uint32_t bytes) {
        return core_.memory.translate(s_.write_rkey, va, bytes, IBV_ACCESS_REMOTE_WRITE, qp_.pd, &qp_);
    };
    uint8_t* target = nullptr;
    if (is_first(op)) {
        if ((qp_.access & IBV_ACCESS_REMOTE_WRITE) == 0) return Result::kInvalidRequest;
        s_.offset = 0;
        s_.write_va = h.reth.va;
        s_.write_rkey = h.reth.rkey;
        s_.write_length = h.reth.length;
        target = translate(s_.write_va, s_.write_length);
        if (target == nullptr) return Result::kAccess;
    }
    const uint32_t left = s_.write_length - s_.offset;
    if (is_last(op) ? frame.payload_bytes != left : frame.payload_bytes >= left) return Result::kInvalidRequest;
    if (has_immediate(op) && !s_.has_receive && core_.take_receive(qp_) != Core<S>::Taken::kYes) {
        return Result::kNoReceive;
    }
    if (!is_first(op)) {                        // once more: the region may have gone since the first packet
        target = translate(s_.write_va + s_.offset, frame.payload_bytes);
        if (target == nullptr) return Result::kAccess;
    }
    wire::copy(target, frame.payload, frame.payload_bytes);
    s_.offset += frame.payload_bytes;
    s_.message = is_last(op) ? Responder::Message::kNone : Responder::Message::kWrite;
    if (!is_last(op)) return Result::kTaken;
    s_.msn = (s_.msn + 1) & Psn::kMask;
    if (has_immediate(op))
        core_.complete_message(qp_, frame.headers, op, IBV_WC_RECV_RDMA_WITH_IMM, s_.write_length);
    return Result::kTaken;
}

template <class S>
auto ResponderLogic<S>::execute_read(const wire::Headers& h) -> Result {
    if (s_.message != Responder::Message::kNone) return Result::kInvalidRequest;
    if ((qp_.access & IBV_ACCESS_REMOTE_READ) == 0) return Result::kInvalidRequest;
    if (h.reth.length > kMaxMessageBytes || qp_.max_dest_rd_atomic == 0 || jobs_full()) return Result::kInvalidRequest;
    if (core_.memory.translate(h.reth.rkey, h.reth.va, h.reth.length, IBV_ACCESS_REMOTE_READ, qp_.pd, &qp_) == nullptr) {
        return Result::kAccess;
    }
    s_.msn = (s_.msn + 1) & Psn::kMask;
    push_read(s_.epsn, h.reth);
    s_.epsn = s_.epsn + response_packets(h.reth.length);
    return Result::kTaken;
}

template <class S>
auto ResponderLogic<S>::execute_atomic(const wire::Headers& h, wire::Op op) -> Result {
    if (s_.message != Responder::Message::kNone) return Result::kInvalidRequest;
    if (jobs_full()) return Result::kInvalidRequest;
    uint64_t original;
    switch (core_.execute_atomic(qp_, h, op, &original)) {
        case Core<S>::Atomic::kInvalid: return Result::kInvalidRequest;
        case Core<S>::Atomic::kAccess: return Result::kAccess;
        case Core<S>::Atomic::kDone: break;
    }
    s_.msn = (s_.msn + 1) & Psn::kMask;
    s_.atomics[s_.next_atomic++ % s_.atomics.size()] = {s_.epsn, true, original};
    push_atomic(s_.epsn, original);
    return Result::kTaken;
}

template <class S>
void ResponderLogic<S>::push_read(Psn first, const wire::Reth& reth) {
    const uint32_t packets = response_packets(reth.length);
    job(s_.job_tail++) = {reth.va, reth.rkey, reth.length, first, first, first + packets, s_.msn, false, false, 0};
    s_.ack_due = s_.ack_due && s_.ack_syndrome != wire::kSyndromeAck;
}

template <class S>
void ResponderLogic<S>::push_atomic(Psn psn, uint64_t original) {
    job(s_.job_tail++) = {0, 0, 0, psn, psn, psn + 1, s_.msn, true, false, original};
    s_.ack_due = s_.ack_due && s_.ack_syndrome != wire::kSyndromeAck;
}

template <class S>
void ResponderLogic<S>::owe_ack(Psn psn, uint8_t syndrome) {
    s_.ack_due = true;
    s_.ack_not_before = 0;
    s_.ack_psn = psn;
    s_.ack_syndrome = syndrome;
}

// Design note 2. False: the ring is full of older jobs.
template <class S>
bool ResponderLogic<S>::drop_jobs_from(Psn psn) {
    while (s_.job_head != s_.job_tail && job(s_.job_tail - 1).end > psn) --s_.job_tail;
    return !jobs_full();
}

// A request that was executed before (IBTA 9.7.5.1.3, 9.4.5).
template <class S>
void ResponderLogic<S>::repeat(const wire::Headers& h, wire::Op op) {
    const Psn psn(h.bth.psn);
    if (op == wire::Op::kReadRequest) {
        // What was never asked for is not a repetition, and rights are checked as for a new one.
        if (h.reth.length > kMaxMessageBytes || psn + response_packets(h.reth.length) > s_.epsn ||
            (qp_.access & IBV_ACCESS_REMOTE_READ) == 0 ||
            core_.memory.translate(h.reth.rkey, h.reth.va, h.reth.length, IBV_ACCESS_REMOTE_READ, qp_.pd, &qp_) == nullptr ||
            !drop_jobs_from(psn)) {
            ++core_.counters[Counter::kDropOverload];
            return;
        }
        push_read(psn, h.reth);
    } else if (op == wire::Op::kCompareSwap || op == wire::Op::kFetchAdd) {
        for (const AtomicResult& result : s_.atomics) {
            if (!result.valid || result.psn != psn) continue;
            if (drop_jobs_from(psn)) push_atomic(psn, result.original);
            return;
        }
        ++core_.counters[Counter::kDropOverload];
    } else if (!s_.ack_due) {
        owe_ack(s_.epsn.previous(), wire::kSyndromeAck);
    }
}

// The packet is not executed; says so to the requester, and ends the QP where IBTA wants that (9.9.3).
template <class S>
void ResponderLogic<S>::refuse(Result result, Psn psn) {
    switch (result) {
        case Result::kNoReceive:
            owe_ack(psn, wire::kSyndromeRnrNak | qp_.min_rnr_timer);
            return;
        case Result::kLength:
            owe_ack(psn, wire::kSyndromeNakRemoteOperation);
            core_.fail_receive(qp_, IBV_WC_LOC_LEN_ERR);
            return;
        case Result::kOperation:
            owe_ack(psn, wire::kSyndromeNakRemoteOperation);
            core_.fail_receive(qp_, IBV_WC_LOC_PROT_ERR);
            return;
        case Result::kAccess:
            owe_ack(psn, wire::kSyndromeNakRemoteAccess);
            core_.sink.event(IBV_EVENT_QP_ACCESS_ERR, qp_);
            break;
        default:
            owe_ack(psn, wire::kSyndromeNakInvalidRequest);
            core_.sink.event(IBV_EVENT_QP_REQ_ERR, qp_);
            break;
    }
    core_.enter_error(qp_);
}

// UC: what does not fit is dropped, with the message it belongs to (IBTA 9.8.3).
template <class S>
void ResponderLogic<S>::receive_uc(const wire::ParsedFrame& frame) {
    const wire::Op op = wire::op_of(frame.headers.bth.opcode);
    const Psn psn(frame.headers.bth.psn);
    if (psn != s_.epsn && s_.message != Responder::Message::kNone) s_.message = Responder::Message::kNone;
    s_.epsn = psn + 1;
    if (is_first(op)) s_.message = Responder::Message::kNone;
    if (!is_first(op) && s_.message == Responder::Message::kNone) {
        ++core_.counters[Counter::kDropSequence];
        return;
    }
    const Result result = is_send(op) ? execute_send(frame, op) : execute_write(frame, op);
    if (result == Result::kTaken) return;
    s_.message = Responder::Message::kNone;
    if (result == Result::kNoReceive) {
        ++core_.counters[Counter::kDropNoReceive];
    } else if (result == Result::kLength || result == Result::kOperation) {
        core_.fail_receive(qp_, result == Result::kLength ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR);
    } else {
        ++core_.counters[Counter::kDropLength];
    }
}

template <class S>
uint32_t ResponderLogic<S>::send_answers(uint32_t budget) {
    uint32_t packets = 0;
    while (s_.job_head != s_.job_tail && packets < budget && core_.ready()) {
        ResponderJob& next = job(s_.job_head);
        if (!next.is_atomic && qp_.congestion.limited() && qp_.congestion.next_send_ns() > core_.now_ns) {
            core_.deadlines.schedule(qp_, qp_.congestion.next_send_ns());
            break;
        }
        if (next.is_atomic) {
            wire::Headers h;
            h.bth.opcode = wire::opcode(wire::Service::kRc, wire::Op::kAtomicAck);
            h.bth.pkey = qp_.pkey;
            h.bth.dest_qpn = qp_.remote_qpn;
            h.bth.psn = next.first.value();
            h.aeth = {wire::kSyndromeAck, next.msn};
            h.atomic_original = next.original;
            core_.send(qp_.path, h, {}, 0);
            ++s_.job_head;
        } else if (const uint32_t middles = send_read_middles(next, budget - packets); middles != 0) {
            packets += middles;
            continue;
        } else if (!send_read_packet(next)) {
            return packets;
        }
        ++packets;
    }
    if (s_.ack_due && s_.ack_not_before > core_.now_ns) {
        core_.deadlines.schedule(qp_, s_.ack_not_before);
        return packets;
    }
    if (s_.ack_due && s_.job_head == s_.job_tail && packets < budget && core_.ready()) {
        if (s_.ack_not_before != 0) s_.ping_pong = false;
        send_ack();
        ++packets;
    }
    return packets;
}

// Packets from the middle of READ data; 0: the next one is its first or last, or to be looked at alone.
template <class S>
uint32_t ResponderLogic<S>::send_read_middles(ResponderJob& job, uint32_t budget) {
    if (!job.started || job.left <= qp_.mtu || qp_.congestion.limited()) return 0;
    const uint32_t most = std::min(budget, (job.left - 1) / qp_.mtu);
    const uint8_t* at = core_.memory.translate(job.rkey, job.va, most * qp_.mtu, IBV_ACCESS_REMOTE_READ, qp_.pd, &qp_);
    if (at == nullptr) return 0;
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kRc, wire::Op::kReadResponseMiddle);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.psn = job.next.value();
    const uint32_t packets =
        core_.send_run(qp_.path, h, qp_.mtu, most, [&](wire::Headers&) { return std::exchange(at, at + qp_.mtu); });
    job.va += uint64_t{packets} * qp_.mtu;
    job.left -= packets * qp_.mtu;
    job.next = job.next + packets;
    return packets;
}

template <class S>
bool ResponderLogic<S>::send_read_packet(ResponderJob& job) {
    const uint32_t bytes = std::min(job.left, qp_.mtu);
    const uint8_t* source = core_.memory.translate(job.rkey, job.va, bytes, IBV_ACCESS_REMOTE_READ, qp_.pd, &qp_);
    if (source == nullptr) {                    // deregistered since the request came
        s_.job_head = s_.job_tail;
        owe_ack(job.next, wire::kSyndromeNakRemoteAccess);
        core_.sink.event(IBV_EVENT_QP_ACCESS_ERR, qp_);
        core_.enter_error(qp_);
        core_.activate(qp_);
        return false;
    }
    const bool last = bytes == job.left;
    using wire::Op;
    const Op op = last ? (job.started ? Op::kReadResponseLast : Op::kReadResponseOnly)
                       : (job.started ? Op::kReadResponseMiddle : Op::kReadResponseFirst);
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kRc, op);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.psn = job.next.value();
    h.aeth = {wire::kSyndromeAck, job.msn};
    const wire::Segment segment{source, bytes};
    core_.send(qp_.path, h, {&segment, bytes != 0 ? 1u : 0u}, bytes);
    if (qp_.congestion.limited()) qp_.congestion.on_sent(core_.config.dcqcn, bytes + kHeaderBytes, core_.now_ns);
    job.started = true;
    job.va += bytes;
    job.left -= bytes;
    ++job.next;
    if (last) ++s_.job_head;
    return true;
}

template <class S>
void ResponderLogic<S>::send_ack() {
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kRc, wire::Op::kAck);
    h.bth.pkey = qp_.pkey;
    h.bth.dest_qpn = qp_.remote_qpn;
    h.bth.psn = s_.ack_psn.value();
    h.aeth = {s_.ack_syndrome, s_.msn};
    switch (s_.ack_syndrome >> 5) {
        case 0: ++core_.counters[Counter::kTxAcks]; break;
        case 1: ++core_.counters[Counter::kTxNakRnr]; break;
        default:
            ++core_.counters[s_.ack_syndrome == wire::kSyndromeNakSequence ? Counter::kTxNakSequence
                                                                           : Counter::kTxNakError];
    }
    core_.send(qp_.path, h, {}, 0);
    s_.ack_due = false;
}

}  // namespace rove::transport
