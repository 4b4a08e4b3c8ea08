// SPDX-License-Identifier: Apache-2.0
// Memory windows. Type 2 is IBTA's type 2B: a work request of ibv_post_send binds it to a QP. ibv_bind_mw binds a
// window of type 1 to its PD.
#include <memory>
#include <mutex>
#include <new>

#include "verbs/objects.h"
#include "verbs/send_request.h"
#include "verbs/verbs.h"

namespace rove::verbs {

ibv_mw* alloc_mw(ibv_pd* handle, ibv_mw_type type) {
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return fail<ibv_mw>(EINVAL);
    Pd& pd = from(handle);
    auto mw = std::unique_ptr<Mw>(new (std::nothrow) Mw(pd, type));
    if (mw == nullptr || !context_of(pd).runtime->memory().insert(mw->window)) return fail<ibv_mw>(ENOMEM);
    mw->context = pd.context;
    mw->pd = handle;
    mw->rkey = mw->handle = mw->window.key;
    mw->type = type;
    retain(handle);
    return mw.release();
}

int dealloc_mw(ibv_mw* handle) {
    Mw& mw = from(handle);
    from(mw.context).runtime->memory().remove(mw.window);
    release(mw.pd);
    delete &mw;
    return 0;
}

int bind_mw(ibv_qp* handle, ibv_mw* mw, ibv_mw_bind* bind) {
    Qp& qp = from(handle);
    transport::QueuePair& t = qp.transport;
    if (!qp.send_rules.takes_opcode(IBV_WR_BIND_MW)) return EINVAL;
    const uint32_t rkey = ibv_inc_rkey(mw->rkey);
    {
        const std::lock_guard guard(t.sq.posting);
        if (!may_post_send(t)) return EINVAL;
        if (t.sq.room() == 0) return ENOMEM;
        transport::SendWqe& wqe = t.sq.at(t.sq.produced());
        if (const int error = fill_bind(wqe, mw, IBV_MW_TYPE_1, rkey, bind->bind_info); error != 0) return error;
        wqe.wr_id = bind->wr_id;
        wqe.opcode = IBV_WR_BIND_MW;
        wqe.send_flags = effective_flags(t, bind->send_flags);
        wqe.num_sge = 0;
        wqe.length = 0;
        t.sq.publish(1);
    }
    mw->rkey = rkey;
    qp.runtime->post(t);
    return 0;
}

}  // namespace rove::verbs
