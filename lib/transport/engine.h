// SPDX-License-Identifier: Apache-2.0
// The protocol of one worker: its QPs, and when they send which packets. It has no ports, threads, clocks or sockets:
// packets and the time are passed in, packets and completions leave through a sink. The worker in lib/runtime and the
// virtual network of the tests are its drivers.
//
// A driver
// 1. passes every parsed packet to receive(),
// 2. calls doorbell() for a QP to which work was posted,
// 3. calls expire() when next_deadline() has passed,
// 4. calls transmit() after any of these, and again whenever the sink has room, until it returns 0.
//
// Units: nanoseconds of the driver's monotonic clock, which may stop while no answer could arrive; bytes; packets.
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

// The calls that the engine makes to its driver. All come from within the engine's own functions, on the same thread.
template <class S>
concept Sink = requires(S sink, const Path& path, const wire::Headers& headers, std::span<const wire::Segment> payload,
                        CompletionQueue& cq, QueuePair& qp, SharedRecvQueue& srq, ibv_event_type event) {
    // Returns true if one more packet can be taken, on this path or on any, until the next packet. After false the QPs
    // of the path wait, or the engine stops, until the next transmit().
    { sink.ready(path) } -> std::same_as<bool>;
    { sink.ready() } -> std::same_as<bool>;
    // Takes a packet after ready() returned true. The payload is copied before the call returns.
    { sink.send(path, headers, payload) } -> std::same_as<void>;
    // Takes the packets of a burst (Core::send_burst()), as send() does each: they have one path and size, and the BTH
    // of `headers` except AckReq and PSN.
    { sink.series(path, headers, uint32_t{}).send(headers, static_cast<const void*>(nullptr)) } -> std::same_as<void>;
    // Reports a path whose requests have long been unanswered, or are repeated as if they had been. The neighbour may
    // have another MAC now and should be resolved again.
    { sink.suspect(path) } -> std::same_as<void>;
    // A CQ that was armed has a completion: its channel gets an event.
    { sink.notify(cq) } -> std::same_as<void>;
    // Reports asynchronous events, as ibv_get_async_event returns them.
    { sink.event(event, qp) } -> std::same_as<void>;
    { sink.event(event, cq) } -> std::same_as<void>;
    { sink.event(event, srq) } -> std::same_as<void>;
};

template <class S>
class Engine {
  public:
    // `worker` is its number among the workers that share the tables.
    Engine(const Config& config, QueuePairTable& qps, MemoryTable& memory, TimeWaitTable& time_wait, S& sink,
           uint16_t worker = 0)
        : core_{config, qps, memory, time_wait, sink, worker} {}

    // Receives a parsed packet for a QP of this engine, or for a multicast group with members here. `qp` is the result
    // of the table's find(), so that the driver can look up the QP's owner first; with null the packet is counted and
    // dropped. A frame that is not verified is verified first, or while its payload is copied. Returns false if its
    // ICRC is wrong.
    bool receive(wire::ParsedFrame& frame, QueuePair* qp, uint16_t port, uint64_t now_ns);

    // Receives the headers of a packet whose payload the network has trimmed (BX-10). Packets for QPs that are not in
    // mp mode are dropped.
    void receive_trimmed(const wire::ParsedFrame& frame, QueuePair* qp, uint16_t port, uint64_t now_ns);

    // Announces work in `qp`'s send queue. The QP may have been reset since.
    void doorbell(QueuePair& qp) {
        if (qp.state == IBV_QPS_ERR || qp.state == IBV_QPS_SQE) {
            flush(qp);
        } else if (qp.state != IBV_QPS_RESET) {
            core_.activate(qp);
        }
    }

    // Sends at most about `budget` packets. Returns the number handed to the sink; less than the budget means that
    // nothing more can be sent before the next event, or that the sink is full.
    uint32_t transmit(uint64_t now_ns, uint32_t budget);
    // Returns true if transmit() would find something to try.
    bool has_active() const { return core_.active[0].head || core_.active[1].head || core_.active[2].head; }

    // Runs the timers that have passed.
    void expire(uint64_t now_ns);
    uint64_t next_deadline() const { return core_.deadlines.earliest(); }

    // Sets by how much the driver's clock is behind one that never stops. Completion times are by that clock.
    void set_behind(uint64_t stall_offset_ns) { core_.stall_offset_ns = stall_offset_ns; }
    // Reports that the driver's clock stopped for `ns` although the peers could have answered, so that they were silent
    // for longer. Before the next expire() the driver passes on all packets that had arrived.
    void miss(uint64_t ns) {
        core_.missed_ns += ns;
        core_.deadlines.advance(ns);
    }
    // These follow a receive(), transmit() or expire() that a fault in the program's memory ended, whose region is no
    // longer valid (recover-inl.h). The call is then made again. Returns false if the frame is done.
    bool recover_receive(const wire::ParsedFrame& frame, QueuePair* qp);
    void recover_transmit();

    // Control calls; the driver ensures that none of the above runs meanwhile. Enters `state`; the attributes in `qp`
    // were set before, and start_receiving/start_sending called for RTR/RTS. ERR flushes. RESET empties all queues and
    // drops the QP's completions.
    void set_state(QueuePair& qp, ibv_qp_state state, uint64_t now_ns);
    // Sets the class: 0 HIGH, 1 MEDIUM, 2 LOW, also while the QP waits for its turn.
    void set_priority(QueuePair& qp, uint8_t priority) {
        if (qp.active) core_.active[qp.priority].remove(qp);
        qp.priority = priority;
        if (std::exchange(qp.active, false)) core_.activate(qp);
    }
    // Chooses the QP's protocol before RTR; for RC QPs, `multipath` selects mp. May allocate.
    void start_receiving(QueuePair& qp, uint32_t rq_psn, bool multipath = false);
    void start_sending(QueuePair& qp, uint32_t sq_psn);  // before RTS; reads the retry counts
    // Asks the peer of an RC QP whether it will speak mp, as this end would. The answer arrives in qp.hello.answer.
    void ask_multipath(QueuePair& qp, const Path& path, uint32_t remote_qpn, uint32_t nonce, uint64_t now_ns) {
        core_.now_ns = now_ns;
        ask_hello(core_, qp, path, remote_qpn, nonce);
    }
    // Sets the mode for RC QPs that are connected from now on.
    void set_mode(Mode mode) { core_.config.mode = mode; }
    // Removes the QP from all lists and timers. Its received PSNs are remembered (time_wait.h).
    void remove(QueuePair& qp);
    // Completes with FLUSH_ERR all requests posted to a QP in ERR (or, sends only, SQE).
    void flush(QueuePair& qp);

    const MultipathShared* multipath() const { return core_.multipath.get(); }
    const Counters& counters() const { return core_.counters; }
    Counters& counters() { return core_.counters; }
    const Config& config() const { return core_.config; }

  private:
    static constexpr uint32_t kClasses = 3;
    // The share of lower classes: at least one in this many packets is of a class that has something to send, for each
    // class below the highest.
    static constexpr uint32_t kMinShare = 8;

    static bool comes_from_peer(const wire::ParsedFrame& frame, const QueuePair& qp, uint16_t port);
    void receive_verified(const wire::ParsedFrame& frame, QueuePair* qp, uint16_t port);
    void receive_multicast(const wire::ParsedFrame& frame, uint16_t port);
    bool receive_in_time_wait(const wire::ParsedFrame& frame, uint16_t port);
    [[gnu::always_inline]] inline DirectPlacement receive_in_place(const wire::ParsedFrame& frame, QueuePair& qp);
    void receive_multipath_ack(const wire::ParsedFrame& frame, QueuePair& qp, Mp& mp);
    [[gnu::always_inline]] inline void note_received(const wire::ParsedFrame& frame, QueuePair& qp);
    [[gnu::noinline]] void notify_congestion(QueuePair& qp, Congestion& congestion, bool is_request);
    [[gnu::noinline]] void send_cnp(QueuePair& qp, Congestion& congestion);
    // The entry points of each protocol: a packet, a turn, a deadline, the end.
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
    uint32_t transmit(QueuePair& qp, P& rc, uint32_t budget);  // returns the packets sent
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
    void start_stream(QueuePair& qp, SendStream& stream, Psn psn) {
        Paths& paths = core_.multipath->paths;
        const HelloState::PeerCapacity& peer = qp.hello.peer_capacity;
        paths.start(stream, psn, qp.path.flow.udp_src, qp.path.peer_number());
        paths.prepare(stream, peer.limits.reorder_packets, peer.round_trip_ns);
    }
    static void start_sending(QueuePair&, Uc& uc, Psn psn) { uc.next_psn = psn; }
    static void start_sending(QueuePair&, Ud& ud, Psn psn) { ud.next_psn = psn; }
    template <std::derived_from<Rc> P>
    void finish(QueuePair& qp, P& rc);
    void finish(QueuePair& qp, Mp& mp);
    void finish(QueuePair&, Uc&) {}
    void finish(QueuePair&, Ud&) {}

    Core<S> core_;
    // The maximum of QPs set aside because their path takes no packet, while QPs of other paths have their turns. With
    // more of them, the others wait.
    static constexpr uint32_t kMaxParked = 1024;
    std::array<QueuePair*, kMaxParked> blocked_;
    uint32_t parked_count_ = 0;
};

// Requests and answers share the turn, and the side that found no room goes first the next time: behind the answers to
// a peer that reads all the time, our own requests would time out unsent.
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
    if (responder.has_acks() && core_.ready(qp.path)) packets += responder.send_acks();  // the ACK of a failed answer
    return packets;
}

// Uses the rest of a turn of which `packets` are sent, `requests` of them requests. Returns the packets sent.
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
            // The path takes no packet, but others may, so the QP is set aside until they have had their turns.
            if (!qp.active) blocked_[parked_count_++] = &qp;
            if (++refusals == kMaxParked) break;
            continue;
        }
        // There may be more to send. A QP that the budget or a full sink interrupted continues its turn: behind
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

// Returns the class whose turn is next: the highest, or a lower one that would otherwise get less than its share
// (docs/design/packet-out.md). Without that, a class that fills the port would keep lower ones from acknowledging
// received packets, and their peers would time out. Returns kClasses if no class has anything to send.
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

// Accounts for `sent` packets of class `level`.
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
            core_.multipath =
                std::make_unique<MultipathShared>(core_.config.paths, core_.config.dcqcn, core_.config.reorder,
                                                  core_.config.held_bytes, core_.config.seed);
        }
        Mp& mp = *qp.protocol.template emplace<std::unique_ptr<Mp>>(std::make_unique<Mp>());
        const uint8_t peer = MultipathShared::peer_of(qp.path.flow.dst);
        core_.multipath->reorder.start(mp.requests_in, psn, peer);
        start_stream(qp, mp.responses, psn);
        mp.response_end = psn;
        mp.held.of_a_packet = HeldPool::granules_for(qp.mtu);
        mp.held.peer = peer;
    }
    if (Congestion* const congestion = qp.congestion(); congestion != nullptr && qp.port_rate_bytes_per_s != 0)
        congestion->rate.set_port_rate(qp.port_rate_bytes_per_s);
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
    r.next_psn = r.max_psn = r.una = r.reduced_until = psn;
    r.resumed_at = psn.previous();  // not at any place yet
    r.window_packets = core_.config.adapts_window ? core_.initial_window(qp) : core_.config.window_packets;
    r.cwnd_fixed = r.window_packets << 16;
    r.retry.retries_left = qp.retry_cnt;
    r.retry.rnr_retries_left = qp.rnr_retry;
}

template <class S>
void Engine<S>::start_sending(QueuePair& qp, Mp& mp, Psn psn) {
    start_stream(qp, mp.requests, psn);
    core_.multipath->reorder.start(mp.responses_in, psn, mp.held.peer);
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

// The remaining parts of Engine.
#include "transport/engine_receive-inl.h"
#include "transport/recover-inl.h"
