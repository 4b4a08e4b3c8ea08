// SPDX-License-Identifier: Apache-2.0
// A program's memory may vanish while a worker reads or writes it; the driver's fault handler then leaves the engine
// from within a copy. Before the copy, all changes are such that the same step can be repeated, except for those undone
// here. On repetition the region's key is refused like an unknown one. Every error is therefore that of a wrong key,
// with its status, NAK and event.
#pragma once

#include "transport/engine.h"

namespace rove::transport {

template <class S>
bool Engine<S>::recover_receive(const wire::ParsedFrame& frame, QueuePair* qp) {
    if (core_.released != nullptr) {  // the frame has taken effect, and an early packet that waited for it has not
        MpResponderLogic<S>(core_, *qp, *qp->mp()).recover(std::exchange(core_.released, nullptr));
        return false;
    }
    // It was counted as received, and is expected once more.
    if (qp != nullptr && qp->type == IBV_QPT_UC)
        if (Uc* uc = std::get_if<Uc>(&qp->protocol)) uc->epsn = Psn(frame.headers.bth.psn);
    return true;
}

template <class S>
void Engine<S>::recover_transmit() {
    reactivate_blocked();
    QueuePair* const qp = std::exchange(core_.turn, nullptr);
    if (qp == nullptr) return;
    qp->visit([&](auto& protocol) { recover(*qp, protocol, core_.run != BurstKind::kNone ? core_.run_packets : 0); });
    core_.run = BurstKind::kNone;
    core_.in_timeout = false;
    core_.activate(*qp);
}

template <class S>
template <std::derived_from<Rc> P>
void Engine<S>::recover(QueuePair& qp, P& rc, uint32_t packets) {
    const uint32_t built = packets != 0 ? packets - 1 : 0;
    if (core_.run == BurstKind::kAnswers) RcResponderLogic<S, P>(core_, qp, rc).recover(built);
    RcRequesterLogic<S, P>(core_, qp, rc).recover(core_.run == BurstKind::kRequests ? built : 0);
}

template <class S>
void Engine<S>::recover(QueuePair& qp, Mp& mp, uint32_t packets) {
    MpRequesterLogic<S>(core_, qp, mp).recover(packets);
}

}  // namespace rove::transport
