// SPDX-License-Identifier: Apache-2.0
// The protocol of one worker: its QPs, what they have to send, and when. No ports, threads, clocks or sockets: packets
// and the time come in, packets and completions go out through a sink. lib/datapath's worker and the tests' virtual
// network are drivers of it.
//
// A driver
//   1. gives every parsed packet to receive(),
//   2. calls doorbell() for a QP to which work was posted,
//   3. calls expire() when next_deadline() has passed,
//   4. calls transmit() after any of these, and again whenever the sink has room, until it returns 0.
//
// Units: nanoseconds of the driver's monotonic clock; bytes; packets.
#pragma once

#include <bit>
#include <concepts>
#include <span>

#include "transport/core.h"
#include "transport/datagram.h"
#include "transport/mp/hello.h"
#include "transport/mp/requester.h"
#include "transport/mp/responder.h"
#include "transport/requester.h"
#include "transport/responder.h"
#include "wire/frame.h"

namespace rove::transport {

// What the engine needs from a driver. All calls come from within the engine's own functions, on the same thread.
template <class S>
concept Sink = requires(S sink, const Path& path, const wire::Headers& headers, std::span<const wire::Segment> payload,
                        CompletionQueue& cq, QueuePair& qp, SharedRecvQueue& srq, ibv_event_type event) {
    // Whether one more packet can be taken. False: the engine stops, and goes on at the next transmit().
    { sink.ready() } -> std::same_as<bool>;
    // Takes a packet; ready() was true. The payload is copied before the call returns.
    { sink.send(path, headers, payload) } -> std::same_as<void>;
    // A CQ that was armed has a completion: its channel gets an event.
    { sink.notify(cq) } -> std::same_as<void>;
    // Asynchronous events, as ibv_get_async_event gives them.
    { sink.event(event, qp) } -> std::same_as<void>;
    { sink.event(event, cq) } -> std::same_as<void>;
    { sink.event(event, srq) } -> std::same_as<void>;
};

template <class S>
class Engine {
  public:
    Engine(const Config& config, QueuePairTable& qps, MemoryTable& memory, S& sink)
        : core_{config, qps, memory, sink} {}

    // A packet for a QP of this engine (or for a multicast group), parsed. `qp` is what the table's find() gave for it, so
    // that the driver can look first who owns the QP. Null: counted and dropped. A frame that is not verified is verified
    // before anything else is done, or while its payload is copied. False: its ICRC is wrong.
    bool receive(wire::ParsedFrame& frame, QueuePair* qp, uint16_t port, uint64_t now_ns);

    // Work was posted to `qp`'s send queue.
    void doorbell(QueuePair& qp) {
        if (qp.state == IBV_QPS_ERR || qp.state == IBV_QPS_SQE) {
            flush(qp);
        } else {
            core_.activate(qp);
        }
    }

    // Sends what may be sent, at most about `budget` packets. Returns the packets handed to the sink; less than the
    // budget means that nothing more can be sent before the next event, or that the sink is full.
    uint32_t transmit(uint64_t now_ns, uint32_t budget);
    // Whether transmit() would find something to try.
    bool has_active() const { return core_.active[0].head || core_.active[1].head || core_.active[2].head; }

    // Runs the timers that have passed.
    void expire(uint64_t now_ns);
    uint64_t next_deadline() const { return core_.deadlines.earliest(); }

    // Control calls; the driver makes sure that none of the above runs meanwhile.
    // Enters `state`; attributes in `qp` were set before, and start_receiving/start_sending called for RTR/RTS.
    // ERR flushes. RESET empties all queues and drops the QP's completions.
    void set_state(QueuePair& qp, ibv_qp_state state, uint64_t now_ns);
    static void start_receiving(QueuePair& qp, uint32_t rq_psn);    // before RTR; reads max_dest_rd_atomic
    static void start_sending(QueuePair& qp, uint32_t sq_psn);      // before RTS; reads the retry counts
    // Asks the peer of an RC QP whether it will speak mp, as this end would; the answer comes to qp.hello.answer.
    void ask_multipath(QueuePair& qp, const Path& path, uint32_t remote_qpn, uint32_t nonce) {
        ask_hello(core_, qp, path, remote_qpn, nonce);
    }
    // What RC QPs that are connected from now on shall speak.
    void set_mode(Mode mode) { core_.config.mode = mode; }
    // An RC QP that shall speak mp: before start_receiving(). Then, beside these, the streams. May allocate.
    void start_multipath(QueuePair& qp);
    void start_multipath_receiving(QueuePair& qp, uint32_t rq_psn);
    void start_multipath_sending(QueuePair& qp, uint32_t sq_psn);
    // Forgets the QP: nothing of it remains in lists and timers. What it has received is remembered (departed.h).
    void remove(QueuePair& qp);
    // Completes with FLUSH_ERR what was posted to a QP in ERR (or, sends only, SQE).
    void flush(QueuePair& qp);

    const MultipathShared* multipath() const { return core_.multipath.get(); }
    const Counters& counters() const { return core_.counters; }
    Counters& counters() { return core_.counters; }
    const Config& config() const { return core_.config; }

  private:
    bool expects_middle(const wire::ParsedFrame& frame, QueuePair& qp);
    void receive_verified(const wire::ParsedFrame& frame, QueuePair* qp, uint16_t port);
    void receive_multicast(const wire::ParsedFrame& frame, uint16_t port);
    bool receive_departed(const wire::ParsedFrame& frame, uint16_t port);
    bool receive_connected(const wire::ParsedFrame& frame, QueuePair& qp);
    bool receive_multipath(const wire::ParsedFrame& frame, QueuePair& qp);
    void receive_multipath_ack(const wire::ParsedFrame& frame, QueuePair& qp);
    void notify_congestion(QueuePair& qp);
    void stop_multipath(Multipath& mp);
    // Returns the packets sent; `*more` whether the QP had its turn cut short by the budget.
    uint32_t transmit_qp(QueuePair& qp, uint32_t budget);

    Core<S> core_;
};

template <class S>
bool Engine<S>::receive(wire::ParsedFrame& frame, QueuePair* qp, uint16_t port, uint64_t now_ns) {
    core_.now_ns = now_ns;
    if (qp != nullptr && qp->port == port && expects_middle(frame, *qp)) {
        if (!receive_connected(frame, *qp)) return false;
        ++core_.counters[Counter::kRxPackets];
        core_.counters[Counter::kRxBytes] += frame.payload_bytes;
        if (frame.ce() && qp->multipath == nullptr) notify_congestion(*qp);
        return true;
    }
    if (!frame.verified && !wire::verify(frame)) return false;
    receive_verified(frame, qp, port);
    return true;
}

// What most packets of large messages are: in order, in the middle, from and to where all before them were.
template <class S>
bool Engine<S>::expects_middle(const wire::ParsedFrame& frame, QueuePair& qp) {
    const wire::Bth& bth = frame.headers.bth;
    if (qp.type != IBV_QPT_RC || !qp.may_receive() || wire::service_of(bth.opcode) != qp.service()) return false;
    if (bth.pkey != qp.pkey || !wire::same(frame.flow.src, qp.path.flow.dst)) return false;
    const wire::Op op = wire::op_of(bth.opcode);
    if (qp.multipath != nullptr) {
        if (op == wire::Op::kWriteMiddle && !frame.headers.mp.response)
            return MpResponderLogic<S>(core_, qp).expects_middle(frame);
        return op == wire::Op::kReadResponseMiddle && frame.headers.mp.response && qp.state != IBV_QPS_RTR &&
               qp.state != IBV_QPS_SQE && MpRequesterLogic<S>(core_, qp).expects_middle(frame);
    }
    if (ResponderLogic<S>(core_, qp).expects_middle(frame, op)) return true;
    return (qp.state == IBV_QPS_RTS || qp.state == IBV_QPS_SQD) && RequesterLogic<S>(core_, qp).expects_middle(frame, op);
}

template <class S>
void Engine<S>::receive_verified(const wire::ParsedFrame& frame, QueuePair* qp, uint16_t port) {
    const wire::Bth& bth = frame.headers.bth;
    if (qp == nullptr) {
        if (bth.dest_qpn == wire::kMulticastQpn) {
            receive_multicast(frame, port);
        } else if (!receive_departed(frame, port)) {
            ++core_.counters[Counter::kDropUnknownQp];
        }
        return;
    }
    if (qp->port != port) {
        ++core_.counters[Counter::kDropPort];
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
    if (bth.opcode == wire::kOpcodeCnp) {
        if (!qp->is_connected() || !wire::same(frame.flow.src, qp->path.flow.dst)) {
            ++core_.counters[Counter::kDropSource];
            return;
        }
        ++core_.counters[Counter::kRxCnp];
        qp->congestion.on_cnp(core_.config.dcqcn, core_.now_ns);
        return;
    }
    // IBTA 10.9.1: the same partition, and at least one full member.
    if (((bth.pkey ^ qp->pkey) & 0x7FFF) != 0 || ((bth.pkey | qp->pkey) & 0x8000) == 0) {
        ++core_.counters[Counter::kDropPkey];
        return;
    }
    if (wire::service_of(bth.opcode) != qp->service()) {
        ++core_.counters[Counter::kDropService];
        return;
    }
    if (qp->type == IBV_QPT_UD) {
        ++core_.counters[Counter::kRxPackets];
        core_.counters[Counter::kRxBytes] += frame.payload_bytes;
        receive_datagram(core_, *qp, frame);
        return;
    }
    if (!wire::same(frame.flow.src, qp->path.flow.dst)) {
        ++core_.counters[Counter::kDropSource];
        return;
    }
    ++core_.counters[Counter::kRxPackets];
    core_.counters[Counter::kRxBytes] += frame.payload_bytes;
    if (frame.ce() && qp->multipath == nullptr) notify_congestion(*qp);
    receive_connected(frame, *qp);
}

// False: the frame was not verified, and is damaged.
template <class S>
bool Engine<S>::receive_connected(const wire::ParsedFrame& frame, QueuePair& qp) {
    if (qp.multipath != nullptr) return receive_multipath(frame, qp);
    ResponderLogic<S> responder(core_, qp);
    if (qp.type == IBV_QPT_UC) {
        responder.receive_uc(frame);
        return true;
    }
    const wire::Op op = wire::op_of(frame.headers.bth.opcode);
    switch (op) {
        case wire::Op::kAck:
        case wire::Op::kAtomicAck:
        case wire::Op::kReadResponseFirst:
        case wire::Op::kReadResponseMiddle:
        case wire::Op::kReadResponseLast:
        case wire::Op::kReadResponseOnly: {
            if (qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_SQD) {
                ++core_.counters[Counter::kDropQpState];
                return true;
            }
            RequesterLogic<S> requester(core_, qp);
            if (op == wire::Op::kAck) {
                requester.receive_ack(frame.headers);
            } else if (op == wire::Op::kAtomicAck) {
                requester.receive_atomic_response(frame.headers);
            } else if (!requester.receive_read_response(frame)) {
                return false;
            }
            core_.activate(qp);
            return true;
        }
        default:
            if (!responder.receive_rc(frame)) return false;
            if (responder.owes()) core_.activate(qp);
            return true;
    }
}

// As receive_connected(), of a QP in mp mode.
template <class S>
bool Engine<S>::receive_multipath(const wire::ParsedFrame& frame, QueuePair& qp) {
    const wire::Headers& h = frame.headers;
    const wire::Op op = wire::op_of(h.bth.opcode);
    if (op == wire::Op::kAck) {
        receive_multipath_ack(frame, qp);
        core_.activate(qp);
        return true;
    }
    if (frame.ce()) ++core_.counters[Counter::kRxCe];
    MpResponderLogic<S> responder(core_, qp);
    const bool response = op >= wire::Op::kReadResponseFirst && op <= wire::Op::kAtomicAck;
    if (h.mp.response != response) {
        ++core_.counters[Counter::kDropResponse];
        return true;
    }
    if (!response) return responder.receive_request(frame, op);
    if (qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_SQD) {
        ++core_.counters[Counter::kDropQpState];
        return true;
    }
    wire::MpAck kind;
    if (!MpRequesterLogic<S>(core_, qp).receive_response(frame, op, &kind)) return false;
    responder.owe(h, frame.ce(), kind);
    return true;
}

template <class S>
void Engine<S>::receive_multipath_ack(const wire::ParsedFrame& frame, QueuePair& qp) {
    const wire::Mpaeth& ack = frame.headers.mp_ack;
    Multipath& mp = *qp.multipath;
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
    for (uint32_t i = 0; i < ack.more; ++i) {
        const wire::MpAckEntry entry = wire::parse_ack_entry(frame.payload + i * wire::kMpAckEntryBytes);
        known |= entry.response == responses && entry.kind != wire::MpAck::kErr && take(entry);
    }
    if (!known) {
        ++core_.counters[Counter::kDropResponse];
        return;
    }
    const bool moved = paths.advance(stream, Psn(ack.aack_psn), core_.now_ns);
    if (responses) {
        MpResponderLogic<S>(core_, qp).drop_jobs();
        return;
    }
    MpRequesterLogic<S> requester(core_, qp);
    if (moved) {
        requester.progress();
        requester.heard();
    } else if (ack.entry.kind == wire::MpAck::kAck && !mp.requests.outstanding()) {
        requester.heard_again();
    }
    if (ack.entry.kind == wire::MpAck::kErr && qp.state != IBV_QPS_ERR) requester.take_error(ack.entry, ack.syndrome);
}

template <class S>
void Engine<S>::receive_multicast(const wire::ParsedFrame& frame, uint16_t port) {
    bool found = false;
    for (const auto& attachment : core_.qps.attachments()) {
        if (attachment.group != frame.flow.dst || attachment.qp->port != port) continue;
        found = true;
        receive_verified(frame, attachment.qp, port);
    }
    if (!found) ++core_.counters[Counter::kDropMulticast];
}

// A repetition of what a QP that is gone has received is acknowledged once more. READs and atomics cannot be answered.
template <class S>
bool Engine<S>::receive_departed(const wire::ParsedFrame& frame, uint16_t port) {
    const wire::Bth& bth = frame.headers.bth;
    const Departed* gone = core_.departed.find(bth.dest_qpn);
    if (gone == nullptr || gone->port != port || !wire::same(frame.flow.src, gone->path.flow.dst) ||
        wire::service_of(bth.opcode) != (gone->multipath ? wire::Service::kMp : wire::Service::kRc) ||
        Psn(bth.psn) >= gone->epsn) {
        return false;
    }
    const wire::Op op = wire::op_of(bth.opcode);
    const bool write_or_send = op < wire::Op::kReadRequest || op > wire::Op::kFetchAdd;
    const wire::Mpeth& mp = frame.headers.mp;
    if (!write_or_send || !core_.ready()) return false;
    ++core_.counters[Counter::kRxDuplicate];
    ++core_.counters[Counter::kTxAcks];
    wire::Headers h;
    h.bth.opcode = wire::opcode(wire::Service::kRc, wire::Op::kAck);
    h.bth.pkey = gone->pkey;
    h.bth.dest_qpn = gone->remote_qpn;
    h.bth.psn = gone->epsn.previous().value();
    h.aeth = {wire::kSyndromeAck, gone->msn};
    if (gone->multipath) {
        h.bth.opcode = wire::opcode(wire::Service::kMp, wire::Op::kAck);
        h.mp_ack = {.entry = {.kind = wire::MpAck::kAck, .ece = frame.ce(), .retx = mp.retx, .response = false,
                              .psn = bth.psn, .vp = frame.headers.vp},
                    .syndrome = 0, .aack_psn = gone->epsn.value(), .more = 0};
        h.vp = frame.headers.vp;
    }
    core_.send(gone->path, h, {}, 0);
    return true;
}

// DCQCN's notification point: at most one CNP per QP and interval (annex A17.9.3; the CNP's 16 bytes are reserved, zero).
template <class S>
void Engine<S>::notify_congestion(QueuePair& qp) {
    ++core_.counters[Counter::kRxCe];
    uint64_t& last = qp.responder.last_cnp_ns;
    if ((last != 0 && core_.now_ns - last < core_.config.dcqcn.cnp_interval_ns) || !core_.ready()) return;
    last = core_.now_ns;
    wire::Headers h;
    h.bth.opcode = wire::kOpcodeCnp;
    h.bth.becn = true;
    h.bth.pkey = qp.pkey;
    h.bth.dest_qpn = qp.remote_qpn;
    core_.send(qp.path, h, {}, 0);              // the opcode's headers include the reserved bytes
    ++core_.counters[Counter::kTxCnp];
}

template <class S>
uint32_t Engine<S>::transmit_qp(QueuePair& qp, uint32_t budget) {
    if (qp.type != IBV_QPT_RC) return RequesterLogic<S>(core_, qp).transmit(budget);
    if (qp.multipath != nullptr) {
        MpResponderLogic<S> responder(core_, qp);
        MpRequesterLogic<S> requester(core_, qp);
        uint32_t packets = 0;
        if (requester.can_send() && qp.responder.accompany(core_.now_ns)) packets = requester.transmit(budget - 1);
        packets += responder.send_acks();
        if (packets < budget) packets += responder.transmit(budget - packets);
        if (packets < budget) packets += requester.transmit(budget - packets);
        if (responder.owes() && core_.ready()) packets += responder.send_acks();  // of an answer that failed
        return packets;
    }
    ResponderLogic<S> responder(core_, qp);
    RequesterLogic<S> requester(core_, qp);
    uint32_t packets = 0;
    if (requester.can_send() && qp.responder.accompany(core_.now_ns) && !responder.has_jobs())
        packets = requester.transmit(budget - 1);
    packets += responder.transmit(budget - packets);
    if (packets < budget) packets += requester.transmit(budget - packets);
    return packets;
}

template <class S>
uint32_t Engine<S>::transmit(uint64_t now_ns, uint32_t budget) {
    core_.now_ns = now_ns;
    uint32_t packets = 0;
    for (ActiveList& list : core_.active) {
        while (list.head != nullptr && packets < budget) {
            if (!core_.ready()) return packets;
            QueuePair& qp = *list.head;
            const uint32_t turn = std::min(core_.config.quantum_packets, budget - packets);
            list.pop();
            qp.active = false;
            core_.refused = false;
            const uint32_t sent = transmit_qp(qp, turn);
            packets += sent;
            // A full turn, or a full sink: there may be more. (The QP may have activated itself meanwhile.)
            if (sent >= turn || core_.refused) core_.activate(qp);
        }
    }
    return packets;
}

template <class S>
void Engine<S>::expire(uint64_t now_ns) {
    core_.now_ns = now_ns;
    while (QueuePair* qp = core_.deadlines.pop(now_ns)) {
        if (qp->multipath != nullptr) {
            if (qp->may_receive()) MpRequesterLogic<S>(core_, *qp).expire();
        } else if (qp->type == IBV_QPT_RC && (qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD)) {
            RequesterLogic<S>(core_, *qp).expire();
        }
        core_.activate(*qp);                    // its wait for the RNR timer or the pacer may be over
    }
}

template <class S>
void Engine<S>::start_receiving(QueuePair& qp, uint32_t rq_psn) {
    Responder& s = qp.responder;
    s.epsn = Psn(rq_psn);
    if (qp.type != IBV_QPT_RC) return;
    s.jobs.assign(std::bit_ceil(std::max<uint32_t>(2 * qp.max_dest_rd_atomic, 1)), {});
    s.atomics.assign(std::max<uint32_t>(qp.max_dest_rd_atomic, 1), {});
    s.job_head = s.job_tail = s.next_atomic = 0;
}

template <class S>
void Engine<S>::start_sending(QueuePair& qp, uint32_t sq_psn) {
    Requester& r = qp.requester;
    r.next_psn = r.max_psn = r.una = r.flight_end = Psn(sq_psn);
    r.retries_left = qp.retry_cnt;
    r.rnr_retries_left = qp.rnr_retry;
}

template <class S>
void Engine<S>::start_multipath(QueuePair& qp) {
    if (core_.multipath == nullptr) {
        core_.multipath = std::make_unique<MultipathShared>(core_.config.paths, core_.config.reorder, core_.config.seed);
    }
    qp.multipath = std::make_unique<Multipath>();
}

template <class S>
void Engine<S>::start_multipath_receiving(QueuePair& qp, uint32_t rq_psn) {
    Multipath& mp = *qp.multipath;
    core_.multipath->reorder.start(mp.requests_in, Psn(rq_psn));
    core_.multipath->paths.start(mp.responses, Psn(rq_psn));
    mp.response_end = Psn(rq_psn);
}

template <class S>
void Engine<S>::start_multipath_sending(QueuePair& qp, uint32_t sq_psn) {
    Multipath& mp = *qp.multipath;
    core_.multipath->paths.start(mp.requests, Psn(sq_psn));
    core_.multipath->reorder.start(mp.responses_in, Psn(sq_psn));
    mp.next_response = Psn(sq_psn);
    mp.reads.assign(std::max<uint32_t>(qp.max_rd_atomic, 1), 0);
}

template <class S>
void Engine<S>::set_state(QueuePair& qp, ibv_qp_state state, uint64_t now_ns) {
    core_.now_ns = now_ns;
    const ibv_qp_state before = qp.state;
    if (state == IBV_QPS_ERR) {
        core_.enter_error(qp);
        return;
    }
    qp.state = state;
    if (state == IBV_QPS_RESET) {
        remove(qp);
        qp.sq.reset();
        qp.rq.reset();
        qp.requester = {};
        qp.congestion = {};
        qp.hello.reset();
        std::unique_ptr<ibv_sge[]> sges = std::move(qp.responder.receive_sges);
        qp.responder = {};
        qp.responder.receive_sges = std::move(sges);
        qp.send_cq->forget(qp.qpn);
        qp.recv_cq->forget(qp.qpn);
    } else if (state == IBV_QPS_SQD && before == IBV_QPS_RTS) {
        RequesterLogic<S>(core_, qp).enter_drain();
    } else if (state == IBV_QPS_RTS) {
        qp.requester.draining = false;
        core_.activate(qp);
    }
}

template <class S>
void Engine<S>::stop_multipath(Multipath& mp) {
    core_.multipath->paths.stop(mp.requests);
    core_.multipath->paths.stop(mp.responses);
    core_.multipath->reorder.stop(mp.requests_in);
    core_.multipath->reorder.stop(mp.responses_in);
    core_.multipath->release_all(mp.held);
}

template <class S>
void Engine<S>::remove(QueuePair& qp) {
    if (qp.type == IBV_QPT_RC) {
        if (qp.multipath != nullptr) {
            MpResponderLogic<S>(core_, qp).settle();
            core_.departed.insert(qp, core_.now_ns);
            stop_multipath(*qp.multipath);
            qp.multipath.reset();
        } else {
            ResponderLogic<S>(core_, qp).settle();
            if (qp.responder.msn != 0) core_.departed.insert(qp, core_.now_ns);
        }
    }
    core_.deadlines.remove(qp);
    if (qp.active) core_.active[qp.priority].remove(qp);
    qp.active = false;
}

template <class S>
void Engine<S>::flush(QueuePair& qp) {
    core_.flush_sends(qp);
    if (qp.state == IBV_QPS_ERR) core_.flush_receives(qp);
}

}  // namespace rove::transport
