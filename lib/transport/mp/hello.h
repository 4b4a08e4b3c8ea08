// SPDX-License-Identifier: Apache-2.0
// Negotiates mp between two QPs before either is in RTR. Each QP asks the other with HELLO, and the answer states what
// the other QP uses, or will use.
//
// DESIGN NOTES
// 1. Both ends must reach the same decision whatever packets are lost. The question therefore concerns a pair of QPs,
//    not hosts: a QP that has decided states its decision, and one that has not states what its configuration allows.
// 2. A standard endpoint silently drops HELLO, like any packet of a transport service other than its QP's. An end that
//    has waited long enough then chooses rc. If the peer was only slow, it asks later and learns this.
// 3. One case remains: an end says yes and then loses every answer to its own question. It remembers its promise.
// 4. A nonce ensures that only an end that has received the question can answer it. Only answers are believed, because
//    any host can send a question in another's name. A question is therefore answered with an answer, and in two cases
//    also with a question: if the QP has promised to use mp, and if it has already taken its peer for a standard
//    endpoint. An unconfirmed promise makes the QP wait longer for its peer's answer; it is no reason to use mp without
//    one.
// 5. A peer that last said it uses mp is no standard endpoint. If it is silent, a rail is dead or a process is stopped,
//    and a QP that chose rc would be stuck with rc afterwards. So the connection fails, and the application can try
//    again. Only time distinguishes such a peer from a standard endpoint that took over its address: after ten minutes
//    without an answer (PeerCapabilityCache::kForgetNs) the peer counts as unknown again.
// 6. A QP answers only peers with which it communicates, so its number reveals no more than a number that does not
// exist.
//    It does not answer in ERR, nor if its type is not RC, and from the first attempt to connect it to a peer it
//    answers only that peer. Before that it must answer everybody, also in RESET: programs exchange QP numbers and then
//    make all transitions at once, and the end that does so first asks a QP in RESET.
// 7. Every HELLO states what its sender can take as a receiver, and the time of a question comes back in its answer, so
//    that a QP knows both before its first packet. For the reason of note 4, only answers are believed.
#pragma once

#include <random>

#include "transport/core.h"
#include "transport/mp/peer_capability_cache.h"
#include "wire/frame.h"

namespace rove::transport {

// The shortest interval between answered questions. The peer repeats its question only after milliseconds.
inline constexpr uint64_t kHelloGapNs = 50'000;
// The shortest interval between questions to a peer whose own questions come too late.
inline constexpr uint64_t kAskBackNs = 1'000'000'000;

inline wire::Headers make_hello(uint32_t dest_qpn, const wire::Hello& hello) {
    wire::Headers h;
    h.bth.opcode = wire::kOpcodeHello;
    h.bth.dest_qpn = dest_qpn;
    h.hello = hello;
    return h;
}

// Returns the limits of our QPs as receivers, which HELLO states.
inline wire::ReceiveLimits own_limits(const Config& config) {
    const uint32_t packets = always_tracked_packets(config.reorder);
    return {.reorder_packets = static_cast<uint16_t>(std::min<uint32_t>(packets, UINT16_MAX)), .early_kib = 0};
}

// Returns the time as HELLO carries it, which is never 0.
inline uint32_t hello_tick(uint64_t now_ns) {
    const auto tick = static_cast<uint32_t>(now_ns);
    return tick != 0 ? tick : 1;
}

// Sends a question. `asked_ns` is the time of the first one with this nonce, or 0.
template <class S>
void send_hello_question(Core<S>& core, const QueuePair& qp, const Path& path, uint32_t remote_qpn, uint32_t nonce,
                         bool mp, uint64_t& asked_ns) {
    if (asked_ns == 0) asked_ns = std::max<uint64_t>(core.now_ns, 1);
    core.send(path,
              make_hello(remote_qpn, {.version = wire::kMpVersion,
                                      .answer = false,
                                      .mp = mp,
                                      .qpn = qp.qpn,
                                      .nonce = nonce,
                                      .limits = own_limits(core.config),
                                      .tick = hello_tick(core.now_ns)}),
              {}, 0);
}

// Asks the QP `remote_qpn` at the end of `path`. The answer, if any, goes to qp.hello.answer.
template <class S>
void ask_hello(Core<S>& core, QueuePair& qp, const Path& path, uint32_t remote_qpn, uint32_t nonce) {
    qp.hello.nonce = nonce;
    if (!core.ready(path)) return;
    send_hello_question(core, qp, path, remote_qpn, nonce, true, qp.hello.asked_ns);
}

// Returns the facts about the peer in a yes to our question. `before` has those of earlier answers, and `asked_ns` the
// time of the first question, which bounds the round trip whatever the peer echoes. The shortest round trip counts,
// because a peer may have been asleep.
inline HelloState::PeerCapacity learn_capacity(const wire::Hello& hello, const HelloState::PeerCapacity& before,
                                               uint64_t asked_ns, uint64_t now_ns) {
    HelloState::PeerCapacity learned{.limits = hello.limits, .round_trip_ns = before.round_trip_ns};
    const uint32_t round_trip_ns = hello_tick(now_ns) - hello.echo_tick;
    if (hello.echo_tick == 0 || asked_ns == 0 || round_trip_ns == 0 || round_trip_ns > now_ns - asked_ns)
        return learned;
    if (before.round_trip_ns == 0 || round_trip_ns < before.round_trip_ns) learned.round_trip_ns = round_trip_ns;
    return learned;
}

template <class S>
void receive_hello_answer(Core<S>& core, QueuePair& qp, const wire::Hello& hello, const HelloState::RemoteQp& from) {
    HelloState& state = qp.hello;
    const bool mp = hello.mp && hello.version == wire::kMpVersion;
    HelloState::PendingOffer* const promise = state.promised(from);
    if (promise != nullptr && promise->nonce != 0 && hello.nonce == promise->nonce) {
        if (!mp) return;
        promise->confirmed = true;
        promise->capacity = learn_capacity(hello, promise->capacity, promise->asked_ns, core.now_ns);
        if (state.has_peer && from == state.peer && state.answer == HelloState::Answer::kNone)
            state.peer_capacity = promise->capacity;
        return;
    }
    if (!state.has_peer || state.nonce == 0 || hello.nonce != state.nonce) {
        ++core.counters[Counter::kDropResponse];
        return;
    }
    if (state.decision == HelloState::Decision::kUndecided) {
        if (mp) state.peer_capacity = learn_capacity(hello, state.peer_capacity, state.asked_ns, core.now_ns);
        state.answer = mp ? HelloState::Answer::kYes : HelloState::Answer::kNo;
    } else if (state.decision == HelloState::Decision::kRc && state.peers != nullptr) {
        state.peers->record_answer(state.peer.gid,
                                   mp);  // too late for this QP; the next one asks again, or waits longer
    }
}

// Asks a peer that appears to be no standard endpoint (note 4). Any answer proves that it understands HELLO; it need
// not be yes, since this QP has already chosen rc. The question uses our own path to the peer, because the source of a
// frame can be forged.
template <class S>
void ask_back(Core<S>& core, QueuePair& qp) {
    HelloState& state = qp.hello;
    const bool connected = qp.may_receive();  // the QP has a path in these states
    if (!connected || state.nonce == 0 || !core.ready(qp.path)) return;
    if (state.asked_back_ns != 0 && core.now_ns - state.asked_back_ns < kAskBackNs) return;
    state.asked_back_ns = core.now_ns;
    send_hello_question(core, qp, qp.path, qp.remote_qpn, state.nonce, false, state.asked_ns);
}

template <class S>
void receive_hello(Core<S>& core, QueuePair& qp, const wire::ParsedFrame& frame) {
    const wire::Hello& hello = frame.headers.hello;
    HelloState& state = qp.hello;
    const ibv_qp_state now = qp.state;
    if (qp.type != IBV_QPT_RC || now == IBV_QPS_SQE || now == IBV_QPS_ERR) {
        ++core.counters[Counter::kDropQpState];
        return;
    }
    const HelloState::RemoteQp from{hello.qpn, frame.flow.src};
    const bool connected = qp.may_receive();
    const HelloState::RemoteQp peer = connected ? HelloState::RemoteQp{qp.remote_qpn, qp.path.flow.dst} : state.peer;
    if ((connected || state.has_peer) && from != peer) {
        ++core.counters[Counter::kDropSource];
        return;
    }
    ++core.counters[Counter::kRxPackets];
    if (hello.answer) return receive_hello_answer(core, qp, hello, from);

    if ((state.answered_ns != 0 && core.now_ns - state.answered_ns < kHelloGapNs) || !core.ready()) {
        ++core.counters[Counter::kDropOverload];  // the peer repeats its question
        return;
    }
    const bool mp = hello.mp && hello.version == wire::kMpVersion;
    const bool open = state.decision == HelloState::Decision::kUndecided && core.config.mode != Mode::kRc;
    const bool yes = mp && (open || state.decision == HelloState::Decision::kMp);
    HelloState::PendingOffer* const promise = yes && open ? state.promise(from, core.now_ns) : nullptr;
    if (yes && open && promise == nullptr) {
        ++core.counters[Counter::kDropOverload];
        return;
    }
    state.answered_ns = core.now_ns;
    Path back;
    back.flow = frame.flow;
    back.flow.traffic_class = static_cast<uint8_t>(back.flow.traffic_class & ~3u);
    std::swap(back.flow.src, back.flow.dst);
    std::swap(back.flow.src_mac, back.flow.dst_mac);
    back.headers = wire::make_template(back.flow);
    back.port = back.outlet = qp.port;
    core.send(back,
              make_hello(hello.qpn, {.version = wire::kMpVersion,
                                     .answer = true,
                                     .mp = yes,
                                     .qpn = qp.qpn,
                                     .nonce = hello.nonce,
                                     .limits = own_limits(core.config),
                                     .tick = hello_tick(core.now_ns),
                                     .echo_tick = hello.tick}),
              {}, 0);
    if (mp && state.decision == HelloState::Decision::kRc) ask_back(core, qp);
    // A QP that knows its peer asks questions itself.
    if (promise == nullptr || promise->confirmed || state.has_peer || !core.ready()) return;
    if (promise->nonce == 0) promise->nonce = std::random_device{}() | 1;
    send_hello_question(core, qp, back, hello.qpn, promise->nonce, true, promise->asked_ns);
}

}  // namespace rove::transport
