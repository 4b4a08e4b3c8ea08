// SPDX-License-Identifier: Apache-2.0
// Shared receive queues.
#include <memory>
#include <mutex>
#include <new>

#include "verbs/event_ack.h"
#include "verbs/objects.h"
#include "verbs/verbs.h"
#include "verbs/xrc.h"

namespace rove::verbs {

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
    const ibv_srq_attr& wanted = attr->attr;
    if (wanted.max_wr == 0 || wanted.max_wr > transport::kMaxWorkRequests || wanted.max_sge > transport::kMaxSge) {
        return fail<ibv_srq>(EINVAL);
    }
    auto srq = std::unique_ptr<Srq>(new (std::nothrow) Srq{});
    if (srq == nullptr || !(srq->place = context_of(*pd).device->srqs.take()) ||
        !srq->queue.ring.init(wanted.max_wr, wanted.max_sge)) {
        return fail<ibv_srq>(ENOMEM);
    }
    srq->context = pd->context;
    srq->srq_context = attr->srq_context;
    srq->pd = pd;
    srq->max_wr = wanted.max_wr;
    srq->queue.max_sge = wanted.max_sge;
    srq->queue.pd = &from(pd);
    srq->queue.owner = srq.get();
    init_acks(*srq);
    retain(pd);
    return srq.release();
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
    constexpr uint32_t kXrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    const auto has = [&](uint32_t bits) { return (attr->comp_mask & bits) == bits; };
    if ((attr->comp_mask & ~(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | kXrc)) != 0)
        return fail<ibv_srq>(EOPNOTSUPP);
    const ibv_srq_type type = has(IBV_SRQ_INIT_ATTR_TYPE) ? attr->srq_type : IBV_SRQT_BASIC;
    if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC) return fail<ibv_srq>(EOPNOTSUPP);
    // librdmacm's rdma_create_srq() may pass a null PD.
    if (!has(IBV_SRQ_INIT_ATTR_PD) || attr->pd == nullptr || attr->pd->context != context) return fail<ibv_srq>(EINVAL);
    ibv_srq_init_attr basic{.srq_context = attr->srq_context, .attr = attr->attr};
    if (type == IBV_SRQT_BASIC) return create_srq(attr->pd, &basic);
    if (!has(kXrc) || attr->xrcd->context != context || attr->cq->context != context) return fail<ibv_srq>(EINVAL);
    ibv_srq* const made = create_srq(attr->pd, &basic);
    if (made == nullptr) return nullptr;
    Srq& srq = from(made);
    srq.queue.xrcd = from(attr->xrcd).domain.get();
    srq.queue.cq = &from(attr->cq).queue;
    if (!from(context).runtime->queue_pairs().insert_xrc_srq(srq.queue)) {
        destroy_srq(&srq);
        return fail<ibv_srq>(ENOMEM);
    }
    srq.xrcd = &from(attr->xrcd);
    srq.xrc_cq = &from(attr->cq);
    srq.xrcd->references.fetch_add(1);
    srq.xrc_cq->references.fetch_add(1);
    return &srq;
}

int get_srq_num(ibv_srq* handle, uint32_t* number) {
    if (from(handle).xrcd == nullptr) return EINVAL;
    *number = from(handle).queue.number;
    return 0;
}

int modify_srq(ibv_srq* handle, ibv_srq_attr* attr, int mask) {
    Srq& srq = from(handle);
    transport::SharedRecvQueue& queue = srq.queue;
    const bool resizes = (mask & IBV_SRQ_MAX_WR) != 0, arms = (mask & IBV_SRQ_LIMIT) != 0;
    if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
    std::lock_guard guard(srq.control);
    const uint32_t max_wr = resizes ? attr->max_wr : srq.max_wr;
    if (max_wr == 0 || max_wr > transport::kMaxWorkRequests) return EINVAL;
    if ((arms ? attr->srq_limit : queue.limit.load()) > max_wr) return EINVAL;

    bool is_low;
    {
        // No thread posts and no worker consumes a receive during this.
        std::lock_guard posting(queue.ring.posting);
        std::lock_guard taking(queue.taking);
        if (resizes) {
            if (const int error = queue.ring.resize(max_wr); error != 0) return error;
            srq.max_wr = max_wr;
        }
        // The event is raised once when fewer receives than the limit are left.
        is_low = arms && queue.ring.produced() - queue.ring.consumed() < attr->srq_limit;
        if (arms) queue.limit.store(is_low ? 0 : attr->srq_limit);
    }
    if (is_low) {
        from(srq.context).async_events.push({.element = {.srq = &srq}, .event_type = IBV_EVENT_SRQ_LIMIT_REACHED});
    }
    return 0;
}

int query_srq(ibv_srq* handle, ibv_srq_attr* attr) {
    Srq& srq = from(handle);
    std::lock_guard guard(srq.control);
    *attr = {.max_wr = srq.max_wr, .max_sge = srq.queue.max_sge, .srq_limit = srq.queue.limit.load()};
    return 0;
}

int destroy_srq(ibv_srq* handle) {
    Srq& srq = from(handle);
    if (srq.references.load() != 0) return EBUSY;
    if (srq.xrcd != nullptr) {
        datapath::Runtime& runtime = *from(srq.context).runtime;
        runtime.queue_pairs().remove_xrc_srq(srq.queue);
        runtime.grace_period().wait();
        while (const auto worker = transport::worker_of_members(srq.queue)) {
            const datapath::Worker::Hold hold(*runtime.workers()[*worker]);
            transport::dismiss_members(hold, srq.queue, *worker);
        }
        srq.xrcd->references.fetch_sub(1);
        srq.xrc_cq->references.fetch_sub(1);
    }
    from(srq.context).async_events.drop([&](const ibv_async_event& event) {
        return (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED || event.event_type == IBV_EVENT_SRQ_ERR) &&
               event.element.srq == handle;
    });
    wait_acknowledged(srq, srq.events_completed, srq.events_delivered);
    release(srq.pd);
    delete &srq;
    return 0;
}

}  // namespace rove::verbs
