/* SPDX-License-Identifier: Apache-2.0 */
/* Connections one after the other: rdma_cm_churn server ADDRESS PORT, and rdma_cm_churn client ADDRESS PORT COUNT,
 * which prints a JSON line: connections a second, from the first rdma_create_id to the last rdma_destroy_id, and the
 * median and 99th percentile of the time from rdma_connect to ESTABLISHED, in microseconds. */
#include "rdma_cm.h"

static int make_qp(struct rdma_cm_id* id, struct ibv_cq* cq) {
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}, .send_cq = cq, .recv_cq = cq};
    return rdma_create_qp(id, NULL, &attr);
}

/* Until it is stopped. An id goes when its peer has disconnected. */
static int serve(struct rdma_event_channel* channel, struct sockaddr* address) {
    struct rdma_cm_id* listener;
    struct rdma_cm_event* event;
    struct ibv_cq* cq = NULL;
    if (rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) != 0) return fail("rdma_create_id");
    if (rdma_bind_addr(listener, address) != 0) return fail("rdma_bind_addr");
    if (rdma_listen(listener, 0) != 0) return fail("rdma_listen");
    while (rdma_get_cm_event(channel, &event) == 0) {
        struct rdma_cm_id* id = event->id;
        const enum rdma_cm_event_type type = event->event;
        struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            if (cq == NULL) cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
            if (make_qp(id, cq) != 0) return fail("rdma_create_qp");
            if (rdma_accept(id, &parameters) != 0) return fail("rdma_accept");
        } else if (type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_UNREACHABLE) {
            rdma_destroy_qp(id);
            rdma_destroy_id(id);
        }
    }
    return fail("rdma_get_cm_event");
}

static int wait_for(struct rdma_event_channel* channel, enum rdma_cm_event_type type) {
    struct rdma_cm_event* event;
    if (rdma_get_cm_event(channel, &event) != 0) return fail("rdma_get_cm_event");
    const enum rdma_cm_event_type came = event->event;
    const int status = event->status;
    rdma_ack_cm_event(event);
    if (came == type && status == 0) return 0;
    fprintf(stderr, "%s, status %d, where %s should be\n", rdma_event_str(came), status, rdma_event_str(type));
    return 1;
}

static int compare(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static int connect_often(struct rdma_event_channel* channel, struct sockaddr* address, int count) {
    double* const took = calloc((size_t)count, sizeof(double));
    struct ibv_cq* cq = NULL;
    const double begun = now_us();
    for (int i = 0; i < count; ++i) {
        struct rdma_cm_id* id;
        struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
        if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) return fail("rdma_create_id");
        if (rdma_resolve_addr(id, NULL, address, 2000) != 0) return fail("rdma_resolve_addr");
        if (wait_for(channel, RDMA_CM_EVENT_ADDR_RESOLVED) != 0) return 1;
        if (rdma_resolve_route(id, 2000) != 0) return fail("rdma_resolve_route");
        if (wait_for(channel, RDMA_CM_EVENT_ROUTE_RESOLVED) != 0) return 1;
        if (cq == NULL) cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
        if (make_qp(id, cq) != 0) return fail("rdma_create_qp");
        const double asked = now_us();
        if (rdma_connect(id, &parameters) != 0) return fail("rdma_connect");
        if (wait_for(channel, RDMA_CM_EVENT_ESTABLISHED) != 0) return 1;
        took[i] = now_us() - asked;
        if (rdma_disconnect(id) != 0) return fail("rdma_disconnect");
        if (wait_for(channel, RDMA_CM_EVENT_DISCONNECTED) != 0) return 1;
        rdma_destroy_qp(id);
        if (rdma_destroy_id(id) != 0) return fail("rdma_destroy_id");
    }
    const double per_second = count / (now_us() - begun) * 1e6;
    qsort(took, (size_t)count, sizeof(double), compare);
    printf("{\"connections\": %d, \"per_second\": %.0f, \"median_us\": %.0f, \"p99_us\": %.0f}\n", count, per_second,
           took[count / 2], took[(size_t)count * 99 / 100]);
    return 0;
}

int main(int count, char** arguments) {
    if (count < 4) return 2;
    struct sockaddr_in address = address_of(arguments[2], arguments[3]);
    struct rdma_event_channel* channel = rdma_create_event_channel();
    if (channel == NULL) return fail("rdma_create_event_channel");
    if (arguments[1][0] == 's') return serve(channel, (struct sockaddr*)&address);
    return connect_often(channel, (struct sockaddr*)&address, count > 4 ? atoi(arguments[4]) : 100);
}
