// SPDX-License-Identifier: Apache-2.0
// How two QPs agree on mp, before either is in RTR: each asks the other, and is told what that one speaks or will speak.
//
// DESIGN NOTES
// 1. Both ends must come to the same, whatever is lost. So the question is about a pair of QPs and not about hosts: a QP
//    that has chosen says what it chose, and one that has not yet says what its configuration allows.
// 2. A standard endpoint drops HELLO in silence, as it does any packet of another transport service than its QP's. The
//    end that has waited long enough then takes rc; if the other was only slow, it asks later and is told so.
// 3. Left over is an end that said yes and then loses every answer to its own question. It remembers what it promised.
// 4. Nobody who cannot read the question can answer it: the nonce.
// 5. A peer whose last word was that it speaks mp, in an answer or a question of its own, is no standard endpoint. When it is
//    silent, a rail is dead or a process stands still, and a QP that took rc would have to keep it when that is over. So the
//    connection fails, and whoever wants it tries again. But only time tells such a peer from a standard endpoint that took its
//    address: after ten minutes without an answer (HelloPeers::kForgetNs) it is a stranger again.
#pragma once

#include "transport/core.h"
#include "transport/mp/hello_peers.h"
#include "wire/frame.h"

namespace rove::transport {

// Asks the QP `remote_qpn` at the end of `path`. The answer, if there is one, comes to qp.hello.answer.
template <class S>
void ask_hello(Core<S>& core, QueuePair& qp, const Path& path, uint32_t remote_qpn, uint32_t nonce) {
    if (!core.ready()) return;
    qp.hello.nonce = nonce;
    wire::Headers h;
    h.bth.opcode = wire::kOpcodeHello;
    h.bth.dest_qpn = remote_qpn;
    h.hello = {.version = wire::kMpVersion, .answer = false, .mp = true, .qpn = qp.qpn, .nonce = nonce};
    core.send(path, h, {}, 0);
}

template <class S>
void receive_hello(Core<S>& core, QueuePair& qp, const wire::ParsedFrame& frame) {
    const wire::Hello& hello = frame.headers.hello;
    const bool mp = hello.mp && hello.version == wire::kMpVersion;
    ++core.counters[Counter::kRxPackets];
    if (hello.answer) {
        if (qp.hello.nonce == 0 || hello.nonce != qp.hello.nonce) {
            ++core.counters[Counter::kDropResponse];
            return;
        }
        qp.hello.answer = mp ? HelloState::Answer::kYes : HelloState::Answer::kNo;
        return;
    }
    const bool open = qp.hello.choice == HelloState::Choice::kOpen && core.config.mode != Mode::kRc;
    const bool yes = mp && qp.type == IBV_QPT_RC && (open || qp.hello.choice == HelloState::Choice::kMp);
    if (yes && open) {
        qp.hello.promised_qpn = hello.qpn;
        qp.hello.promised = frame.flow.src;
    }
    // Too late for this QP: its peer was silent for too long. The next one will know.
    if (mp && qp.hello.choice == HelloState::Choice::kRc && qp.hello.peers != nullptr && hello.qpn == qp.remote_qpn &&
        wire::same(frame.flow.src, qp.path.flow.dst)) {
        qp.hello.peers->said(frame.flow.src, true);
    }
    const bool unicast = (frame.flow.dst_mac[0] & 1) == 0;
    if (!unicast || !core.ready()) return;  // it asks again
    Path back;
    back.flow = frame.flow;
    back.flow.traffic_class = static_cast<uint8_t>(back.flow.traffic_class & ~3u);
    std::swap(back.flow.src, back.flow.dst);
    std::swap(back.flow.src_mac, back.flow.dst_mac);
    back.headers = wire::make_template(back.flow);
    back.port = qp.port;
    wire::Headers h;
    h.bth.opcode = wire::kOpcodeHello;
    h.bth.dest_qpn = hello.qpn;
    h.hello = {.version = wire::kMpVersion, .answer = true, .mp = yes, .qpn = qp.qpn, .nonce = hello.nonce};
    core.send(back, h, {}, 0);
}

}  // namespace rove::transport
