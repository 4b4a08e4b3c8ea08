// SPDX-License-Identifier: Apache-2.0
// How two QPs agree on mp, before either is in RTR: each asks the other, and is told what that one speaks or will
// speak.
//
// DESIGN NOTES
// 1. Both ends must come to the same, whatever is lost. So the question is about a pair of QPs and not about hosts: a
//    QP that has chosen says what it chose, and one that has not yet says what its configuration allows.
// 2. A standard endpoint drops HELLO in silence, as it does any packet of another transport service than its QP's. The
//    end that has waited long enough then takes rc; if the other was only slow, it asks later and is told so.
// 3. Left over is an end that said yes and then loses every answer to its own question. It remembers what it promised.
// 4. Nobody who cannot read the question can answer it: the nonce. And only answers are believed, since anybody can ask
//    in another's name. So a question is answered, and answered by a question: when the QP has promised to speak mp, or
//    when it is too late, as the QP has taken its peer for a standard endpoint. A promise that was not confirmed makes
//    the QP wait longer for its peer's answer, and is no reason to speak mp without one.
// 5. A peer whose last word was that it speaks mp is no standard endpoint. When it is silent, a rail is dead or a
//    process stands still, and a QP that took rc would have to keep it when that is over. So the connection fails, and
//    whoever wants it tries again. But only time tells such a peer from a standard endpoint that took its address:
//    after ten minutes without an answer (PeerCapabilityCache::kForgetNs) it is a stranger again.
// 6. Whom a QP does not speak to, it does not answer, and so its number is no better known than one that does not
//    exist: not in ERR, not if it is of another type than RC, and from the first attempt to connect it to a peer on
//    nobody but that peer. Before, it has to answer anybody, also in RESET: programs exchange QP numbers and then do
//    all transitions at once, and the end that does so first asks one in RESET.
#pragma once

#include <random>

#include "transport/core.h"
#include "transport/mp/peer_capability_cache.h"
#include "wire/frame.h"

namespace rove::transport {

// A question repeated sooner than this is not answered: the peer asks again after milliseconds.
inline constexpr uint64_t kHelloGapNs = 50'000;
// A peer whose questions come too late is asked at most so often.
inline constexpr uint64_t kAskBackNs = 1'000'000'000;

inline wire::Headers make_hello(uint32_t dest_qpn, const wire::Hello& hello) {
    wire::Headers h;
    h.bth.opcode = wire::kOpcodeHello;
    h.bth.dest_qpn = dest_qpn;
    h.hello = hello;
    return h;
}

// Asks the QP `remote_qpn` at the end of `path`. The answer, if there is one, comes to qp.hello.answer.
template <class S>
void ask_hello(Core<S>& core, QueuePair& qp, const Path& path, uint32_t remote_qpn, uint32_t nonce) {
    qp.hello.nonce = nonce;
    if (!core.ready(path)) return;
    core.send(path,
              make_hello(remote_qpn,
                         {.version = wire::kMpVersion, .answer = false, .mp = true, .qpn = qp.qpn, .nonce = nonce}),
              {}, 0);
}

template <class S>
void receive_hello_answer(Core<S>& core, QueuePair& qp, const wire::Hello& hello, const HelloState::RemoteQp& from) {
    HelloState& state = qp.hello;
    const bool mp = hello.mp && hello.version == wire::kMpVersion;
    HelloState::PendingOffer* const promise = state.promised(from);
    if (promise != nullptr && promise->nonce != 0 && hello.nonce == promise->nonce) {
        promise->confirmed |= mp;
        return;
    }
    if (!state.has_peer || state.nonce == 0 || hello.nonce != state.nonce) {
        ++core.counters[Counter::kDropResponse];
        return;
    }
    if (state.decision == HelloState::Decision::kUndecided) {
        state.answer = mp ? HelloState::Answer::kYes : HelloState::Answer::kNo;
    } else if (state.decision == HelloState::Decision::kRc && state.peers != nullptr) {
        state.peers->record_answer(state.peer.gid,
                                   mp);  // too late for this QP. The next one will ask again, or be patient
    }
}

// The QP's peer is no standard endpoint, or so it is said: note 4. It need not say yes, for us it is too late: any
// answer shows that it understands. On our own path to it, since the frame's source may be anybody's.
template <class S>
void ask_back(Core<S>& core, QueuePair& qp) {
    HelloState& state = qp.hello;
    const bool connected = qp.may_receive();  // and has a path
    if (!connected || state.nonce == 0 || !core.ready(qp.path)) return;
    if (state.asked_back_ns != 0 && core.now_ns - state.asked_back_ns < kAskBackNs) return;
    state.asked_back_ns = core.now_ns;
    core.send(
        qp.path,
        make_hello(qp.remote_qpn,
                   {.version = wire::kMpVersion, .answer = false, .mp = false, .qpn = qp.qpn, .nonce = state.nonce}),
        {}, 0);
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
        ++core.counters[Counter::kDropOverload];  // it asks again
        return;
    }
    const bool mp = hello.mp && hello.version == wire::kMpVersion;
    const bool open = state.decision == HelloState::Decision::kUndecided && core.config.mode != Mode::kRc;
    const bool yes = mp && (open || state.decision == HelloState::Decision::kMp);
    HelloState::PendingOffer* const promise = yes && open ? state.promise(from) : nullptr;
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
              make_hello(hello.qpn,
                         {.version = wire::kMpVersion, .answer = true, .mp = yes, .qpn = qp.qpn, .nonce = hello.nonce}),
              {}, 0);
    if (mp && state.decision == HelloState::Decision::kRc) ask_back(core, qp);
    // Once the QP knows its peer, it has a question of its own.
    if (promise == nullptr || promise->confirmed || state.has_peer || !core.ready()) return;
    if (promise->nonce == 0) promise->nonce = std::random_device{}() | 1;
    core.send(
        back,
        make_hello(hello.qpn,
                   {.version = wire::kMpVersion, .answer = false, .mp = true, .qpn = qp.qpn, .nonce = promise->nonce}),
        {}, 0);
}

}  // namespace rove::transport
