// SPDX-License-Identifier: Apache-2.0
#include "transport/core.h"

namespace rove::transport {

void ActiveList::remove(QueuePair& qp) {
    QueuePair* previous = nullptr;
    for (QueuePair* at = head; at != nullptr; previous = at, at = at->next_active) {
        if (at != &qp) continue;
        (previous == nullptr ? head : previous->next_active) = qp.next_active;
        if (tail == &qp) tail = previous;
        if (previous == nullptr) rest = 0;
        return;
    }
}

}  // namespace rove::transport
