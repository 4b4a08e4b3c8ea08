/* SPDX-License-Identifier: Apache-2.0 */
/* Many connections at once: rdma_cm_many server ADDRESS PORT COUNT, and rdma_cm_many client ADDRESS PORT COUNT ROUNDS.
 * Each round makes COUNT connections, on each of which both ends send their number of it, which the other compares, and
 * then ends them all. Both ends print a JSON line a round: the seconds that connecting and disconnecting took, the
 * bytes that are resident with all of them, and by how many these have grown for each since the first; 16 are the
 * program's. */
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "rdma_cm.h"

enum { kUnderWay = 128 }; /* requests that the client has sent and that are not answered */
enum { kWaitMs = 30000 };

struct connection {
    struct rdma_cm_id* id;
    uint32_t sent, received;
};

static struct rdma_event_channel* channel;
static struct connection* connections;
static int count;
static struct ibv_pd* pd;
static struct ibv_cq* cq;
static struct ibv_mr* mr;

static long resident_bytes(void) {
    long pages = 0;
    FILE* const file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*s %ld", &pages) != 1) exit(fail("/proc/self/statm"));
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* The next event; NULL: none has come for too long. */
static struct rdma_cm_event* next_event(void) {
    struct pollfd file = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event* event = NULL;
    if (poll(&file, 1, kWaitMs) != 1)
        fprintf(stderr, "no event for %d ms\n", kWaitMs);
    else if (rdma_get_cm_event(channel, &event) != 0)
        perror("rdma_get_cm_event");
    return event;
}

/* Connection number `i` gets a QP, whose receive waits. */
static int make_qp(struct rdma_cm_id* id, int i) {
    struct connection* const c = &connections[i];
    if (pd == NULL) {
        pd = ibv_alloc_pd(id->verbs);
        cq = ibv_create_cq(id->verbs, 2 * count, NULL, NULL, 0);
        mr = ibv_reg_mr(pd, connections, (size_t)count * sizeof(*connections), IBV_ACCESS_LOCAL_WRITE);
        if (pd == NULL || cq == NULL || mr == NULL) return fail("verbs");
    }
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}, .send_cq = cq, .recv_cq = cq};
    if (rdma_create_qp(id, pd, &attr) != 0) return fail("rdma_create_qp");
    struct ibv_sge sge = {(uintptr_t)&c->received, sizeof(c->received), mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = (uint64_t)i, .sg_list = &sge, .num_sge = 1}, *bad;
    c->id = id;
    c->received = UINT32_MAX;
    return ibv_post_recv(id->qp, &wr, &bad) == 0 ? 0 : fail("ibv_post_recv");
}

static int send_number(int i) {
    struct connection* const c = &connections[i];
    c->sent = (uint32_t)i;
    struct ibv_sge sge = {(uintptr_t)&c->sent, sizeof(c->sent), mr->lkey};
    struct ibv_send_wr wr = {.wr_id = UINT64_MAX, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    return ibv_post_send(c->id->qp, &wr, &bad) == 0 ? 0 : fail("ibv_post_send");
}

/* Waits until each connection's number has arrived and every message is acknowledged. */
static int compare_numbers(void) {
    const double until = now_us() + kWaitMs * 1e3;
    for (int done = 0; done < 2 * count;) {
        struct ibv_wc wc;
        if (ibv_poll_cq(cq, 1, &wc) == 0) {
            if (now_us() > until) return fprintf(stderr, "%d of %d completions\n", done, 2 * count), 1;
            continue;
        }
        if (wc.status != IBV_WC_SUCCESS) return fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status)), 1;
        ++done;
        if (wc.wr_id == UINT64_MAX) continue;
        if (connections[wc.wr_id].received != wc.wr_id || connections[wc.wr_id].id->qp->qp_num != wc.qp_num)
            return fprintf(stderr, "connection %d got number %u\n", (int)wc.wr_id, connections[wc.wr_id].received), 1;
    }
    return 0;
}

static struct {
    double begun, connected, ending; /* us */
    long resident_with_one, resident;
} timing;

static void note_established(int established) {
    if (established == 1) timing.resident_with_one = resident_bytes();
    if (established == count) {
        timing.connected = now_us();
        timing.resident = resident_bytes();
    }
}

static void print_round(void) {
    printf(
        "{\"connections\": %d, \"connecting_s\": %.3f, \"disconnecting_s\": %.3f, \"resident_bytes\": %ld, "
        "\"bytes_each\": %ld}\n",
        count, (timing.connected - timing.begun) / 1e6, (now_us() - timing.ending) / 1e6, timing.resident,
        (timing.resident - timing.resident_with_one) / count);
    fflush(stdout);
}

static void destroy(struct rdma_cm_id* id) {
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
}

/* The client's number of a connection is the private data of its request. */
static int serve(struct sockaddr* address) {
    struct rdma_cm_id* listener;
    if (rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) != 0) return fail("rdma_create_id");
    if (rdma_bind_addr(listener, address) != 0) return fail("rdma_bind_addr");
    if (rdma_listen(listener, 0) != 0) return fail("rdma_listen");
    for (;;) {
        int established = 0, disconnected = 0;
        timing.begun = 0;
        while (disconnected < count) {
            struct rdma_cm_event* event;
            if (rdma_get_cm_event(channel, &event) != 0) return fail("rdma_get_cm_event");
            struct rdma_cm_id* const id = event->id;
            const enum rdma_cm_event_type type = event->event;
            int number = (int)(intptr_t)id->context;
            if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
                struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
                memcpy(&number, event->param.conn.private_data, sizeof(number));
                rdma_ack_cm_event(event);
                if (number < 0 || number >= count) return fprintf(stderr, "connection number %d\n", number), 1;
                if (timing.begun == 0) timing.begun = now_us();
                id->context = (void*)(intptr_t)number;
                if (make_qp(id, number) != 0) return 1;
                if (rdma_accept(id, &parameters) != 0) return fail("rdma_accept");
                continue;
            }
            rdma_ack_cm_event(event);
            if (type == RDMA_CM_EVENT_ESTABLISHED) {
                if (send_number(number) != 0) return 1;
                note_established(++established);
                if (established == count && compare_numbers() != 0) return 1;
            } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
                if (disconnected++ == 0) timing.ending = now_us();
                destroy(id);
            } else if (type != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
                return fprintf(stderr, "%s\n", rdma_event_str(type)), 1;
            }
        }
        print_round();
    }
}

/* Makes the next step of a connection after an event. Returns 0, 1 if it is established, or -1. */
static int go_on(struct rdma_cm_id* id, enum rdma_cm_event_type type) {
    const int number = (int)(intptr_t)id->context;
    struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
    parameters.private_data = &number;
    parameters.private_data_len = sizeof(number);
    switch (type) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            return rdma_resolve_route(id, 2000) == 0 ? 0 : -fail("rdma_resolve_route");
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
            if (make_qp(id, number) != 0) return -1;
            return rdma_connect(id, &parameters) == 0 ? 0 : -fail("rdma_connect");
        case RDMA_CM_EVENT_ESTABLISHED:
            return send_number(number) == 0 ? 1 : -1;
        default:
            fprintf(stderr, "connection %d: %s\n", number, rdma_event_str(type));
            return -1;
    }
}

static int connect_all(struct sockaddr* address) {
    for (int begun = 0, established = 0; established < count;) {
        while (begun < count && begun - established < kUnderWay) {
            struct rdma_cm_id* id;
            if (rdma_create_id(channel, &id, (void*)(intptr_t)begun++, RDMA_PS_TCP) != 0) return fail("rdma_create_id");
            if (rdma_resolve_addr(id, NULL, address, 2000) != 0) return fail("rdma_resolve_addr");
        }
        struct rdma_cm_event* const event = next_event();
        if (event == NULL) return 1;
        struct rdma_cm_id* const id = event->id;
        const enum rdma_cm_event_type type = event->event;
        rdma_ack_cm_event(event);
        const int done = go_on(id, type);
        if (done < 0) return 1;
        if (done != 0) note_established(++established);
    }
    return 0;
}

static int disconnect_all(void) {
    for (int i = 0; i < count; ++i)
        if (rdma_disconnect(connections[i].id) != 0) return fail("rdma_disconnect");
    for (int ended = 0; ended < count;) {
        struct rdma_cm_event* const event = next_event();
        if (event == NULL) return 1;
        struct rdma_cm_id* const id = event->id;
        const enum rdma_cm_event_type type = event->event;
        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_TIMEWAIT_EXIT) continue;
        if (type != RDMA_CM_EVENT_DISCONNECTED) return fprintf(stderr, "%s\n", rdma_event_str(type)), 1;
        destroy(id);
        ++ended;
    }
    return 0;
}

static int run_client(struct sockaddr* address, int rounds) {
    for (int round = 0; round < rounds; ++round) {
        timing.begun = now_us();
        if (connect_all(address) != 0) return 1;
        if (compare_numbers() != 0) return 1;
        timing.ending = now_us();
        if (disconnect_all() != 0) return 1;
        print_round();
    }
    return 0;
}

int main(int given, char** arguments) {
    if (given < 5) return 2;
    struct sockaddr_in address = address_of(arguments[2], arguments[3]);
    count = atoi(arguments[4]);
    connections = calloc((size_t)count, sizeof(*connections));
    channel = rdma_create_event_channel();
    if (connections == NULL || channel == NULL) return fail("rdma_create_event_channel");
    if (arguments[1][0] == 's') return serve((struct sockaddr*)&address);
    return run_client((struct sockaddr*)&address, given > 5 ? atoi(arguments[5]) : 1);
}
