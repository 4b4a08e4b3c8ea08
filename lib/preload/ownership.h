// SPDX-License-Identifier: Apache-2.0
// Tells rove's objects from the real library's.
#pragma once

#include <infiniband/verbs.h>

#include "verbs/fork_stubs.h"
#include "verbs/process_provider.h"
#include "verbs/verbs.h"

namespace rove::verbs {

// Every object names its context, and only rove's contexts poll with rove's functions.
inline bool is_ours(const ibv_context* context) {
    return context->ops.poll_cq == &poll_cq || context->ops.poll_cq == &poll_inherited;
}

inline bool is_ours(const ibv_device* device) {
    return provider().owns(device);
}

template <class Object>
bool is_ours(const Object* object) {
    return is_ours(object->context);
}

// Port events name no object. Acknowledging them has no effect in either library.
inline bool is_ours(const ibv_async_event* event) {
    switch (event->event_type) {
        case IBV_EVENT_CQ_ERR:
            return is_ours(event->element.cq);
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            return is_ours(event->element.srq);
        case IBV_EVENT_WQ_FATAL:
            return false;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            return is_ours(event->element.qp);
        default:
            return false;
    }
}

}  // namespace rove::verbs
