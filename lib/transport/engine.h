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
// Units: nanoseconds of the driver's monotonic clock, which may stand still while no answer could come; bytes; packets.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <span>
#include <utility>

#include "transport/core.h"
#include "transport/datagram.h"
#include "transport/mp/hello.h"
#include "transport/mp/requester.h"
#include "transport/mp/responder.h"
#include "transport/requester.h"
#include "transport/responder.h"
#include "transport/unreliable.h"
#include "wire/frame.h"

namespace rove::transport {

// What the engine needs from a driver. All calls come from within the engine's own functions, on the same thread.
template <class S>
concept Sink = requires(S sink, const Path& path, const wire::Headers& headers, std::span<const wire::Segment> payload,
                        CompletionQueue& cq, QueuePair& qp, SharedRecvQueue& srq, ibv_event_type event) {
    // Whether one more packet can be taken: on this path, or on any. False: the QPs of the path wait, or the engine
    // stops, until the next transmit(). True: until the next packet.
    { sink.ready(path) } -> std::same_as<bool>;
    { sink.ready() } -> std::same_as<bool>;
    // Takes a packet; ready() was true. The payload is copied before the call returns.
    { sink.send(path, headers, payload) } -> std::same_as<void>;
    // For the packets of a run (Core::send_burst()), as send() of each: of one path and size, and with the BTH of
    // `headers` but for AckReq and PSN.
    { sink.series(path, headers, uint32_t{}).send(headers, static_cast<const void*>(nullptr)) } -> std::same_as<void>;
    // Requests on `path` have been unanswered for long, or come again as if they had been: perhaps its neighbour has
    // another MAC now, and should be asked.
    { sink.suspect(path) } -> std::same_as<void>;
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
    // Of the workers that share the tables, it is `worker`.
    Engine(const Config& config, QueuePairTable& qps, MemoryTable& memory, TimeWaitTable& time_wait, S& sink,
           uint16_t worker = 0)
        : core_{config, qps, memory, time_wait, sink, worker} {}

    // A packet for a QP of this engine (or for a multicast group: for its members among them), parsed. `qp` is what the
    // table's find() gave for it, so that the driver can look first who owns the QP. Null: counted and dropped. A frame
    // that is not verified is verified before anything else is done, or while its payload is copied. False: its ICRC is
    // wrong.
    bool receive(wire::ParsedFrame& frame, QueuePair* qp, uint16_t port, uint64_t now_ns);

    // A packet of which the network has thrown the payload away, and says so (BX-10): its headers are as they were.
    // What is not of an mp QP is dropped.
    void receive_trimmed(const wire::ParsedFrame& frame, QueuePair* qp, uint16_t port, uint64_t now_ns);

    // Work was posted to `qp`'s send queue. It may have been reset since.
    void doorbell(QueuePair& qp) {
        if (qp.state == IBV_QPS_ERR || qp.state == IBV_QPS_SQE) {
            flush(qp);
        } else if (qp.state != IBV_QPS_RESET) {
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

    // How far the driver's clock is behind one that does not stand still: the times of completions are by that one.
    void set_behind(uint64_t stall_offset_ns) { core_.stall_offset_ns = stall_offset_ns; }
    // The driver's clock stood still for so long, and the peers could have answered meanwhile: they were silent so much
    // longer. Before the next expire() the driver gives the engine what had arrived by then.
    void miss(uint64_t ns) {
        core_.missed_ns += ns;
        core_.deadlines.advance(ns);
    }
    // receive(), or transmit() or expire(), was left in an access to a program's memory that has gone, whose region is
    // no longer valid (recover-inl.h). Then the call is made again. False: the frame is done with.
    bool recover_receive(const wire::ParsedFrame& frame, QueuePair* qp);
    void recover_transmit();

    // Control calls; the driver makes sure that none of the above runs meanwhile.
    // Enters `state`; attributes in `qp` were set before, and start_receiving/start_sending called for RTR/RTS.
    // ERR flushes. RESET empties all queues and drops the QP's completions.
    void set_state(QueuePair& qp, ibv_qp_state state, uint64_t now_ns);
    // 0 HIGH, 1 MEDIUM, 2 LOW. Also of a QP that is waiting for its turn.
    void set_priority(QueuePair& qp, uint8_t priority) {
        if (qp.active) core_.active[qp.priority].remove(qp);
        qp.priority = priority;
        if (std::exchange(qp.active, false)) core_.activate(qp);
    }
    // Before RTR: chooses what the QP speaks; for RC QPs, `multipath` says whether that is mp. May allocate.
    void start_receiving(QueuePair& qp, uint32_t rq_psn, bool multipath = false);
    void start_sending(QueuePair& qp, uint32_t sq_psn);  // before RTS; reads the retry counts
    // Asks the peer of an RC QP whether it will speak mp, as this end would; the answer comes to qp.hello.answer.
    void ask_multipath(QueuePair& qp, const Path& path, uint32_t remote_qpn, uint32_t nonce) {
        ask_hello(core_, qp, path, remote_qpn, nonce);
    }
    // What RC QPs that are connected from now on shall speak.
    void set_mode(Mode mode) { core_.config.mode = mode; }
    // Forgets the QP: nothing of it remains in lists and timers. What it has received is remembered (time_wait.h).
    void remove(QueuePair& qp);
    // Completes with FLUSH_ERR what was posted to a QP in ERR (or, sends only, SQE).
    void flush(QueuePair& qp);

    const MultipathShared* multipath() const { return core_.multipath.get(); }
    const Counters& counters() const { return core_.counters; }
    Counters& counters() { return core_.counters; }
    const Config& config() const { return core_.config; }

  private:
    static constexpr uint32_t kClasses = 3;
    // One in so many packets, at least, are those of a class that has something to send, for each class below the
    // highest.
    static constexpr uint32_t kMinShare = 8;

    static bool comes_from_peer(const wire::ParsedFrame& frame, const QueuePair& qp, uint16_t port);
    void receive_verified(const wire::ParsedFrame& frame, QueuePair* qp, uint16_t port);
    void receive_multicast(const wire::ParsedFrame& frame, uint16_t port);
    bool receive_in_time_wait(const wire::ParsedFrame& frame, uint16_t port);
    [[gnu::always_inline]] inline DirectPlacement receive_in_place(const wire::ParsedFrame& frame, QueuePair& qp);
    void receive_multipath_ack(const wire::ParsedFrame& frame, QueuePair& qp, Mp& mp);
    [[gnu::always_inline]] inline void note_received(const wire::ParsedFrame& frame, QueuePair& qp);
    [[gnu::noinline]] void notify_congestion(QueuePair& qp, Congestion& congestion);
    [[gnu::noinline]] void send_cnp(QueuePair& qp, Congestion& congestion);
    // Of what a QP speaks, by protocol: a packet, a turn, a deadline, the end.
    [[gnu::always_inline]] inline DirectPlacement receive_in_place(const wire::ParsedFrame& frame, QueuePair& qp,
                                                                   Rc& rc, wire::Op op);
    DirectPlacement receive_in_place(const wire::ParsedFrame& frame, QueuePair& qp, Mp& mp, wire::Op op);
    template <std::derived_from<Rc> P>
    [[gnu::always_inline]] inline void receive(const wire::ParsedFrame& frame, QueuePair& qp, P& rc);
    void receive(const wire::ParsedFrame& frame, QueuePair& qp, Mp& mp);
    void receive(const wire::ParsedFrame& frame, QueuePair& qp, Uc& uc) { receive_unreliable(core_, qp, uc, frame); }
    void receive(const wire::ParsedFrame& frame, QueuePair& qp, Ud&) { receive_datagram(core_, qp, frame); }
    template <std::derived_from<Rc> P>
    void recover(QueuePair& qp, P& rc, uint32_t packets);
    void recover(QueuePair& qp, Mp& mp, uint32_t packets);
    void recover(QueuePair& qp, Uc& uc, uint32_t packets) {
        UnreliableRequesterLogic<S, Uc>(core_, qp, uc).recover(packets != 0 ? packets - 1 : 0);
    }
    void recover(QueuePair&, Ud&, uint32_t) {}
    template <std::derived_from<Rc> P>
    uint32_t transmit(QueuePair& qp, P& rc, uint32_t budget);  // gives the packets sent
    uint32_t transmit(QueuePair& qp, Mp& mp, uint32_t budget);
    uint32_t transmit(QueuePair& qp, Uc& uc, uint32_t budget) {
        if (uc.congestion.cnp_due) [[unlikely]]
            send_cnp(qp, uc.congestion);
        return UnreliableRequesterLogic<S, Uc>(core_, qp, uc).transmit(budget);
    }
    uint32_t transmit(QueuePair& qp, Ud& ud, uint32_t budget) {
        return UnreliableRequesterLogic<S, Ud>(core_, qp, ud).transmit(budget);
    }
    void reactivate_blocked();
    [[gnu::always_inline]] inline uint32_t next_class();
    [[gnu::always_inline]] inline void charge_classes(uint32_t level, uint32_t sent);
    static uint32_t share_turn(QueuePair& qp, auto& requester, auto& responder, uint32_t requests, uint32_t packets,
                               uint32_t budget);
    template <std::derived_from<Rc> P>
    void expire(QueuePair& qp, P& rc);
    void expire(QueuePair& qp, Mp& mp);
    void expire(QueuePair&, Uc&) {}
    void expire(QueuePair&, Ud&) {}
    void start_sending(QueuePair& qp, Rc& rc, Psn psn);
    void start_sending(QueuePair& qp, Mp& mp, Psn psn);
    static void start_sending(QueuePair&, Uc& uc, Psn psn) { uc.next_psn = psn; }
    static void start_sending(QueuePair&, Ud& ud, Psn psn) { ud.next_psn = psn; }
    template <std::derived_from<Rc> P>
    void finish(QueuePair& qp, P& rc);
    void finish(QueuePair& qp, Mp& mp);
    void finish(QueuePair&, Uc&) {}
    void finish(QueuePair&, Ud&) {}

    Core<S> core_;
    // QPs whose path takes no packet, while those of other paths have their turns. With more of them, the others wait.
    static constexpr uint32_t kMaxParked = 1024;
    std::array<QueuePair*, kMaxParked> blocked_;
    uint32_t parked_count_ = 0;
};

// Requests and answers share the turn, and whichever found no room goes first the next time: behind the answers to a
// peer that reads all the time, our own requests would time out unsent.
template <class S>
template <std::derived_from<Rc> P>
uint32_t Engine<S>::transmit(QueuePair& qp, P& rc, uint32_t budget) {
    RcResponderLogic<S, P> responder(core_, qp, rc);
    RcRequesterLogic<S, P> requester(core_, qp, rc);
    if (rc.congestion.cnp_due) [[unlikely]]
        send_cnp(qp, rc.congestion);
    uint32_t requests = 0;
    if (qp.requests_first) {
        requests = requester.transmit((budget + 1) / 2);
    } else if (requester.can_send() && rc.responder.delay.piggyback(core_.now_ns) && !responder.has_jobs()) {
        requests = requester.transmit(budget - 1);
    }
    return requests + share_turn(qp, requester, responder, requests, requests, budget);
}

template <class S>
uint32_t Engine<S>::transmit(QueuePair& qp, Mp& mp, uint32_t budget) {
    MpResponderLogic<S> responder(core_, qp, mp);
    MpRequesterLogic<S> requester(core_, qp, mp);
    uint32_t requests = 0;
    if (qp.requests_first) {
        requests = requester.transmit((budget + 1) / 2);
    } else if (requester.can_send() && mp.delay.piggyback(core_.now_ns)) {
        requests = requester.transmit(budget - 1);
    }
    uint32_t packets = requests + responder.send_acks();
    packets += share_turn(qp, requester, responder, requests, packets, budget);
    if (responder.has_acks() && core_.ready(qp.path)) packets += responder.send_acks();  // of an answer that failed
    return packets;
}

// The rest of a turn of which `packets` are sent, `requests` of them requests. Returns the packets sent.
template <class S>
uint32_t Engine<S>::share_turn(QueuePair& qp, auto& requester, auto& responder, uint32_t requests, uint32_t packets,
                               uint32_t budget) {
    uint32_t left = budget - std::min(packets, budget);
    const uint32_t all = left;
    left -= responder.transmit(requester.can_send() ? (left + 1) / 2 : left);
    const uint32_t more = left != 0 ? requester.transmit(left) : 0;
    left -= more;
    if (left != 0) left -= responder.transmit(left);
    qp.requests_first = requests + more == 0 && requester.can_send();
    return all - left;
}

template <class S>
uint32_t Engine<S>::transmit(uint64_t now_ns, uint32_t budget) {
    core_.now_ns = now_ns;
    if (core_.overrun) [[unlikely]]
        core_.fail_overrun();
    uint32_t packets = 0, refusals = 0;
    while (packets < budget && core_.ready()) {
        const uint32_t level = next_class();
        if (level == kClasses) break;
        ActiveList& list = core_.active[level];
        QueuePair& qp = *list.head;
        const uint32_t turn = list.rest != 0 ? list.rest : core_.config.quantum_packets;
        const uint32_t allowed = std::min(turn, budget - packets);
        list.pop();
        qp.active = false;
        core_.refused = false;
        core_.turn = &qp;
        uint32_t sent = 0;
        qp.visit([&](auto& protocol) { sent = transmit(qp, protocol, allowed); });
        core_.turn = nullptr;
        packets += sent;
        charge_classes(level, sent);
        if (sent < allowed && !core_.refused) continue;
        if (core_.refused && sent == 0) {
            // Its path takes nothing. Others may, so it is out of the way until they have had their turns.
            if (!qp.active) blocked_[parked_count_++] = &qp;
            if (++refusals == kMaxParked) break;
            continue;
        }
        // There may be more. A QP that was cut short by the budget or a full sink goes on with its turn: behind
        // thousands of others the rest of its message, and with it the request for an ACK, would come after its
        // timeout. In mp each packet is acknowledged. (The QP may have activated itself meanwhile.)
        if (sent < turn && qp.mp() == nullptr && !qp.active) {
            list.resume(qp, turn - sent);
        } else {
            core_.activate(qp);
        }
    }
    reactivate_blocked();
    return packets;
}

template <class S>
void Engine<S>::reactivate_blocked() {
    for (uint32_t i = 0; i < parked_count_; ++i) core_.activate(*blocked_[i]);
    parked_count_ = 0;
}

// The class whose turn is next: the highest, but a lower one after so many packets of higher ones that it would have
// less than its share (README). Without that, a class that fills the port would keep lower ones from acknowledging what
// they receive, and their peers would give them up. kClasses: none has anything to send.
template <class S>
uint32_t Engine<S>::next_class() {
    uint32_t level = kClasses;
    for (uint32_t c = kClasses; c-- != 0;) {
        if (core_.active[c].head == nullptr) {
            core_.class_deficit[c] = 0;
            continue;
        }
        level = c;
        if (core_.class_deficit[c] >= (kMinShare - 1) * core_.config.quantum_packets) return c;
    }
    return level;
}

// `sent` packets of class `level` left.
template <class S>
void Engine<S>::charge_classes(uint32_t level, uint32_t sent) {
    uint32_t& own = core_.class_deficit[level];
    own -= std::min(own, (kMinShare - 1) * sent);
    for (uint32_t c = level + 1; c != kClasses; ++c) core_.class_deficit[c] += sent;
}

template <class S>
void Engine<S>::expire(uint64_t now_ns) {
    core_.now_ns = now_ns;
    while (QueuePair* qp = core_.deadlines.pop(now_ns)) {
        core_.turn = qp;
        core_.in_timeout = true;
        qp->visit([&](auto& protocol) { expire(*qp, protocol); });
        core_.turn = nullptr;
        core_.in_timeout = false;
        core_.activate(*qp);  // its wait for the RNR timer or the pacer may be over
    }
}

template <class S>
template <std::derived_from<Rc> P>
void Engine<S>::expire(QueuePair& qp, P& rc) {
    if (qp.state == IBV_QPS_RTS || qp.state == IBV_QPS_SQD) RcRequesterLogic<S, P>(core_, qp, rc).expire();
}

template <class S>
void Engine<S>::expire(QueuePair& qp, Mp& mp) {
    if (qp.may_receive()) MpRequesterLogic<S>(core_, qp, mp).expire();
}

template <class S>
void Engine<S>::start_receiving(QueuePair& qp, uint32_t rq_psn, bool multipath) {
    const Psn psn(rq_psn);
    if (qp.type == IBV_QPT_UD) {
        qp.protocol.template emplace<Ud>();
    } else if (qp.type == IBV_QPT_UC) {
        qp.protocol.template emplace<Uc>().epsn = psn;
    } else if (qp.type != IBV_QPT_RC) {
        qp.protocol.template emplace<Xrc>().responder.epsn = psn;
    } else if (!multipath) {
        qp.protocol.template emplace<Rc>().responder.epsn = psn;
    } else {
        if (core_.multipath == nullptr) {
            core_.multipath = std::make_unique<MultipathShared>(core_.config.paths, core_.config.dcqcn,
                                                                core_.config.reorder, core_.config.seed);
        }
        Mp& mp = *qp.protocol.template emplace<std::unique_ptr<Mp>>(std::make_unique<Mp>());
        core_.multipath->reorder.start(mp.requests_in, psn);
        core_.multipath->paths.start(mp.responses, psn, qp.path.flow.udp_src);
        mp.response_end = psn;
        const ReorderConfig& reorder = core_.config.reorder;
        mp.held.make_room(reorder.kind == ReorderConfig::Kind::kEunomia ? reorder.cap_slots : reorder.static_slots);
        mp.held.peer = MultipathShared::peer_of(qp.path.flow.dst);
    }
    qp.make_room();
}

template <class S>
void Engine<S>::start_sending(QueuePair& qp, uint32_t sq_psn) {
    qp.make_room();
    qp.visit([&](auto& protocol) { start_sending(qp, protocol, Psn(sq_psn)); });
}

template <class S>
void Engine<S>::start_sending(QueuePair& qp, Rc& rc, Psn psn) {
    RcRequester& r = rc.requester;
    r.next_psn = r.max_psn = r.una = r.flight_end = psn;
    r.resumed_at = psn.previous();  // nowhere yet
    r.window_packets = core_.config.window_packets;
    r.retry.retries_left = qp.retry_cnt;
    r.retry.rnr_retries_left = qp.rnr_retry;
}

template <class S>
void Engine<S>::start_sending(QueuePair& qp, Mp& mp, Psn psn) {
    core_.multipath->paths.start(mp.requests, psn, qp.path.flow.udp_src);
    core_.multipath->reorder.start(mp.responses_in, psn);
    mp.next_response = psn;
    mp.retry.retries_left = qp.retry_cnt;
    mp.retry.rnr_retries_left = qp.rnr_retry;
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
        qp.position = {};
        qp.slot.taken = false;
        qp.established = false;
        qp.requests_first = false;
        qp.hello.reset();
        qp.protocol.template emplace<std::monostate>();
        for (CompletionQueue* cq : {qp.send_cq, qp.recv_cq})
            if (cq != nullptr) cq->forget(qp.qpn);
    } else if (state == IBV_QPS_SQD && before == IBV_QPS_RTS) {
        core_.enter_drain(qp);
        if (Rc* const rc = qp.rc()) RcRequesterLogic<S, Rc>(core_, qp, *rc).ask_for_ack();
        if (Xrc* const xrc = qp.xrc()) RcRequesterLogic<S, Xrc>(core_, qp, *xrc).ask_for_ack();
    } else if (state == IBV_QPS_RTS) {
        qp.position.draining = false;
        core_.activate(qp);
    }
}

template <class S>
template <std::derived_from<Rc> P>
void Engine<S>::finish(QueuePair& qp, P& rc) {
    core_.abandon(rc);
    RcResponderLogic<S, P>(core_, qp, rc).flush_ack();
    if (rc.responder.msn != 0) core_.time_wait.insert(qp, core_.now_ns);
    if (qp.type == IBV_QPT_XRC_RECV) qp.leave_xrc_srq();
}

template <class S>
void Engine<S>::finish(QueuePair& qp, Mp& mp) {
    MpResponderLogic<S>(core_, qp, mp).flush_ack();
    core_.time_wait.insert(qp, core_.now_ns);
    MultipathShared& shared = *core_.multipath;
    shared.paths.stop(mp.requests);
    shared.paths.stop(mp.responses);
    shared.reorder.stop(mp.requests_in);
    shared.reorder.stop(mp.responses_in);
    shared.release_all(mp.held);
}

template <class S>
void Engine<S>::remove(QueuePair& qp) {
    qp.visit([&](auto& protocol) { finish(qp, protocol); });
    qp.protocol.template emplace<std::monostate>();
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

// Its other parts.
#include "transport/engine_receive-inl.h"
#include "transport/recover-inl.h"
