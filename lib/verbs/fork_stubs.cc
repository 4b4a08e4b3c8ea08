// SPDX-License-Identifier: Apache-2.0
// See fork_stubs.h.
#include "verbs/fork_stubs.h"

#include <type_traits>

#include "verbs/objects.h"

namespace rove::verbs {

namespace {

template <class Result, class... Arguments>
Result fail_inherited(Arguments...) {
    if constexpr (std::is_pointer_v<Result>) return fail<std::remove_pointer_t<Result>>(ENODEV);
    if constexpr (std::is_same_v<Result, int>) return with_errno(ENODEV);
}

// Refuses a post, and reports its first request as the refused one.
template <class Object, class Request>
int refuse_post(Object*, Request* request, Request** refused) {
    *refused = request;
    return with_errno(ENODEV);
}

template <class Result, class... Arguments>
void disable(Result (*&operation)(Arguments...)) {
    if (operation != nullptr) operation = fail_inherited<Result, Arguments...>;
}

}  // namespace

int poll_inherited(ibv_cq*, int, ibv_wc*) {
    return 0;
}

void disable(Context& context) {
    disable(context.query_port);
    disable(context.advise_mr);
    disable(context.alloc_null_mr);
    disable(context.alloc_parent_domain);
    disable(context.alloc_td);
    disable(context.dealloc_td);
    disable(context.modify_cq);
    disable(context.query_rt_values);
    disable(context.create_cq_ex);
    disable(context.query_device_ex);
    disable(context.open_qp);
    disable(context.create_qp_ex);
    disable(context.get_srq_num);
    disable(context.create_srq_ex);
    disable(context.open_xrcd);
    disable(context.close_xrcd);
    ibv_context_ops& ops = context.context.ops;
    disable(ops.alloc_mw);
    disable(ops.bind_mw);
    disable(ops.dealloc_mw);
    disable(ops.req_notify_cq);
    ops.poll_cq = poll_inherited;
    ops.post_send = refuse_post;
    ops.post_recv = refuse_post;
    ops.post_srq_recv = refuse_post;
}

}  // namespace rove::verbs
