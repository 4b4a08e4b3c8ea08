// SPDX-License-Identifier: Apache-2.0
// The responder of a QP in mp mode: requests that arrive in any order take effect in the order of posting.
// Units: bytes, packets.
//
// DESIGN NOTES
// 1. Early packets of the message in progress are placed at once, all but its last, for which a program may poll
//    (EU-7). Everything else that is early is held and takes effect in its turn: also the middle of later WRITEs, which
//    EU-7 would place. They may overwrite what an earlier one, still on its way, is about to write, and verbs promises
//    that the later one stays. IBV_ACCESS_RELAXED_ORDERING gives that up, and so do both ends together (Ordering). And
//    SENDs take their receive requests in order, one at a time, so a shared receive queue needs no more of them than in
//    rc.
// 2. Every packet tells by itself where it belongs (RETH, or MSN and iPSN), so there is no state of a message in
//    progress but the receive that it holds. What a packet says wrongly harms only memory that its sender may write.
// 3. An early packet that cannot be taken is refused (NACK), whatever the reason: it comes again, and when it is its
//    turn the error is told as such. Errors are so always those of the oldest request.
#pragma once

#include "transport/core.h"
#include "transport/mp/state.h"
#include "transport/send_op.h"

namespace rove::transport {

template <class S>
class MpResponderLogic {
  public:
    MpResponderLogic(Core<S>& core, QueuePair& qp)
        : core_(core), qp_(qp), s_(qp.responder), mp_(*qp.multipath), shared_(*core.multipath) {}

    // Of the path MTU, and of a WRITE; it lies behind the one before it, too.
    [[gnu::always_inline]] inline Middle receive_middle(const wire::ParsedFrame& frame);
    [[gnu::always_inline]] inline void receive_request(const wire::ParsedFrame& frame, wire::Op op);
    // Answers.
    uint32_t transmit(uint32_t budget);
    // All before responses.una has arrived.
    void drop_jobs();

    [[gnu::always_inline]] inline void owe(const wire::Headers& headers, bool ce, wire::MpAck kind,
                                           uint8_t syndrome = 0);
    bool owes() const { return mp_.owed_count != 0; }
    uint32_t send_acks();
    // The QP goes: an ACK that waits goes before it.
    void settle() {
        s_.ack_not_before = 0;
        send_acks();
    }

  private:
    enum class Result : uint8_t {
        kTaken,
        kNoReceive,
        kInvalidRequest,
        kAccess,
        kOperation,
        kLength,
        kBadInvalidate,
        kBusy
    };

    static bool is_response_request(wire::Op op) {
        return op == wire::Op::kReadRequest || op == wire::Op::kCompareSwap || op == wire::Op::kFetchAdd;
    }
    uint32_t response_packets(uint32_t bytes) const { return bytes <= qp_.mtu ? 1 : (bytes + qp_.mtu - 1) / qp_.mtu; }
    bool jobs_full() const { return s_.job_tail - s_.job_head == s_.jobs.size(); }
    ResponderJob& job(uint32_t index) { return s_.jobs[index & (s_.jobs.size() - 1)]; }

    enum class Early : uint8_t { kPlace, kHold, kDrop };

    // The requester is there after all: it asks for something, or whether we are.
    void wake_responses() {
        if (mp_.responses.backoff == Multipath::kSilence && mp_.responses.outstanding()) [[unlikely]]
            resume_responses();
    }
    [[gnu::noinline]] void resume_responses();
    [[gnu::noinline]] void forget_oldest();
    void take_early(const wire::ParsedFrame& frame, wire::Op op);
    Early judge_early(const wire::Headers& headers, wire::Op op) const;
    bool release_held(Psn psn);
    [[gnu::always_inline]] inline void receive_expected(const wire::ParsedFrame& frame, wire::Op op);
    [[gnu::always_inline]] inline void take_in_order(const wire::ParsedFrame& frame, wire::Op op);
    [[gnu::always_inline]] inline void acknowledge(const wire::ParsedFrame& frame, wire::Op op);
    void go_on_behind(const wire::ParsedFrame& frame);
    [[gnu::always_inline]] inline Result execute(const wire::ParsedFrame& frame, wire::Op op);
    Result place_send(const wire::ParsedFrame& frame, wire::Op op);
    [[gnu::always_inline]] inline Result place_write(const wire::ParsedFrame& frame, wire::Op op);
    Result execute_read(const wire::Headers& headers);
    Result execute_atomic(const wire::Headers& headers, wire::Op op);
    void finish_message(const wire::Headers& headers, wire::Op op, ibv_wc_opcode opcode, uint32_t bytes) {
        mp_.msn_in = (mp_.msn_in + 1) & Psn::kMask;
        core_.complete_message(qp_, headers, op, opcode, bytes);
    }
    // Tells what became of a packet in its turn that was not taken.
    void refuse(const wire::Headers& headers, bool ce, Result result);

    Core<S>& core_;
    QueuePair& qp_;
    Responder& s_;
    Multipath& mp_;
    MultipathShared& shared_;
};

template <class S>
Middle MpResponderLogic<S>::receive_middle(const wire::ParsedFrame& frame) {
    const wire::Headers& h = frame.headers;
    if (Psn(h.bth.psn) != mp_.requests_in.expected || s_.message != Responder::Message::kWrite ||
        h.reth.va != s_.write_va || h.reth.rkey != s_.write_rkey || h.reth.length != s_.write_length ||
        s_.write_length <= qp_.mtu || uint64_t{h.mp.ipsn} * qp_.mtu != s_.offset ||
        (qp_.access & IBV_ACCESS_REMOTE_WRITE) == 0) {
        return Middle::kOther;
    }
    uint8_t* target =
        core_.memory.translate(h.reth.rkey, h.reth.va, h.reth.length, IBV_ACCESS_REMOTE_WRITE, qp_.pd, &qp_);
    if (target == nullptr) return Middle::kOther;
    wire::VerifyingReader payload(frame);
    payload.read(target, qp_.mtu);
    if (!payload.intact()) return Middle::kDamaged;
    go_on_behind(frame);
    take_in_order(frame, wire::Op::kWriteMiddle);
    return Middle::kTaken;
}

template <class S>
void MpResponderLogic<S>::receive_request(const wire::ParsedFrame& frame, wire::Op op) {
    const wire::Headers& h = frame.headers;
    const Psn psn(h.bth.psn);
    switch (shared_.reorder.classify(mp_.requests_in, psn)) {
        case Arrival::kInOrder:
            break;
        case Arrival::kOutOfOrder:
            return take_early(frame, op);
        case Arrival::kDuplicate:
            ++core_.counters[Counter::kRxDuplicate];
            wake_responses();
            return owe(h, frame.ce(), psn < mp_.requests_in.expected ? wire::MpAck::kAck : wire::MpAck::kSack);
        default:
            ++core_.counters[Counter::kDropSequence];
            return owe(h, frame.ce(), wire::MpAck::kNack);
    }
    // What most packets are, compiled by itself: most of what is asked of an operation is then known.
    if (op == wire::Op::kWriteOnly) return receive_expected(frame, wire::Op::kWriteOnly);
    receive_expected(frame, op);
}

template <class S>
void MpResponderLogic<S>::receive_expected(const wire::ParsedFrame& frame, wire::Op op) {
    const wire::Headers& h = frame.headers;
    const Result result = execute(frame, op);
    if (result == Result::kTaken) [[likely]] {
        take_in_order(frame, op);
    } else if (result == Result::kBadInvalidate) {
        acknowledge(frame, op);
        shared_.reorder.advance(mp_.requests_in, h.mp.last(), [](Psn, Slot) { return false; });
        core_.fail_receive(qp_, IBV_WC_REM_INV_REQ_ERR);
    } else {
        refuse(h, frame.ce(), result);
    }
}

// The expected packet has taken effect, and so do those now that follow it.
template <class S>
void MpResponderLogic<S>::take_in_order(const wire::ParsedFrame& frame, wire::Op op) {
    const wire::Headers& h = frame.headers;
    ReorderStream& stream = mp_.requests_in;
    acknowledge(frame, op);
    shared_.reorder.advance(stream, h.mp.last(), [&](Psn tail, Slot) { return release_held(tail); });
    if (stream.expected != Psn(h.bth.psn) + 1)
        s_.message = Responder::Message::kNone;  // its next packet is here already
}

// Of the expected packet. Before what follows it takes effect, so that errors of held packets are told after it.
template <class S>
void MpResponderLogic<S>::acknowledge(const wire::ParsedFrame& frame, wire::Op op) {
    wake_responses();
    ++shared_.counters.degrees[0];
    const bool another_waits = s_.ack_not_before != 0;
    owe(frame.headers, frame.ce(), wire::MpAck::kAck);
    if (!is_last(op)) return;
    // Only one waits: a second says that the peer sends on without an answer.
    s_.ping_pong = s_.ping_pong && !another_waits;
    if (s_.ping_pong) s_.ack_not_before = core_.now_ns + kAckWaitNs;
    s_.received_ns = core_.now_ns;
}

// Where a WRITE goes on, if its next packet comes next: receive_middle().
template <class S>
void MpResponderLogic<S>::go_on_behind(const wire::ParsedFrame& frame) {
    const wire::Headers& h = frame.headers;
    s_.offset = h.mp.ipsn * qp_.mtu + frame.payload_bytes;
    s_.write_va = h.reth.va + frame.payload_bytes;
    s_.write_rkey = h.reth.rkey;
    s_.write_length = h.reth.length - frame.payload_bytes;
}

// EU-7: whether its data may be in memory before its turn.
template <class S>
auto MpResponderLogic<S>::judge_early(const wire::Headers& h, wire::Op op) const -> Early {
    const bool in_progress = Psn(h.bth.psn - h.mp.ipsn) <= mp_.requests_in.expected;
    const bool unordered = h.mp.early() && core_.config.ordering != Ordering::kReceiverHold;
    if (h.mp.sync() && !in_progress) return unordered ? Early::kDrop : Early::kHold;  // MP-12
    if (is_response_request(op) || has_immediate(op)) return Early::kHold;
    if (is_send(op)) {
        const bool known = in_progress && h.mp.msn == mp_.msn_in && s_.has_receive;
        return known && !is_last(op) ? Early::kPlace : Early::kHold;
    }
    if (unordered || (in_progress && !is_last(op))) return Early::kPlace;
    const Region* region = core_.memory.find(h.reth.rkey);
    const bool relaxed = region != nullptr && (region->access & IBV_ACCESS_RELAXED_ORDERING) != 0;
    return relaxed ? Early::kPlace : Early::kHold;
}

template <class S>
void MpResponderLogic<S>::resume_responses() {
    mp_.responses.backoff = 0;
    mp_.responses.timer_ns = core_.now_ns;
    core_.deadlines.schedule(qp_, core_.now_ns);
}

template <class S>
void MpResponderLogic<S>::take_early(const wire::ParsedFrame& frame, wire::Op op) {
    const wire::Headers& h = frame.headers;
    bool taken = false;
    Slot slot = Slot::kReceived;
    const Early what = judge_early(h, op);
    switch (what) {
        case Early::kPlace:
            taken = (is_send(op) ? place_send(frame, op) : place_write(frame, op)) == Result::kTaken;
            break;
        case Early::kHold:
            taken = shared_.hold(mp_.held, frame);
            slot = is_send(op) || has_immediate(op) ? Slot::kTailWithCompletion : Slot::kTail;
            break;
        case Early::kDrop:
            break;
    }
    if (taken) {
        shared_.count_early(Psn(h.bth.psn) - mp_.requests_in.expected, mp_.requests_in_degree);
        shared_.reorder.track(mp_.requests_in, Psn(h.bth.psn), slot, h.mp.last());
    } else {
        ++core_.counters[what == Early::kDrop ? Counter::kDropEarlySync : Counter::kDropSequence];
    }
    owe(h, frame.ce(), taken ? wire::MpAck::kSack : wire::MpAck::kNack);
}

// The held packet's turn has come. False: it cannot be taken, and was told so.
template <class S>
bool MpResponderLogic<S>::release_held(Psn psn) {
    HeldPacket* packet = mp_.held.head;
    if (qp_.state == IBV_QPS_ERR || packet == nullptr || Psn(packet->headers.bth.psn) != psn) return false;
    shared_.take_first(mp_.held);
    wire::ParsedFrame frame;
    frame.headers = packet->headers;
    frame.payload = packet->payload.data();
    frame.payload_bytes = packet->payload_bytes;
    frame.verified = true;
    const Result result = execute(frame, wire::op_of(frame.headers.bth.opcode));
    const bool taken = result == Result::kTaken;
    // Its expected PSN is only now this one's; refuse() tells so by the entry's own PSN.
    if (result == Result::kBadInvalidate)
        core_.fail_receive(qp_, IBV_WC_REM_INV_REQ_ERR);
    else if (!taken)
        refuse(frame.headers, false, result);
    shared_.release(packet);
    return taken;
}

template <class S>
auto MpResponderLogic<S>::execute(const wire::ParsedFrame& frame, wire::Op op) -> Result {
    switch (op) {
        case wire::Op::kReadRequest:
            return execute_read(frame.headers);
        case wire::Op::kCompareSwap:
        case wire::Op::kFetchAdd:
            return execute_atomic(frame.headers, op);
        default:
            break;
    }
    const wire::Headers& h = frame.headers;
    if (!is_send(op)) {
        if (has_immediate(op)) {
            if (h.mp.msn != mp_.msn_in) return Result::kInvalidRequest;
            if (!s_.has_receive && core_.take_receive(qp_) != Core<S>::Taken::kYes) return Result::kNoReceive;
        }
        const Result result = place_write(frame, op);
        if (result != Result::kTaken) return result;
        if (has_immediate(op))
            finish_message(h, op, IBV_WC_RECV_RDMA_WITH_IMM, h.mp.ipsn * qp_.mtu + frame.payload_bytes);
        s_.message = is_last(op) ? Responder::Message::kNone : Responder::Message::kWrite;
        if (!is_last(op)) go_on_behind(frame);
        return result;
    }
    if (h.mp.msn != mp_.msn_in) return Result::kInvalidRequest;
    if (!s_.has_receive && core_.take_receive(qp_) != Core<S>::Taken::kYes) return Result::kNoReceive;
    const Result result = place_send(frame, op);
    if (result != Result::kTaken || !is_last(op)) return result;
    if ((op == wire::Op::kSendLastInv || op == wire::Op::kSendOnlyInv) &&
        !core_.memory.invalidate(h.invalidate_rkey, qp_)) {
        return Result::kBadInvalidate;
    }
    finish_message(h, op, IBV_WC_RECV, h.mp.ipsn * qp_.mtu + frame.payload_bytes);
    return Result::kTaken;
}

// IBTA 9.7.4.1.6: all but the last packet are of the path MTU; the last is not empty; none is longer.
template <class S>
auto MpResponderLogic<S>::place_send(const wire::ParsedFrame& frame, wire::Op op) -> Result {
    const uint32_t ipsn = frame.headers.mp.ipsn;
    const bool fits = is_last(op) ? frame.payload_bytes <= qp_.mtu && (is_only(op) || frame.payload_bytes != 0)
                                  : frame.payload_bytes == qp_.mtu;
    if (!fits || is_first(op) != (ipsn == 0)) return Result::kInvalidRequest;
    const uint64_t offset = uint64_t{ipsn} * qp_.mtu;
    if (offset + frame.payload_bytes > s_.receive.length) return Result::kLength;
    if (frame.payload_bytes == 0) return Result::kTaken;
    BytesReader payload{frame.payload};
    if (core_.scatter(s_.receive_sges.get(), s_.receive.num_sge, static_cast<uint32_t>(offset), payload,
                      frame.payload_bytes, qp_.pd) != IBV_WC_SUCCESS) {
        return Result::kOperation;
    }
    return Result::kTaken;
}

// RETH says where this packet goes, and how much of the message is left from here on.
template <class S>
auto MpResponderLogic<S>::place_write(const wire::ParsedFrame& frame, wire::Op op) -> Result {
    const wire::Reth& reth = frame.headers.reth;
    if ((qp_.access & IBV_ACCESS_REMOTE_WRITE) == 0) return Result::kInvalidRequest;
    const bool fits = is_last(op) ? frame.payload_bytes == reth.length && frame.payload_bytes <= qp_.mtu
                                  : frame.payload_bytes == qp_.mtu && reth.length > qp_.mtu;
    if (!fits || is_first(op) != (frame.headers.mp.ipsn == 0)) return Result::kInvalidRequest;
    if (uint64_t{frame.headers.mp.ipsn} * qp_.mtu + reth.length > kMaxMessageBytes) return Result::kInvalidRequest;
    uint8_t* target = core_.memory.translate(reth.rkey, reth.va, reth.length, IBV_ACCESS_REMOTE_WRITE, qp_.pd, &qp_);
    if (target == nullptr) return Result::kAccess;
    wire::copy(target, frame.payload, frame.payload_bytes);
    return Result::kTaken;
}

template <class S>
auto MpResponderLogic<S>::execute_read(const wire::Headers& h) -> Result {
    if ((qp_.access & IBV_ACCESS_REMOTE_READ) == 0) return Result::kInvalidRequest;
    if (h.reth.length > kMaxMessageBytes || qp_.max_dest_rd_atomic == 0) return Result::kInvalidRequest;
    if (core_.memory.translate(h.reth.rkey, h.reth.va, h.reth.length, IBV_ACCESS_REMOTE_READ, qp_.pd, &qp_) == nullptr)
        return Result::kAccess;
    if (jobs_full()) return Result::kBusy;
    const Psn first = mp_.response_end;
    mp_.response_end = first + response_packets(h.reth.length);
    job(s_.job_tail++) = {h.reth.va,        h.reth.rkey, h.reth.length, first, first,
                          mp_.response_end, h.bth.psn,   false,         false, 0};
    return Result::kTaken;
}

template <class S>
auto MpResponderLogic<S>::execute_atomic(const wire::Headers& h, wire::Op op) -> Result {
    if (jobs_full()) return Result::kBusy;
    uint64_t original;
    switch (core_.execute_atomic(qp_, h, op, &original)) {
        case Core<S>::Atomic::kInvalid:
            return Result::kInvalidRequest;
        case Core<S>::Atomic::kAccess:
            return Result::kAccess;
        case Core<S>::Atomic::kDone:
            break;
    }
    const Psn first = mp_.response_end;
    ++mp_.response_end;
    job(s_.job_tail++) = {0, 0, 0, first, first, mp_.response_end, h.bth.psn, true, false, original};
    return Result::kTaken;
}

template <class S>
void MpResponderLogic<S>::refuse(const wire::Headers& h, bool ce, Result result) {
    using Event = ibv_event_type;
    Event event = IBV_EVENT_QP_REQ_ERR;
    uint8_t syndrome = wire::kSyndromeNakInvalidRequest;
    // Answers on their way would be lost with the QP: the request comes again, and finds them gone.
    if (result != Result::kNoReceive && s_.job_head != s_.job_tail) result = Result::kBusy;
    switch (result) {
        case Result::kBusy:
            owe(h, ce, wire::MpAck::kNack);
            return;
        case Result::kNoReceive:
            owe(h, ce, wire::MpAck::kErr, wire::kSyndromeRnrNak | qp_.min_rnr_timer);
            return;
        case Result::kLength:
        case Result::kOperation:
            owe(h, ce, wire::MpAck::kErr, wire::kSyndromeNakRemoteOperation);
            core_.fail_receive(qp_, result == Result::kLength ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR);
            return;
        case Result::kAccess:
            syndrome = wire::kSyndromeNakRemoteAccess;
            event = IBV_EVENT_QP_ACCESS_ERR;
            break;
        default:
            break;
    }
    owe(h, ce, wire::MpAck::kErr, syndrome);
    core_.sink.event(event, qp_);
    core_.enter_error(qp_);
}

template <class S>
void MpResponderLogic<S>::drop_jobs() {
    while (s_.job_head != s_.job_tail && job(s_.job_head).end <= mp_.responses.una) ++s_.job_head;
}

template <class S>
uint32_t MpResponderLogic<S>::transmit(uint32_t budget) {
    if (qp_.state == IBV_QPS_ERR) return 0;
    uint32_t packets = 0;
    uint32_t at = s_.job_head;
    while (s_.job_head != s_.job_tail && packets < budget && core_.ready()) {
        Departure departure;
        if (!shared_.paths.next(mp_.responses, mp_.responses.nxt != mp_.response_end, core_.now_ns, departure)) break;
        if (departure.psn < job(at).first) at = s_.job_head;
        while (job(at).end <= departure.psn) ++at;
        const ResponderJob& answer = job(at);
        const auto packet = static_cast<uint32_t>(departure.psn - answer.first);
        const uint32_t offset = packet * qp_.mtu;
        const uint32_t bytes = answer.is_atomic ? 0 : std::min(answer.left - offset, qp_.mtu);
        const bool first = packet == 0, last = departure.psn + 1 == answer.end;
        wire::Headers h;
        wire::Segment segment{nullptr, bytes};
        using wire::Op;
        Op op = Op::kAtomicAck;
        if (answer.is_atomic) {
            h.atomic_original = answer.original;
        } else {
            segment.data =
                core_.memory.translate(answer.rkey, answer.va + offset, bytes, IBV_ACCESS_REMOTE_READ, qp_.pd, &qp_);
            if (segment.data == nullptr) {  // deregistered since the request came
                wire::Headers request;
                request.bth.psn = answer.msn;  // its PSN
                request.mp = {};
                request.vp = departure.vp;
                s_.job_head = s_.job_tail;
                refuse(request, false, Result::kAccess);
                break;
            }
            op = last ? (first ? Op::kReadResponseOnly : Op::kReadResponseLast)
                      : (first ? Op::kReadResponseFirst : Op::kReadResponseMiddle);
        }
        h.bth.opcode = wire::opcode(wire::Service::kMp, op);
        h.bth.pkey = qp_.pkey;
        h.bth.dest_qpn = qp_.remote_qpn;
        h.bth.psn = departure.psn.value();
        h.aeth = {wire::kSyndromeAck, 0};
        uint8_t flags = wire::Mpeth::kResponse;
        if (departure.again) flags |= wire::Mpeth::kRetx;
        if (departure.psn + 1 == mp_.response_end) flags |= wire::Mpeth::kLast;
        h.mp = {.flags = flags, .msn = 0, .ipsn = packet};
        h.vp = departure.vp;
        core_.send(qp_.path, h, {&segment, bytes != 0 ? 1u : 0u}, bytes);
        core_.count_sent(departure.again);
        shared_.paths.sent(mp_.responses, departure, core_.now_ns);
        ++packets;
    }
    return packets;
}

// EU-4: one for every data packet.
template <class S>
void MpResponderLogic<S>::owe(const wire::Headers& h, bool ce, wire::MpAck kind, uint8_t syndrome) {
    if (mp_.owed_count == Multipath::kMaxOwed) [[unlikely]]
        forget_oldest();
    mp_.owed[mp_.owed_count++] = {
        {.kind = kind, .ece = ce, .retx = h.mp.retx(), .response = h.mp.response(), .psn = h.bth.psn, .vp = h.vp},
        syndrome};
    s_.ack_not_before = 0;
    core_.activate(qp_);
    if (mp_.owed_count == Multipath::kMaxOwed) send_acks();
}

// The port takes nothing: as if the network had lost the oldest.
template <class S>
void MpResponderLogic<S>::forget_oldest() {
    std::copy(mp_.owed.begin() + 1, mp_.owed.end(), mp_.owed.begin());
    --mp_.owed_count;
}

// BX-3: consecutive entries of one stream share a packet. Errors go alone: only MPAETH has room for the syndrome.
template <class S>
uint32_t MpResponderLogic<S>::send_acks() {
    if (s_.ack_not_before > core_.now_ns) return 0;
    if (s_.ack_not_before != 0) {
        s_.ack_not_before = 0;
        s_.ping_pong = false;
    }
    uint32_t packets = 0, at = 0;
    const auto take = [&]() -> const OwedAck& {
        ++shared_.counters.acks_sent[static_cast<size_t>(mp_.owed[at].entry.kind)];
        return mp_.owed[at++];
    };
    while (at != mp_.owed_count && core_.ready()) {
        const OwedAck& first = take();
        std::array<uint8_t, Multipath::kMaxOwed * wire::kMpAckEntryBytes> more;
        uint32_t count = 0;
        while (core_.config.batch_acks && first.entry.kind != wire::MpAck::kErr && at != mp_.owed_count &&
               mp_.owed[at].entry.response == first.entry.response && mp_.owed[at].entry.kind != wire::MpAck::kErr) {
            wire::emit_ack_entry(more.data() + count++ * wire::kMpAckEntryBytes, take().entry);
        }
        wire::Headers h;
        h.bth.opcode = wire::opcode(wire::Service::kMp, wire::Op::kAck);
        h.bth.pkey = qp_.pkey;
        h.bth.dest_qpn = qp_.remote_qpn;
        h.bth.psn = first.entry.psn;
        h.mp_ack = {.entry = first.entry,
                    .syndrome = first.syndrome,
                    .aack_psn = (first.entry.response ? mp_.responses_in : mp_.requests_in).expected.value(),
                    .more = static_cast<uint8_t>(count)};
        h.vp = first.entry.vp;  // back the way that works: the one the data packet came
        switch (first.entry.kind) {
            case wire::MpAck::kErr:
                ++core_.counters[first.syndrome >> 5 == 1 ? Counter::kTxNakRnr : Counter::kTxNakError];
                break;
            case wire::MpAck::kNack:
                ++core_.counters[Counter::kTxNakSequence];
                break;
            default:
                ++core_.counters[Counter::kTxAcks];
        }
        const wire::Segment segment{more.data(), count * static_cast<uint32_t>(wire::kMpAckEntryBytes)};
        core_.send(qp_.path, h, {&segment, count != 0 ? 1u : 0u}, segment.bytes);
        ++packets;
    }
    std::copy(mp_.owed.begin() + at, mp_.owed.begin() + mp_.owed_count, mp_.owed.begin());
    mp_.owed_count -= at;
    return packets;
}

}  // namespace rove::transport
