// SPDX-License-Identifier: Apache-2.0
// Reception: finding the QP of a frame, and checking that it may receive it.
#pragma once

#include "transport/engine.h"

namespace rove::transport {

inline constexpr uint16_t kFullMember = 0x8000;  // in a P_Key, IBTA 10.9.2

template <class S>
bool Engine<S>::receive(wire::ParsedFrame& frame, QueuePair* qp, uint16_t port, uint64_t now_ns) {
    core_.now_ns = now_ns;
    if (qp != nullptr && comes_from_peer(frame, *qp, port)) [[likely]] {
        const DirectPlacement placed = frame.verified ? DirectPlacement::kNotEligible : receive_in_place(frame, *qp);
        if (placed == DirectPlacement::kBadIcrc) return false;
        if (placed == DirectPlacement::kNotEligible) {
            if (!frame.verified && !wire::verify(frame)) return false;
            if (Rc* const rc = qp->rc(); rc != nullptr) [[likely]]
                receive(frame, *qp, *rc);
            else
                receive(frame, *qp, *qp->mp());
        }
        note_received(frame, *qp);
        return true;
    }
    if (!frame.verified && !wire::verify(frame)) return false;
    receive_verified(frame, qp, port);
    return true;
}

template <class S>
void Engine<S>::receive_trimmed(const wire::ParsedFrame& frame, QueuePair* qp, uint16_t port, uint64_t now_ns) {
    core_.now_ns = now_ns;
    Mp* const mp = qp != nullptr && comes_from_peer(frame, *qp, port) ? qp->mp() : nullptr;
    const wire::Headers& h = frame.headers;
    if (mp == nullptr || wire::op_of(h.bth.opcode) == wire::Op::kAck) {
        ++core_.counters[Counter::kDropLength];
        return;
    }
    const ReorderStream& stream = h.mp.response() ? mp->responses_in : mp->requests_in;
    const Psn psn(h.bth.psn);
    wire::MpAck kind = wire::MpAck::kNack;
    if (core_.multipath->reorder.classify(stream, psn) == Arrival::kDuplicate)
        kind = psn < stream.expected ? wire::MpAck::kAck : wire::MpAck::kSack;
    MpResponderLogic<S>(core_, *qp, *mp).queue_ack(h, frame.ce(), kind, 0, kind == wire::MpAck::kNack);
}

// Returns true in the usual case: the packet is for an RC QP that may receive, has its service, comes from its peer,
// and belongs to a full member of its partition.
template <class S>
bool Engine<S>::comes_from_peer(const wire::ParsedFrame& frame, const QueuePair& qp, uint16_t port) {
    const wire::Bth& bth = frame.headers.bth;
    return qp.type == IBV_QPT_RC && qp.port == port && qp.may_receive() &&
           wire::service_of(bth.opcode) == qp.service() && bth.opcode != wire::kOpcodeHello &&
           bth.pkey == (qp.pkey | kFullMember) && wire::same(frame.flow.src, qp.path.flow.dst) &&
           wire::same(frame.flow.dst, qp.path.flow.src);
}

template <class S>
DirectPlacement Engine<S>::receive_in_place(const wire::ParsedFrame& frame, QueuePair& qp) {
    const wire::Op op = wire::op_of(frame.headers.bth.opcode);
    if (!is_middle(op) || frame.payload_bytes != qp.mtu) return DirectPlacement::kNotEligible;
    const bool response = op == wire::Op::kReadResponseMiddle;
    if (response && qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_SQD) return DirectPlacement::kNotEligible;
    if (Rc* const rc = qp.rc(); rc != nullptr) [[likely]]
        return receive_in_place(frame, qp, *rc, op);
    return receive_in_place(frame, qp, *qp.mp(), op);
}

template <class S>
DirectPlacement Engine<S>::receive_in_place(const wire::ParsedFrame& frame, QueuePair& qp, Rc& rc, wire::Op op) {
    if (op == wire::Op::kReadResponseMiddle) {
        RcRequesterLogic<S, Rc> requester(core_, qp, rc);
        const DirectPlacement placed = requester.receive_in_place(frame);
        if (placed == DirectPlacement::kPlaced && requester.has_work()) core_.activate(qp);
        return placed;
    }
    RcResponderLogic<S, Rc> responder(core_, qp, rc);
    const DirectPlacement placed = responder.receive_in_place(frame, op);
    if (placed == DirectPlacement::kPlaced && responder.can_send()) core_.activate(qp);
    return placed;
}

template <class S>
void Engine<S>::receive_verified(const wire::ParsedFrame& frame, QueuePair* qp, uint16_t port) {
    const wire::Bth& bth = frame.headers.bth;
    if (qp == nullptr) {
        if (bth.dest_qpn == wire::kMulticastQpn) {
            receive_multicast(frame, port);
        } else if (!receive_in_time_wait(frame, port)) {
            ++core_.counters[Counter::kDropUnknownQp];
        }
        return;
    }
    if (qp->port != port) {
        ++core_.counters[Counter::kDropPort];
        return;
    }
    // IBTA 9.6.1.2.2: a multicast DGID is valid with the multicast QPN only, and a connected QP's GID is the one it
    // connected with.
    if (bth.dest_qpn != wire::kMulticastQpn && wire::is_multicast(frame.flow.dst)) {
        ++core_.counters[Counter::kDropDestination];
        return;
    }
    if (bth.opcode == wire::kOpcodeHello) {
        receive_hello(core_, *qp, frame);
        return;
    }
    if (!qp->may_receive()) {
        ++core_.counters[Counter::kDropQpState];
        return;
    }
    // IBTA 10.9.1: both are in the same partition, and at least one is a full member.
    if (((bth.pkey ^ qp->pkey) & ~kFullMember) != 0 || ((bth.pkey | qp->pkey) & kFullMember) == 0) {
        ++core_.counters[Counter::kDropPkey];
        return;
    }
    if (bth.opcode == wire::kOpcodeCnp) {
        if (!qp->is_connected() || !wire::same(frame.flow.src, qp->path.flow.dst)) {
            ++core_.counters[Counter::kDropSource];
            return;
        }
        if (!wire::same(frame.flow.dst, qp->path.flow.src)) {
            ++core_.counters[Counter::kDropDestination];
            return;
        }
        // A QP that has not reached RTS has sent nothing, so a CNP for it is invalid. (The PSN has no meaning: annex
        // A17.9.3.)
        if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD) {
            ++core_.counters[Counter::kDropQpState];
            return;
        }
        ++core_.counters[Counter::kRxCnp];
        const uint32_t requests = frame.headers.cnp_requests;
        Rc* const rc = qp->rc_or_xrc();
        const bool by_window = rc != nullptr && requests != 0 && core_.config.adapts_window;
        if (by_window) rc->requester.on_marks(requests);
        if (by_window && frame.headers.cnp_responses == 0) return;
        if (Congestion* congestion = qp->congestion()) congestion->rate.on_cnp(core_.config.dcqcn, core_.now_ns);
        return;
    }
    if (wire::service_of(bth.opcode) != qp->service()) {
        ++core_.counters[Counter::kDropService];
        return;
    }
    if (qp->is_connected() && !wire::same(frame.flow.src, qp->path.flow.dst)) {
        ++core_.counters[Counter::kDropSource];
        return;
    }
    if (qp->is_connected() && !wire::same(frame.flow.dst, qp->path.flow.src)) {
        ++core_.counters[Counter::kDropDestination];
        return;
    }
    qp->visit([&](auto& protocol) { receive(frame, *qp, protocol); });
    note_received(frame, *qp);
}

// Handles the first packet from the peer, which also tells a QP that may not send yet that the connection exists.
template <class S>
void Engine<S>::note_received(const wire::ParsedFrame& frame, QueuePair& qp) {
    ++core_.counters[Counter::kRxPackets];
    core_.counters[Counter::kRxBytes] += frame.payload_bytes;
    if (frame.ce()) [[unlikely]]
        if (Congestion* congestion = qp.congestion())
            notify_congestion(qp, *congestion, !wire::is_response(wire::op_of(frame.headers.bth.opcode)));
    if (qp.state == IBV_QPS_RTR && !qp.established && qp.is_connected()) [[unlikely]] {
        qp.established = true;
        core_.sink.event(IBV_EVENT_COMM_EST, qp);
    }
}

template <class S>
template <std::derived_from<Rc> P>
void Engine<S>::receive(const wire::ParsedFrame& frame, QueuePair& qp, P& rc) {
    const wire::Op op = wire::op_of(frame.headers.bth.opcode);
    if constexpr (P::kService == wire::Service::kXrc) {
        if (wire::is_response(op) != (qp.type == IBV_QPT_XRC_SEND)) {
            ++core_.counters[Counter::kDropService];
            return;
        }
    }
    switch (op) {
        case wire::Op::kAck:
        case wire::Op::kAtomicAck:
        case wire::Op::kReadResponseFirst:
        case wire::Op::kReadResponseMiddle:
        case wire::Op::kReadResponseLast:
        case wire::Op::kReadResponseOnly: {
            if (qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_SQD) {
                ++core_.counters[Counter::kDropQpState];
                return;
            }
            RcRequesterLogic<S, P> requester(core_, qp, rc);
            if (op == wire::Op::kAck) {
                requester.receive_ack(frame.headers);
            } else if (op == wire::Op::kAtomicAck) {
                requester.receive_atomic_response(frame.headers);
            } else {
                requester.receive_read_response(frame);
            }
            if (requester.has_work()) core_.activate(qp);
            return;
        }
        default: {
            RcResponderLogic<S, P> responder(core_, qp, rc);
            responder.receive(frame);
            if (responder.can_send()) core_.activate(qp);
        }
    }
}

template <class S>
void Engine<S>::receive(const wire::ParsedFrame& frame, QueuePair& qp, Mp& mp) {
    const wire::Headers& h = frame.headers;
    const wire::Op op = wire::op_of(h.bth.opcode);
    if (op == wire::Op::kAck) {
        receive_multipath_ack(frame, qp, mp);
        core_.activate(qp);
        return;
    }
    if (frame.ce()) ++core_.counters[Counter::kRxCe];
    MpResponderLogic<S> responder(core_, qp, mp);
    const bool response = wire::is_response(op);
    if (h.mp.response() != response) {
        ++core_.counters[Counter::kDropResponse];
        return;
    }
    if (!response) return responder.receive_request(frame, op);
    if (qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_SQD) {
        ++core_.counters[Counter::kDropQpState];
        return;
    }
    responder.queue_ack(h, frame.ce(), MpRequesterLogic<S>(core_, qp, mp).receive_response(frame, op));
}

// SENDs are verified before they are placed.
template <class S>
DirectPlacement Engine<S>::receive_in_place(const wire::ParsedFrame& frame, QueuePair& qp, Mp& mp, wire::Op op) {
    const bool response = op == wire::Op::kReadResponseMiddle;
    if (op == wire::Op::kSendMiddle || frame.headers.mp.response() != response) return DirectPlacement::kNotEligible;
    MpResponderLogic<S> responder(core_, qp, mp);
    const DirectPlacement placed =
        response ? MpRequesterLogic<S>(core_, qp, mp).receive_in_place(frame) : responder.receive_in_place(frame);
    if (placed != DirectPlacement::kPlaced) return placed;
    if (frame.ce()) ++core_.counters[Counter::kRxCe];
    if (response) responder.queue_ack(frame.headers, frame.ce(), wire::MpAck::kAck);
    return placed;
}

template <class S>
void Engine<S>::receive_multipath_ack(const wire::ParsedFrame& frame, QueuePair& qp, Mp& mp) {
    const wire::Mpaeth& ack = frame.headers.mp_ack;
    if (frame.payload_bytes != ack.more * wire::kMpAckEntryBytes) {
        ++core_.counters[Counter::kDropLength];
        return;
    }
    const bool responses = ack.entry.response;
    if (!responses && qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_SQD) {
        ++core_.counters[Counter::kDropQpState];
        return;
    }
    ++core_.counters[Counter::kRxAcks];
    Paths& paths = core_.multipath->paths;
    SendStream& stream = responses ? mp.responses : mp.requests;
    const auto take = [&](const wire::MpAckEntry& entry) {
        ++core_.multipath->counters.acks_received[static_cast<size_t>(entry.kind)];
        return paths.acknowledge(stream, entry, core_.now_ns);
    };
    bool known = take(ack.entry);
    const uint32_t next = paths.acknowledge_next(stream, frame.payload, ack.more, responses, core_.now_ns);
    known |= next != 0;
    core_.multipath->counters.acks_received[static_cast<size_t>(wire::MpAck::kAck)] += next;
    for (uint32_t i = next; i < ack.more; ++i) {
        const wire::MpAckEntry entry = wire::parse_ack_entry(frame.payload + i * wire::kMpAckEntryBytes);
        known |= entry.response == responses && entry.kind != wire::MpAck::kErr && take(entry);
    }
    if (!known) {
        ++core_.counters[Counter::kDropResponse];
        return;
    }
    const bool moved = paths.advance(stream, Psn(ack.aack_psn), core_.now_ns);
    if (ack.room != 0) paths.limit(stream, Psn(ack.aack_psn), wire::decode_room(ack.room));
    if (responses) {
        MpResponderLogic<S>(core_, qp, mp).drop_jobs();
        return;
    }
    MpRequesterLogic<S> requester(core_, qp, mp);
    if (moved) {
        requester.progress();
        requester.on_progress();
    } else if (ack.entry.kind == wire::MpAck::kAck && !mp.requests.outstanding()) {
        requester.note_repeated_ack();
    } else {
        requester.on_valid_response();
    }
    if (ack.entry.kind == wire::MpAck::kErr && qp.state != IBV_QPS_ERR) requester.take_error(ack.entry, ack.syndrome);
}

template <class S>
void Engine<S>::receive_multicast(const wire::ParsedFrame& frame, uint16_t port) {
    if (wire::service_of(frame.headers.bth.opcode) != wire::Service::kUd) {
        ++core_.counters[Counter::kDropService];
        return;
    }
    const MulticastGroup* const group = core_.qps.groups().find(port, frame.flow.dst);
    if (group == nullptr) {
        ++core_.counters[Counter::kDropMulticast];
        return;
    }
    for (QueuePair* const member : group->members(core_.worker)) {
        // A QP that has joined the group to which it sends receives its own datagrams too, as on NICs, unless it asked
        // for the opposite. Only frames that we have sent have our own MAC: the driver admits no others.
        const bool own = frame.headers.deth.src_qpn == member->qpn && wire::same(frame.flow.src_mac, member->mac);
        if (own && member->blocks_own_multicast) continue;
        // This member received it already (recover-inl.h).
        if (core_.member != nullptr && core_.member != member) continue;
        core_.member = member;
        receive_verified(frame, member, port);
        core_.member = nullptr;
    }
}

// Acknowledges a repetition of a request that a destroyed QP has received. READs and atomics are not answered:
// time_wait.h.
template <class S>
bool Engine<S>::receive_in_time_wait(const wire::ParsedFrame& frame, uint16_t port) {
    const wire::Bth& bth = frame.headers.bth;
    const std::optional<TimeWait> gone = core_.time_wait.find(bth.dest_qpn);
    if (!gone || gone->port != port || !wire::same(frame.flow.src, gone->path.flow.dst) ||
        !wire::same(frame.flow.dst, gone->path.flow.src) || wire::service_of(bth.opcode) != gone->service ||
        Psn(bth.psn) >= gone->epsn) {
        return false;
    }
    const wire::Op op = wire::op_of(bth.opcode);
    const bool write_or_send = (op < wire::Op::kReadRequest || op > wire::Op::kFetchAdd) && !asks_for_response(op);
    const wire::Mpeth& mp = frame.headers.mp;
    if (!write_or_send || !core_.ready(gone->path)) return false;
    ++core_.counters[Counter::kRxPackets];
    core_.counters[Counter::kRxBytes] += frame.payload_bytes;
    ++core_.counters[Counter::kRxDuplicate];
    ++core_.counters[Counter::kTxAcks];
    wire::Headers h;
    h.bth.opcode = wire::opcode(gone->service, wire::Op::kAck);
    h.bth.pkey = gone->pkey;
    h.bth.dest_qpn = gone->remote_qpn;
    h.bth.psn = gone->epsn.previous().value();
    h.aeth = {wire::kSyndromeAck, gone->msn};
    if (gone->service == wire::Service::kMp) {
        h.mp_ack = {.entry = {.kind = wire::MpAck::kAck,
                              .ece = frame.ce(),
                              .retx = mp.retx(),
                              .response = false,
                              .psn = bth.psn,
                              .vp = frame.headers.vp},
                    .syndrome = 0,
                    .aack_psn = gone->epsn.value(),
                    .more = 0};
        h.vp = frame.headers.vp;
    }
    core_.send(gone->path, h, {}, 0);
    return true;
}

// DCQCN's notification point: at most one CNP per QP and interval (annex A17.9.3). It states how many packets were
// marked, which only rove reads (BX-15).
template <class S>
void Engine<S>::notify_congestion(QueuePair& qp, Congestion& congestion, bool is_request) {
    ++core_.counters[Counter::kRxCe];
    uint64_t& last = congestion.last_cnp_ns;
    const uint64_t interval_ns = core_.config.dcqcn.cnp_interval_ns;
    // Marks that no other followed say nothing after that time.
    if (core_.now_ns - last > 2 * interval_ns) congestion.marked_requests = congestion.marked_responses = 0;
    ++(is_request ? congestion.marked_requests : congestion.marked_responses);
    if (last != 0 && core_.now_ns - last < interval_ns) return;
    last = core_.now_ns;
    congestion.cnp_due = true;
    if (core_.ready(qp.path)) return send_cnp(qp, congestion);
    core_.activate(qp);
}

template <class S>
void Engine<S>::send_cnp(QueuePair& qp, Congestion& congestion) {
    if (!core_.ready(qp.path)) return core_.activate(qp);
    congestion.cnp_due = false;
    wire::Headers h;
    h.bth.opcode = wire::kOpcodeCnp;
    h.bth.ecn = wire::Bth::kBecn;
    h.bth.pkey = qp.pkey;
    h.bth.dest_qpn = qp.remote_qpn;
    h.cnp_requests = std::exchange(congestion.marked_requests, 0);
    h.cnp_responses = std::exchange(congestion.marked_responses, 0);
    core_.send(qp.path, h, {}, 0);
    ++core_.counters[Counter::kTxCnp];
}

}  // namespace rove::transport
