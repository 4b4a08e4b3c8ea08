// SPDX-License-Identifier: Apache-2.0
// ibv_post_recv and ibv_post_srq_recv.
#include <mutex>

#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

namespace {

// Copies a request. Returns 0 or EINVAL.
int fill(const ibv_recv_wr& wr, uint32_t max_sge, transport::RecvWqe& wqe) {
    if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > max_sge) return EINVAL;
    uint64_t length = 0;
    for (int i = 0; i < wr.num_sge; ++i) {
        wqe.sges()[i] = wr.sg_list[i];
        length += wr.sg_list[i].length;
    }
    if (length > UINT32_MAX) return EINVAL;
    wqe.wr_id = wr.wr_id;
    wqe.num_sge = static_cast<uint32_t>(wr.num_sge);
    wqe.length = static_cast<uint32_t>(length);
    return 0;
}

// Copies and publishes a list of requests. The caller holds ring.posting. Returns 0, EINVAL or ENOMEM.
[[gnu::always_inline]] inline int fill_list(transport::RecvQueue& ring, uint32_t max_sge, ibv_recv_wr* wr,
                                            ibv_recv_wr** bad_wr) {
    const uint32_t first = ring.produced();
    const uint32_t room = ring.room();
    uint32_t count = 0;
    int error = 0;
    for (; wr != nullptr; wr = wr->next) {
        error = count == room ? ENOMEM : fill(*wr, max_sge, ring.at(first + count));
        if (error != 0) {
            *bad_wr = wr;
            break;
        }
        ++count;
    }
    ring.publish(count);
    return error;
}

}  // namespace

int post_recv(ibv_qp* handle, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
    Qp& qp = from(handle);
    transport::QueuePair& t = qp.transport;
    if (t.state == IBV_QPS_RESET || t.srq != nullptr) {
        *bad_wr = wr;
        return EINVAL;
    }
    int error;
    bool failed;
    {
        std::lock_guard guard(t.rq.posting);
        error = fill_list(t.rq, t.max_recv_sge, wr, bad_wr);
        failed = t.state == IBV_QPS_ERR;
    }
    if (failed) {
        datapath::Worker& worker = qp.runtime->worker_of(t);
        datapath::Worker::Hold hold(worker);
        worker.flush(hold, t);
    }
    return error;
}

int post_srq_recv(ibv_srq* handle, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
    Srq& srq = from(handle);
    std::lock_guard guard(srq.queue.ring.posting);
    return fill_list(srq.queue.ring, srq.queue.max_sge, wr, bad_wr);
}

}  // namespace rove::verbs
