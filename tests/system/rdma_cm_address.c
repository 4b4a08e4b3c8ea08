/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a listener of all addresses says to which of them a request came.
   rdma_cm_address server PORT: prints "listening", then the local GID of the request's route.
   rdma_cm_address client PORT ADDRESS: connects, and is rejected. */
#include <string.h>

#include "rdma_cm.h"

static int wait_for(struct rdma_event_channel* channel, enum rdma_cm_event_type wanted, struct rdma_cm_id** id) {
    struct rdma_cm_event* event;
    if (rdma_get_cm_event(channel, &event) != 0) return fail("rdma_get_cm_event");
    const int is_wanted = event->event == wanted;
    if (!is_wanted) fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
    if (id != NULL) *id = event->id;
    rdma_ack_cm_event(event);
    return !is_wanted;
}

static int serve(struct rdma_event_channel* channel, struct rdma_cm_id* listener, const char* port) {
    struct sockaddr_in all = address_of("0.0.0.0", port);
    if (rdma_bind_addr(listener, (struct sockaddr*)&all) != 0 || rdma_listen(listener, 1) != 0) return fail("listen");
    puts("listening");
    fflush(stdout);
    struct rdma_cm_id* id;
    if (wait_for(channel, RDMA_CM_EVENT_CONNECT_REQUEST, &id) != 0) return 1;
    char text[INET6_ADDRSTRLEN];
    puts(inet_ntop(AF_INET6, &id->route.addr.addr.ibaddr.sgid, text, sizeof text));
    return rdma_reject(id, NULL, 0) != 0 ? fail("rdma_reject") : 0;
}

static int connect_to(struct rdma_event_channel* channel, struct rdma_cm_id* id, const char* port,
                      const char* address) {
    struct sockaddr_in to = address_of(address, port);
    if (rdma_resolve_addr(id, NULL, (struct sockaddr*)&to, 3000) != 0) return fail("rdma_resolve_addr");
    if (wait_for(channel, RDMA_CM_EVENT_ADDR_RESOLVED, NULL) != 0) return 1;
    if (rdma_resolve_route(id, 3000) != 0) return fail("rdma_resolve_route");
    if (wait_for(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL) != 0) return 1;
    struct rdma_conn_param parameters = {.qp_num = 77};
    if (rdma_connect(id, &parameters) != 0) return fail("rdma_connect");
    return wait_for(channel, RDMA_CM_EVENT_REJECTED, NULL);
}

int main(int argc, char** argv) {
    struct rdma_event_channel* channel = rdma_create_event_channel();
    struct rdma_cm_id* id;
    if (argc < 3 || channel == NULL || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0)
        return fail("rdma_create_id");
    return strcmp(argv[1], "server") == 0 ? serve(channel, id, argv[2]) : connect_to(channel, id, argv[2], argv[3]);
}
