// SPDX-License-Identifier: Apache-2.0
#include "transport/queue_pair.h"

#include <algorithm>
#include <mutex>

#include "transport/mp/peer_capability_cache.h"

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

void QueuePair::join_xrc_srq(SharedRecvQueue& next) {
    if (srq != nullptr) leave_xrc_srq();
    srq = &next;
    pd = recv_pd = next.pd;
    recv_cq = next.cq;
    const std::lock_guard guard(next.members_lock);
    previous_member = nullptr;
    next_member = next.members;
    if (next_member != nullptr) next_member->previous_member = this;
    next.members = this;
}

void QueuePair::leave_xrc_srq() {
    if (srq == nullptr) return;
    const std::lock_guard guard(srq->members_lock);
    unlink_from_xrc_srq();
}

// The caller holds the lock of the SRQ's members.
void QueuePair::unlink_from_xrc_srq() {
    (previous_member != nullptr ? previous_member->next_member : srq->members) = next_member;
    if (next_member != nullptr) next_member->previous_member = previous_member;
    slot.taken = false;
    srq = nullptr;
    pd = recv_pd = nullptr;
    recv_cq = nullptr;
}

std::optional<uint16_t> worker_of_members(SharedRecvQueue& srq) {
    const std::lock_guard guard(srq.members_lock);  // its QPs stay
    return srq.members != nullptr ? std::optional(srq.members->worker) : std::nullopt;
}

void dismiss_members(const WorkerQuiesced&, SharedRecvQueue& srq, uint16_t worker) {
    const std::lock_guard guard(srq.members_lock);
    for (QueuePair *qp = srq.members, *next = nullptr; qp != nullptr; qp = next) {
        next = qp->next_member;
        if (qp->worker == worker) qp->unlink_from_xrc_srq();
    }
}

void QueuePair::make_room() {
    if (Rc* rc = rc_or_xrc(); rc != nullptr) rc->responder.make_room(max_dest_rd_atomic);
    if (Mp* mp = this->mp(); mp != nullptr) {
        mp->jobs.make_room(2 * max_dest_rd_atomic);
        mp->reads.make_room(max_rd_atomic);
    }
}

HelloState::PendingOffer* HelloState::promise(const RemoteQp& party, uint64_t now_ns) {
    if (PendingOffer* const earlier = promised(party)) return earlier;
    PendingOffer* place = nullptr;
    if (promise_count < kPromises) {
        place = &promises[promise_count++];
    } else if (has_peer && party == peer) {
        place = &promises[0];
    } else if (peers != nullptr && peers->speaks_mp(party.gid, now_ns) == true) {
        place = &promises[kPromises];
        if (promise_count > kPromises && place->confirmed) return nullptr;
        promise_count = kPlaces;
    } else {
        return nullptr;
    }
    *place = {.party = party};
    return place;
}

}  // namespace rove::transport
