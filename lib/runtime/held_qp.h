// SPDX-License-Identifier: Apache-2.0
// Looking at one queue pair from a thread that is no worker.
#pragma once

#include <cstdint>

#include "runtime/runtime.h"
#include "runtime/worker.h"

namespace rove::datapath {

// Calls `look(QueuePair&, const transport::Held&)` for the QP `qpn` while its worker, and no other, stands still.
// Returns false if there is no such QP. Not on a worker.
//
// Until it is found its worker is not known, so it is looked up while some worker stands still: a QP that is in sight
// then is not destroyed before that worker goes on (transport/standstill.h).
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
