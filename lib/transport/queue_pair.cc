// SPDX-License-Identifier: Apache-2.0
#include "transport/queue_pair.h"

#include <algorithm>

namespace rove::transport {

uint32_t QueuePair::next_psn() const {
    if (const Rc* rc = rc_or_xrc(); rc != nullptr) return rc->requester.next_psn.value();
    if (const Mp* mp = this->mp(); mp != nullptr) return mp->requests.nxt.value();
    if (const Uc* uc = std::get_if<Uc>(&protocol); uc != nullptr) return uc->next_psn.value();
    if (const Ud* ud = std::get_if<Ud>(&protocol); ud != nullptr) return ud->next_psn.value();
    return 0;
}

uint32_t QueuePair::expected_psn() const {
    if (const Rc* rc = rc_or_xrc(); rc != nullptr) return rc->responder.epsn.value();
    if (const Mp* mp = this->mp(); mp != nullptr) return mp->requests_in.expected.value();
    if (const Uc* uc = std::get_if<Uc>(&protocol); uc != nullptr) return uc->epsn.value();
    return 0;
}

void QueuePair::make_room() {
    if (Rc* rc = rc_or_xrc(); rc != nullptr) rc->responder.make_room(max_dest_rd_atomic);
    if (Mp* mp = this->mp(); mp != nullptr) {
        mp->jobs.make_room(2 * max_dest_rd_atomic);
        mp->reads.make_room(max_rd_atomic);
    }
}

}  // namespace rove::transport
