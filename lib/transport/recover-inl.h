// SPDX-License-Identifier: Apache-2.0
// A program's memory may have gone when a worker reads or writes it: the driver's fault handler then leaves the engine
// from within a copy. Before the copy nothing has changed that doing the same once more would not change in the same
// way, but for what is put right here; and once more, the region's key is refused as one that never was. So every error
// is that of a wrong key: its status, NAK and event come from where those come from.
#pragma once

#include "transport/engine.h"

namespace rove::transport {

template <class S>
bool Engine<S>::recover_receive(const wire::ParsedFrame& frame, QueuePair* qp) {
    if (core_.released != nullptr) {  // the frame has had its effect, and an earlier one that waited for it not
        MpResponderLogic<S>(core_, *qp, *qp->mp()).recover(std::exchange(core_.released, nullptr));
        return false;
    }
    // Counted as received, and expected once more.
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
