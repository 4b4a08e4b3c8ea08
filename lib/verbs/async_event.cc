// SPDX-License-Identifier: Apache-2.0
// Asynchronous events of a context: delivery and acknowledgement.
#include "verbs/event_ack.h"
#include "verbs/objects.h"
#include "verbs/verbs.h"

namespace rove::verbs {

int get_async_event(ibv_context* context, ibv_async_event* event) {
    const int error = from(context).async_events.pop(event, [](const ibv_async_event& delivered) {
        switch (delivered.event_type) {
            case IBV_EVENT_CQ_ERR:
                ++from(delivered.element.cq).async_events_delivered;
                break;
            case IBV_EVENT_SRQ_ERR:
            case IBV_EVENT_SRQ_LIMIT_REACHED:
                ++from(delivered.element.srq).events_delivered;
                break;
            case IBV_EVENT_PORT_ACTIVE:
            case IBV_EVENT_PORT_ERR:
            case IBV_EVENT_GID_CHANGE:
                break;
            default:  // all other events of rove concern QPs
                ++from(delivered.element.qp).events_delivered;
        }
        return 0;
    });
    if (error == 0) return 0;
    errno = error;
    return -1;
}

void ack_async_event(ibv_async_event* event) {
    switch (event->event_type) {
        case IBV_EVENT_CQ_ERR:
            acknowledge(*event->element.cq, event->element.cq->async_events_completed, 1);
            break;
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            acknowledge(*event->element.srq, event->element.srq->events_completed, 1);
            break;
        case IBV_EVENT_PORT_ACTIVE:
        case IBV_EVENT_PORT_ERR:
        case IBV_EVENT_GID_CHANGE:
            break;
        default:
            acknowledge(*event->element.qp, event->element.qp->events_completed, 1);
    }
}

}  // namespace rove::verbs
