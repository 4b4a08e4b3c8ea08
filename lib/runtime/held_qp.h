// SPDX-License-Identifier: Apache-2.0
// Access to one queue pair from a thread that is not a worker.
#pragma once

#include <cstdint>

#include "runtime/runtime.h"
#include "runtime/worker.h"

namespace rove::datapath {

// Calls `look(QueuePair&, const transport::WorkerQuiesced&)` for the QP `qpn` while its worker, and no other, is
// stopped. Returns false if there is no such QP. Must not be called on a worker.
//
// The QP's worker is unknown until the QP is found, so the lookup is made while any one worker is stopped. A QP that is
// in the table then is not destroyed until that worker continues (transport/quiescence.h).
bool look_at_qp(Runtime& runtime, uint32_t qpn, auto&& look) {
    for (uint16_t index = 0;;) {
        const Worker::Hold hold(*runtime.workers()[index]);
        transport::QueuePair* const qp = runtime.queue_pairs().find(qpn);
        if (qp == nullptr) return false;
        if (qp->worker == index) return look(*qp, hold), true;
        index = qp->worker;
    }
}

}  // namespace rove::datapath
