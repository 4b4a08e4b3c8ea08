// SPDX-License-Identifier: Apache-2.0
// Enhanced connection establishment: options of a QP that two programs, or their connection managers, exchange before
// they connect. rove has one option: the QP may speak mp. A QP with the option still asks its peer
// (transport/mp/hello.h), because the option alone does not prove what the other end speaks. A QP without it does not
// ask, and neither does one whose mode the connection manager has negotiated (cm_negotiated_modes.h).
#include <mutex>

#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

namespace {

bool speaks_multipath(const Qp& qp) {
    return qp.transport.type == IBV_QPT_RC && qp.runtime->config().transport.mode != transport::Mode::kRc;
}

}  // namespace

int query_ece(ibv_qp* handle, ibv_ece* ece) {
    Qp& qp = from(handle);
    std::lock_guard guard(qp.control);
    *ece = {.vendor_id = kVendorId,
            .options = speaks_multipath(qp) && !qp.refuses_multipath ? kEceMultipath : 0,
            .comp_mask = 0};
    return 0;
}

int set_ece(ibv_qp* handle, ibv_ece* ece) {
    using Decision = transport::HelloState::Decision;
    Qp& qp = from(handle);
    transport::QueuePair& t = qp.transport;
    if (ece->comp_mask != 0 || ece->vendor_id != kVendorId) return EINVAL;
    std::lock_guard guard(qp.control);
    const datapath::Worker::Hold hold(qp.runtime->worker_of(t));
    // In later states its mode is decided.
    if (t.state != IBV_QPS_RESET && t.state != IBV_QPS_INIT) return EINVAL;
    const bool accepted = speaks_multipath(qp) && (ece->options & kEceMultipath) != 0;
    const bool must = speaks_multipath(qp) && (qp.runtime->config().transport.mode == transport::Mode::kMp ||
                                               t.hello.has_confirmed());  // a peer has asked, and the reply was yes
    if (must && !accepted) return EINVAL;
    qp.refuses_multipath = !accepted;
    t.hello.decision = accepted ? Decision::kUndecided : Decision::kRc;
    ece->options = accepted ? kEceMultipath : 0;
    return 0;
}

}  // namespace rove::verbs
