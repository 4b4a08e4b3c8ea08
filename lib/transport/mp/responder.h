// SPDX-License-Identifier: Apache-2.0
// The responder of a QP in mp mode. Requests may arrive in any order and take effect in the order of posting. Units are
// bytes and packets.
//
// DESIGN NOTES
// 1. Early packets of the message in progress are placed at once, except the last packet, for which a program may poll
//    (EU-7). All other early packets are held and take effect in order, including the middle of later WRITEs, which
//    EU-7 would place: they may overwrite what an earlier WRITE in flight is about to write, and verbs promises that
//    the later data stays. IBV_ACCESS_RELAXED_ORDERING waives this promise, and so does an agreement of both ends
//    (Ordering). SENDs take receive requests in order, one at a time, so a shared receive queue needs no more of them
//    than in rc.
// 2. Every packet states its position (RETH, or MSN and iPSN), so a message in progress has no state except the receive
//    request that it holds. A packet with a wrong position harms only memory that its sender may write.
// 3. An early packet that cannot be accepted is refused (NACK) for any reason. It is sent again, and when it is due the
//    error is reported as such. Errors thus always concern the oldest request.
#pragma once

#include <algorithm>

#include "transport/executor.h"

namespace rove::transport {

template <class S>
class MpResponderLogic {
  public:
    MpResponderLogic(Core<S>& core, QueuePair& qp, Mp& mp)
        : core_(core), qp_(qp), mp_(mp), shared_(*core.multipath), executor_(core, qp) {}

    // Receives a WRITE packet of path MTU size that continues the packet before it.
    [[gnu::always_inline]] inline DirectPlacement receive_in_place(const wire::ParsedFrame& frame);
    [[gnu::always_inline]] inline void receive_request(const wire::ParsedFrame& frame, wire::Op op);
    // Sends responses.
    uint32_t transmit(uint32_t budget);
    // Removes the jobs whose responses before responses.una have all arrived.
    void drop_jobs();

    [[gnu::always_inline]] inline void queue_ack(const wire::Headers& headers, bool ce, wire::MpAck kind,
                                                 uint8_t syndrome = 0, bool trimmed = false);
    bool has_acks() const { return mp_.acks != nullptr; }
    uint32_t send_acks();
    // Recovers from a fault (recover-inl.h) while the held `packet` took effect.
    void recover(const EarlyPacket* packet) {
        const bool sends = is_send(wire::op_of(packet->headers.bth.opcode));
        const Consequence& consequence = consequence_of(sends ? Outcome::kLocalProtection : Outcome::kRemoteAccess);
        queue_ack(packet->headers, false, wire::MpAck::kErr, consequence.syndrome);
        executor_.apply(consequence);
        shared_.release(mp_.held, Psn(packet->headers.bth.psn));
    }
    // Sends a delayed ACK before the QP closes.
    void flush_ack() {
        mp_.delay.not_before = 0;
        send_acks();
    }

  private:
    enum class Early : uint8_t { kPlace, kHold, kDrop };

    // Resumes responses: the requester is alive, because it asks for something or whether we are.
    void wake_responses() {
        if (mp_.responses.backoff == Mp::kSilence && mp_.responses.outstanding()) [[unlikely]]
            resume_responses();
    }
    [[gnu::noinline]] void resume_responses();
    [[gnu::noinline]] bool drop_least_ack(wire::MpAck kind);
    void accept_early(const wire::ParsedFrame& frame, wire::Op op);
    Early classify_early(const wire::Headers& headers, wire::Op op) const;
    bool release_held(Psn psn);
    [[gnu::always_inline]] inline void receive_expected(const wire::ParsedFrame& frame, wire::Op op);
    [[gnu::always_inline]] inline void take_in_order(const wire::ParsedFrame& frame, wire::Op op);
    [[gnu::always_inline]] inline void acknowledge(const wire::ParsedFrame& frame, wire::Op op);
    void resume_after(const wire::ParsedFrame& frame);
    [[gnu::always_inline]] inline Outcome execute(const wire::ParsedFrame& frame, wire::Op op);
    Outcome place_send(const wire::ParsedFrame& frame, wire::Op op);
    [[gnu::always_inline]] inline Outcome place_write(const wire::ParsedFrame& frame, wire::Op op);
    Outcome execute_read(const wire::Headers& headers);
    Outcome execute_atomic(const wire::Headers& headers, wire::Op op);
    Outcome execute_empty_answered(const wire::ParsedFrame& frame, wire::Op op);
    void push_job(MpJob& job, uint32_t packets, const wire::Headers& request);
    // Reports the outcome of a packet that was due and could not be accepted.
    void refuse(const wire::Headers& headers, bool ce, Outcome outcome);

    // Returns the packets from the expected one on that this end takes now (BX-14).
    uint32_t room_for(bool response) const {
        if (response) return shared_.reorder.room(mp_.responses_in);
        return std::min(shared_.reorder.room(mp_.requests_in), shared_.room_of(mp_.held));
    }
    uint16_t ack_path(uint16_t of_data) {
        switch (core_.config.ack_path) {
            case AckPath::kAsData:
                return of_data;
            case AckPath::kRandom:
                return shared_.paths.random_vp(mp_.responses);
            case AckPath::kOne:
                break;
        }
        return qp_.path.flow.udp_src;
    }

    Core<S>& core_;
    QueuePair& qp_;
    Mp& mp_;
    MultipathShared& shared_;
    Executor<S> executor_;
};

template <class S>
DirectPlacement MpResponderLogic<S>::receive_in_place(const wire::ParsedFrame& frame) {
    const wire::Headers& h = frame.headers;
    const NextWritePacket& next = mp_.next_write;
    if (Psn(h.bth.psn) != mp_.requests_in.expected || !next.known || h.reth.va != next.va || h.reth.rkey != next.rkey ||
        h.reth.length != next.left || next.left <= qp_.mtu || uint64_t{h.mp.ipsn} * qp_.mtu != next.offset ||
        !executor_.may_write()) {
        return DirectPlacement::kNotEligible;
    }
    uint8_t* target = executor_.write_target(h.reth.rkey, h.reth.va, h.reth.length);
    if (target == nullptr) return DirectPlacement::kNotEligible;
    wire::VerifyingReader payload(frame);
    payload.read(target, qp_.mtu);
    if (!payload.icrc_matches()) return DirectPlacement::kBadIcrc;
    resume_after(frame);
    take_in_order(frame, wire::Op::kWriteMiddle);
    return DirectPlacement::kPlaced;
}

template <class S>
void MpResponderLogic<S>::receive_request(const wire::ParsedFrame& frame, wire::Op op) {
    const wire::Headers& h = frame.headers;
    const Psn psn(h.bth.psn);
    switch (shared_.reorder.classify(mp_.requests_in, psn)) {
        case Arrival::kInOrder:
            break;
        case Arrival::kOutOfOrder:
            return accept_early(frame, op);
        case Arrival::kDuplicate:
            core_.note_duplicate(qp_);
            wake_responses();
            return queue_ack(h, frame.ce(), psn < mp_.requests_in.expected ? wire::MpAck::kAck : wire::MpAck::kSack);
        default:
            ++core_.counters[Counter::kDropSequence];
            return queue_ack(h, frame.ce(), wire::MpAck::kNack);
    }
    // The most frequent operation gets its own instance, in which the compiler resolves most tests of `op`.
    if (op == wire::Op::kWriteOnly) return receive_expected(frame, wire::Op::kWriteOnly);
    receive_expected(frame, op);
}

template <class S>
void MpResponderLogic<S>::receive_expected(const wire::ParsedFrame& frame, wire::Op op) {
    const wire::Headers& h = frame.headers;
    const Outcome outcome = execute(frame, op);
    if (outcome == Outcome::kDone) [[likely]] {
        take_in_order(frame, op);
    } else {
        refuse(h, frame.ce(), outcome);
    }
}

// The expected packet has taken effect, and packets that follow it take effect now.
template <class S>
void MpResponderLogic<S>::take_in_order(const wire::ParsedFrame& frame, wire::Op op) {
    const wire::Headers& h = frame.headers;
    ReorderStream& stream = mp_.requests_in;
    acknowledge(frame, op);
    shared_.reorder.advance(stream, h.mp.last(), [&](Psn tail, Slot) { return release_held(tail); });
    if (stream.expected != Psn(h.bth.psn) + 1) mp_.next_write.known = false;  // the next packet has already arrived
}

// Acknowledges the expected packet before its successors take effect, so that errors of held packets are reported after
// it.
template <class S>
void MpResponderLogic<S>::acknowledge(const wire::ParsedFrame& frame, wire::Op op) {
    wake_responses();
    ++shared_.counters.degrees[0];
    const bool another_waits = mp_.delay.not_before != 0;
    queue_ack(frame.headers, frame.ce(), wire::MpAck::kAck);
    if (!is_last(op)) return;
    // At most one ACK waits: a second packet shows that the peer sends without waiting for an answer.
    mp_.delay.ping_pong = mp_.delay.ping_pong && !another_waits;
    if (mp_.delay.ping_pong) mp_.delay.not_before = core_.now_ns + kAckWaitNs;
    mp_.delay.received_ns = core_.now_ns;
}

// Records where a WRITE continues, for receive_in_place().
template <class S>
void MpResponderLogic<S>::resume_after(const wire::ParsedFrame& frame) {
    const wire::Headers& h = frame.headers;
    mp_.next_write = {.known = true,
                      .offset = h.mp.ipsn * qp_.mtu + frame.payload_bytes,
                      .va = h.reth.va + frame.payload_bytes,
                      .rkey = h.reth.rkey,
                      .left = h.reth.length - frame.payload_bytes};
}

// Decides whether the packet's data may reach memory early (EU-7).
template <class S>
auto MpResponderLogic<S>::classify_early(const wire::Headers& h, wire::Op op) const -> Early {
    const bool in_progress = Psn(h.bth.psn - h.mp.ipsn) <= mp_.requests_in.expected;
    const bool unordered = h.mp.early() && core_.config.ordering != Ordering::kReceiverHold;
    if (h.mp.sync() && !in_progress) return unordered ? Early::kDrop : Early::kHold;  // MP-12
    if (asks_for_response(op) || has_immediate(op)) return Early::kHold;
    if (is_send(op)) {
        const bool known = in_progress && h.mp.msn == mp_.msn_in && qp_.slot.taken;
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
void MpResponderLogic<S>::accept_early(const wire::ParsedFrame& frame, wire::Op op) {
    const wire::Headers& h = frame.headers;
    bool taken = false;
    Slot slot = Slot::kReceived;
    const auto ahead = static_cast<uint32_t>(Psn(h.bth.psn) - mp_.requests_in.expected);
    const Early what = classify_early(h, op);
    switch (what) {
        case Early::kPlace:
            taken = (is_send(op) ? place_send(frame, op) : place_write(frame, op)) == Outcome::kDone;
            break;
        case Early::kHold:
            taken = shared_.hold(mp_.held, frame, ahead);
            slot = is_send(op) || has_immediate(op) ? Slot::kTailWithCompletion : Slot::kTail;
            break;
        case Early::kDrop:
            break;
    }
    if (taken) {
        shared_.record_reorder_distance(ahead, mp_.requests_in_degree);
        shared_.reorder.track(mp_.requests_in, Psn(h.bth.psn), slot, h.mp.last());
    } else {
        ++core_.counters[what == Early::kDrop ? Counter::kDropEarlySync : Counter::kDropSequence];
    }
    queue_ack(h, frame.ce(), taken ? wire::MpAck::kSack : wire::MpAck::kNack);
}

// Executes a held packet that is due. Returns false if it was refused.
template <class S>
bool MpResponderLogic<S>::release_held(Psn psn) {
    const EarlyPacket* packet = shared_.find(mp_.held, psn);
    if (qp_.state == IBV_QPS_ERR || packet == nullptr) return false;
    wire::ParsedFrame frame;
    frame.headers = packet->headers;
    frame.payload = packet->payload();
    frame.payload_bytes = packet->payload_bytes;
    frame.verified = true;
    core_.released = packet;
    const Outcome outcome = execute(frame, wire::op_of(frame.headers.bth.opcode));
    core_.released = nullptr;
    const bool taken = outcome == Outcome::kDone;
    // The stream's expected PSN advances only afterwards, so refuse() uses the entry's PSN.
    if (!taken) refuse(frame.headers, false, outcome);
    shared_.release(mp_.held, psn);
    return taken;
}

template <class S>
Outcome MpResponderLogic<S>::execute(const wire::ParsedFrame& frame, wire::Op op) {
    switch (op) {
        case wire::Op::kReadRequest:
            return execute_read(frame.headers);
        case wire::Op::kCompareSwap:
        case wire::Op::kFetchAdd:
            return execute_atomic(frame.headers, op);
        case wire::Op::kFlush:
        case wire::Op::kAtomicWrite:
            return execute_empty_answered(frame, op);
        default:
            break;
    }
    const wire::Headers& h = frame.headers;
    const bool takes_receive = is_send(op) || has_immediate(op);
    if (takes_receive) {
        if (h.mp.msn != mp_.msn_in) return Outcome::kInvalidRequest;
        if (executor_.take_receive() != Outcome::kDone) return Outcome::kNoReceive;
    }
    const Outcome placed = is_send(op) ? place_send(frame, op) : place_write(frame, op);
    if (placed != Outcome::kDone) return placed;
    if (!is_send(op)) mp_.next_write.known = false;
    if (!is_last(op)) {
        if (!is_send(op)) resume_after(frame);
        return Outcome::kDone;
    }
    const uint32_t bytes = h.mp.ipsn * qp_.mtu + frame.payload_bytes;
    if (is_send(op)) {
        const Outcome finished = executor_.finish_send(h, op, bytes);
        if (finished != Outcome::kDone) return finished;
    } else {
        executor_.finish_write(h, op, bytes);
    }
    if (takes_receive) mp_.msn_in = (mp_.msn_in + 1) & Psn::kMask;
    return Outcome::kDone;
}

template <class S>
Outcome MpResponderLogic<S>::place_send(const wire::ParsedFrame& frame, wire::Op op) {
    const uint32_t ipsn = frame.headers.mp.ipsn;
    if (!executor_.payload_fits(frame, op) || is_first(op) != (ipsn == 0)) return Outcome::kInvalidRequest;
    return executor_.place_send(frame, uint64_t{ipsn} * qp_.mtu);
}

// The RETH states where this packet goes, and how much of the message is left from it on.
template <class S>
Outcome MpResponderLogic<S>::place_write(const wire::ParsedFrame& frame, wire::Op op) {
    const wire::Reth& reth = frame.headers.reth;
    if (!executor_.may_write()) return Outcome::kInvalidRequest;
    const bool fits = is_last(op) ? frame.payload_bytes == reth.length && frame.payload_bytes <= qp_.mtu
                                  : frame.payload_bytes == qp_.mtu && reth.length > qp_.mtu;
    if (!fits || is_first(op) != (frame.headers.mp.ipsn == 0)) return Outcome::kInvalidRequest;
    const uint64_t bytes = uint64_t{frame.headers.mp.ipsn} * qp_.mtu + reth.length;
    if (bytes > kMaxMessageBytes || !executor_.is_length_valid(static_cast<uint32_t>(bytes)))
        return Outcome::kInvalidRequest;
    uint8_t* target = executor_.write_target(reth.rkey, reth.va, reth.length);
    if (target == nullptr) return Outcome::kRemoteAccess;
    wire::copy(target, frame.payload, frame.payload_bytes);
    return Outcome::kDone;
}

template <class S>
Outcome MpResponderLogic<S>::execute_read(const wire::Headers& h) {
    const Outcome outcome = executor_.check_read(h.reth, qp_.pd);
    if (outcome != Outcome::kDone) return outcome;
    if (mp_.jobs.full()) return Outcome::kBusy;
    MpJob job;
    job.va = h.reth.va;
    job.rkey = h.reth.rkey;
    job.bytes = h.reth.length;
    push_job(job, executor_.packets(h.reth.length), h);
    return Outcome::kDone;
}

template <class S>
Outcome MpResponderLogic<S>::execute_atomic(const wire::Headers& h, wire::Op op) {
    if (mp_.jobs.full()) return Outcome::kBusy;
    MpJob job;
    job.is_atomic = true;
    const Outcome outcome = executor_.execute_atomic(h.atomic, op, job.original);
    if (outcome == Outcome::kDone) push_job(job, 1, h);
    return outcome;
}

// Executes FLUSH and ATOMIC WRITE. The answer is a READ response without data.
template <class S>
Outcome MpResponderLogic<S>::execute_empty_answered(const wire::ParsedFrame& frame, wire::Op op) {
    if (mp_.jobs.full()) return Outcome::kBusy;
    const Outcome outcome =
        op == wire::Op::kFlush ? executor_.execute_flush(frame.headers) : executor_.execute_atomic_write(frame);
    if (outcome != Outcome::kDone) return outcome;
    MpJob job;
    push_job(job, 1, frame.headers);
    return Outcome::kDone;
}

// Queues a job. Its response takes the next PSNs of the response stream.
template <class S>
void MpResponderLogic<S>::push_job(MpJob& job, uint32_t packets, const wire::Headers& request) {
    job.first = mp_.response_end;
    job.end = mp_.response_end = mp_.response_end + packets;
    job.request = Psn(request.bth.psn);
    mp_.jobs.push(job);
}

template <class S>
void MpResponderLogic<S>::refuse(const wire::Headers& h, bool ce, Outcome outcome) {
    // An error would discard responses that are still in flight. The request is sent again, and by that time they have
    // arrived.
    if (outcome != Outcome::kNoReceive && !mp_.jobs.empty()) outcome = Outcome::kBusy;
    const Consequence& consequence = consequence_of(outcome);
    if (outcome == Outcome::kBusy) {
        queue_ack(h, ce, wire::MpAck::kNack);
    } else if (outcome == Outcome::kNoReceive) {
        queue_ack(h, ce, wire::MpAck::kErr, consequence.syndrome | qp_.min_rnr_timer);
    } else {
        queue_ack(h, ce, wire::MpAck::kErr, consequence.syndrome);
        executor_.apply(consequence);
    }
}

template <class S>
void MpResponderLogic<S>::drop_jobs() {
    while (!mp_.jobs.empty() && mp_.jobs.front().end <= mp_.responses.una) ++mp_.jobs.head;
}

template <class S>
uint32_t MpResponderLogic<S>::transmit(uint32_t budget) {
    if (qp_.state == IBV_QPS_ERR) return 0;
    uint32_t packets = 0;
    uint32_t at = mp_.jobs.head;
    while (!mp_.jobs.empty() && packets < budget && core_.ready(qp_.path)) {
        Departure departure;
        if (!shared_.paths.next(mp_.responses, mp_.responses.nxt != mp_.response_end, core_.now_ns, departure)) break;
        if (departure.psn < mp_.jobs.at(at).first) at = mp_.jobs.head;
        while (mp_.jobs.at(at).end <= departure.psn) ++at;
        const MpJob& answer = mp_.jobs.at(at);
        const auto packet = static_cast<uint32_t>(departure.psn - answer.first);
        const uint32_t offset = packet * qp_.mtu;
        const uint32_t bytes = answer.is_atomic ? 0 : std::min(answer.bytes - offset, qp_.mtu);
        const bool first = packet == 0, last = departure.psn + 1 == answer.end;
        wire::Headers h;
        wire::Segment segment{nullptr, bytes};
        using wire::Op;
        Op op = Op::kAtomicAck;
        if (answer.is_atomic) {
            h.atomic_original = answer.original;
        } else {
            segment.data = executor_.read_source(answer.rkey, answer.va + offset, bytes, qp_.pd);
            if (segment.data == nullptr) {  // deregistered after the request arrived
                wire::Headers request;
                request.bth.psn = answer.request.value();
                request.mp = {};
                request.vp = departure.vp;
                mp_.jobs.head = mp_.jobs.tail;
                refuse(request, false, Outcome::kRemoteAccess);
                break;
            }
            op = read_response_op(first, last);
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
        shared_.paths.sent(mp_.responses, departure, core_.now_ns, bytes + kHeaderBytes);
        ++packets;
    }
    return packets;
}

// Queues an entry for every data packet (EU-4).
template <class S>
void MpResponderLogic<S>::queue_ack(const wire::Headers& h, bool ce, wire::MpAck kind, uint8_t syndrome, bool trimmed) {
    if (mp_.acks == nullptr && (mp_.acks = shared_.take_acks()) == nullptr) [[unlikely]]
        return;
    QueuedAcks& acks = *mp_.acks;
    if (acks.count == QueuedAcks::kMost && !drop_least_ack(kind)) [[unlikely]]
        return;
    acks.entries[acks.count++] = {{.kind = kind,
                                   .ece = ce,
                                   .retx = h.mp.retx(),
                                   .response = h.mp.response(),
                                   .psn = h.bth.psn,
                                   .vp = h.vp,
                                   .trimmed = trimmed},
                                  syndrome};
    mp_.delay.not_before = 0;
    core_.activate(qp_);
    if (acks.count == QueuedAcks::kMost) send_acks();
}

// Makes room while the port accepts nothing. Dropping an acknowledgement equals losing it in the network; the oldest of
// the least informative entries goes. The next entry's expected PSN repeats an ACK, and later SACKs repeat a SACK, but
// a refused packet is only sent again after its NACK or after a timeout. Returns false if a new entry of `kind` is the
// least informative one.
template <class S>
bool MpResponderLogic<S>::drop_least_ack(wire::MpAck kind) {
    auto& entries = mp_.acks->entries;
    const auto least = std::ranges::min_element(entries, {}, [](const QueuedAck& ack) { return ack.entry.kind; });
    if (kind < least->entry.kind) return false;
    std::copy(least + 1, entries.end(), least);
    --mp_.acks->count;
    return true;
}

// Sends the queued entries. Consecutive entries of one stream share a packet (BX-3). Errors travel alone, because only
// the MPAETH has room for the syndrome.
template <class S>
uint32_t MpResponderLogic<S>::send_acks() {
    if (mp_.delay.not_before > core_.now_ns) return 0;
    if (mp_.delay.not_before != 0) {
        mp_.delay.not_before = 0;
        mp_.delay.ping_pong = false;
    }
    if (mp_.acks == nullptr) return 0;
    QueuedAcks& acks = *mp_.acks;
    uint32_t packets = 0, at = 0;
    const auto take = [&]() -> const QueuedAck& {
        ++shared_.counters.acks_sent[static_cast<size_t>(acks.entries[at].entry.kind)];
        return acks.entries[at++];
    };
    while (at != acks.count && core_.ready_to_acknowledge(qp_.path)) {
        const QueuedAck& first = take();
        std::array<uint8_t, QueuedAcks::kMost * wire::kMpAckEntryBytes> more;
        uint32_t count = 0;
        while (core_.config.batch_acks && first.entry.kind != wire::MpAck::kErr && at != acks.count &&
               acks.entries[at].entry.response == first.entry.response &&
               acks.entries[at].entry.kind != wire::MpAck::kErr) {
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
                    .room = wire::encode_room(room_for(first.entry.response)),
                    .more = static_cast<uint8_t>(count)};
        h.vp = ack_path(first.entry.vp);
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
    std::copy(acks.entries.begin() + at, acks.entries.begin() + acks.count, acks.entries.begin());
    acks.count -= at;
    if (acks.count == 0) shared_.give_back(std::move(mp_.acks));
    return packets;
}

}  // namespace rove::transport
