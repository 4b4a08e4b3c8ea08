// SPDX-License-Identifier: Apache-2.0
// Completion queues and completion channels, except for polling.
#include <algorithm>
#include <memory>
#include <new>

#include "verbs/channel_files.h"
#include "verbs/channel_wait.h"
#include "verbs/event_ack.h"
#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

namespace {

// Returns the size of a CQ as programs see it. The ring is rounded up, but no more than the device's limit is reported.
int told_entries(const transport::CompletionQueue& queue) {
    return std::min(static_cast<int>(queue.capacity()), kMaxCqe);
}

// Creates a CQ. Returns 0 or an errno value.
int make_cq(ibv_context* context, uint32_t entries, void* cq_context, ibv_comp_channel* channel, uint32_t vector,
            bool ignores_overrun, Cq** out) {
    if (entries == 0 || entries > static_cast<uint32_t>(kMaxCqe)) return EINVAL;
    if (vector >= static_cast<uint32_t>(context->num_comp_vectors)) return EINVAL;
    if (channel != nullptr && channel->context != context) return EINVAL;
    auto cq = std::unique_ptr<Cq>(new (std::nothrow) Cq{});
    if (cq == nullptr || !(cq->place = from(context).device->cqs.take())) return ENOMEM;
    cq->runtime = from(context).runtime;
    // Without a channel, arming the CQ has no effect.
    if (!cq->queue.init(entries, {.one_producer = cq->runtime->workers().size() == 1,
                                  .never_armed = channel == nullptr,
                                  .ignores_overrun = ignores_overrun})) {
        return ENOMEM;
    }
    cq->context = context;
    cq->channel = channel;
    cq->cq_context = cq_context;
    cq->cqe = told_entries(cq->queue);
    cq->queue.owner = cq.get();
    init_acks(*cq);
    set_poll_functions(*cq);
    retain(from(context));
    if (channel != nullptr) {
        from(channel).references.fetch_add(1);
        ++channel->refcnt;
    }
    *out = cq.release();
    return 0;
}

}  // namespace

ibv_comp_channel* create_comp_channel(ibv_context* context) {
    auto channel = std::unique_ptr<Channel>(new (std::nothrow) Channel{});
    if (channel == nullptr) return fail<ibv_comp_channel>(ENOMEM);
    if (channel->events.fd() < 0) return fail<ibv_comp_channel>(EMFILE);
    channel->context = context;
    channel->fd = channel->events.fd();
    channel_files::opened(channel->fd);
    retain(from(context));
    return channel.release();
}

int destroy_comp_channel(ibv_comp_channel* handle) {
    Channel& channel = from(handle);
    if (channel.references.load() != 0) return EBUSY;
    Context& context = from(channel.context);
    channel_files::closed(channel.fd);
    delete &channel;
    release(context);
    return 0;
}

ibv_cq* create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel, int vector) {
    if (entries < 0 || vector < 0) return fail<ibv_cq>(EINVAL);
    Cq* cq = nullptr;
    const int error = make_cq(context, static_cast<uint32_t>(entries), cq_context, channel,
                              static_cast<uint32_t>(vector), false, &cq);
    return error == 0 ? as_ibv(*cq) : fail<ibv_cq>(error);
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
    constexpr uint64_t kFields = IBV_CREATE_CQ_SUP_WC_FLAGS;
    // A single-threaded CQ merely does not need its lock.
    constexpr uint32_t kFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    constexpr uint32_t kKnown = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    const uint32_t flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr->flags : 0;
    if ((attr->comp_mask & ~kKnown) != 0 || (flags & ~kFlags) != 0 || (attr->wc_flags & ~kFields) != 0) {
        return fail<ibv_cq_ex>(EOPNOTSUPP);
    }
    ibv_pd* const parent = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 ? attr->parent_domain : nullptr;
    if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 &&
        (parent == nullptr || parent->context != context || &from(parent) == parent)) {
        return fail<ibv_cq_ex>(EINVAL);
    }
    Cq* cq = nullptr;
    const int error = make_cq(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector,
                              (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0, &cq);
    if (error != 0) return fail<ibv_cq_ex>(error);
    cq->parent_domain = parent;
    if (parent != nullptr) retain(parent);
    return cq;
}

int resize_cq(ibv_cq* handle, int entries) {
    Cq& cq = from(handle);
    if (entries <= 0 || entries > kMaxCqe) return EINVAL;
    cq.runtime->run_one_round();  // posted requests may wait for this round, and their completions count
    const std::lock_guard guard(cq.lock);
    const int error = cq.queue.resize(cq.runtime->grace_period(), static_cast<uint32_t>(entries));
    if (error != 0) return error;
    handle->cqe = told_entries(cq.queue);
    return 0;
}

int modify_cq(ibv_cq*, ibv_modify_cq_attr* attr) {
    // Moderation is accepted and has no effect: there is no interrupt to save, and an event that is not delayed breaks
    // no promise.
    return attr->attr_mask == IBV_CQ_ATTR_MODERATE ? 0 : EINVAL;
}

int destroy_cq(ibv_cq* handle) {
    Cq& cq = from(handle);
    if (cq.references.load() != 0) return EBUSY;
    Context& context = from(cq.context);
    if (cq.channel != nullptr) from(cq.channel).events.drop([&](const Cq* waiting) { return waiting == &cq; });
    context.async_events.drop([&](const ibv_async_event& event) {
        return event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == handle;
    });
    wait_acknowledged(cq, cq.comp_events_completed, cq.comp_events_delivered);
    wait_acknowledged(cq, cq.async_events_completed, cq.async_events_delivered);
    if (cq.channel != nullptr) {
        --cq.channel->refcnt;
        from(cq.channel).references.fetch_sub(1);
    }
    if (cq.parent_domain != nullptr) release(cq.parent_domain);
    delete &cq;
    release(context);
    return 0;
}

int get_cq_event(ibv_comp_channel* handle, ibv_cq** cq, void** cq_context) {
    Cq* ready = nullptr;
    if (const int error = wait_for_event(from(handle), &ready); error != 0) {
        errno = error;
        return -1;
    }
    *cq = as_ibv(*ready);
    *cq_context = ready->cq_context;
    return 0;
}

void ack_cq_events(ibv_cq* handle, unsigned count) {
    if (count != 0) acknowledge(*handle, handle->comp_events_completed, count);
}

int req_notify_cq(ibv_cq* handle, int solicited_only) {
    Cq& cq = from(handle);
    cq.queue.arm(solicited_only != 0);
    // The program is about to sleep. Where rove does not see that, completions must arrive without the help of its
    // threads.
    if (cq.channel != nullptr && !channel_files::is_seen(cq.channel->fd)) cq.runtime->hand_over();
    return 0;
}

}  // namespace rove::verbs
