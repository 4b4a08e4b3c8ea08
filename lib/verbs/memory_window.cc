// SPDX-License-Identifier: Apache-2.0
// Memory windows of type 2 (2B in IBTA's words: bound to a QP). Binding is a work request, see post_send.cc.
#include <algorithm>
#include <memory>
#include <mutex>
#include <new>

#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

ibv_mw* alloc_mw(ibv_pd* handle, ibv_mw_type type) {
    if (type != IBV_MW_TYPE_2) return fail<ibv_mw>(EOPNOTSUPP);
    Pd& pd = from(handle);
    auto mw = std::unique_ptr<Mw>(new (std::nothrow) Mw{});
    if (mw == nullptr) return fail<ibv_mw>(ENOMEM);
    mw->region.pd = &pd;
    mw->region.is_window = true;
    mw->region.valid = false;
    datapath::Runtime& runtime = *context_of(pd).runtime;
    {
        datapath::Runtime::Pause pause(runtime);
        if (!runtime.memory().insert(mw->region)) return fail<ibv_mw>(ENOMEM);
        pd.windows.push_back(mw.get());
    }
    mw->context = pd.context;
    mw->pd = handle;
    mw->rkey = mw->handle = mw->region.key;
    mw->type = type;
    retain(handle);
    return mw.release();
}

int dealloc_mw(ibv_mw* handle) {
    Mw& mw = from(handle);
    Pd& pd = from(mw.pd);
    datapath::Runtime& runtime = *from(mw.context).runtime;
    {
        datapath::Runtime::Pause pause(runtime);
        if (mw.region.valid) runtime.memory().invalidate(mw.region.key, *mw.region.window_qp);
        runtime.memory().remove(mw.region);
        std::erase(pd.windows, &mw);
    }
    release(mw.pd);
    delete &mw;
    return 0;
}

void unbind_windows(Qp& qp) {
    for (Mw* mw : from(qp.qp_base.pd).windows) {
        if (mw->region.valid && mw->region.window_qp == &qp.transport) {
            qp.runtime->memory().invalidate(mw->region.key, qp.transport);
        }
    }
}

}  // namespace rove::verbs
