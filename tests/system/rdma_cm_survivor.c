/* SPDX-License-Identifier: Apache-2.0 */
/* Reports what a program sees when its peer dies silently. rdma_cm_survivor server ADDRESS accepts one connection,
 * says "established", and when it reads a line from stdin (the peer is dead) sends a message and disconnects; its JSON
 * line has the send's status and the seconds until that, the event's status and the seconds until that came. If the
 * peer disconnects before, the line has only that event.
 * rdma_cm_survivor client ADDRESS [CALL] connects and does nothing, in a call that a handled signal would end: pause,
 * poll, select, nanosleep, ibv_poll_cq (again and again), or threads, which are two in poll. If the call returns,
 * the program prints a line and exits with 42. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static int fail(const char* what) {
    perror(what);
    return 1;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The next event, which must be `type`; its status goes to `status`. */
static struct rdma_cm_id* wait_for(struct rdma_event_channel* channel, enum rdma_cm_event_type type, int* status) {
    struct rdma_cm_event* event;
    if (rdma_get_cm_event(channel, &event) != 0) return NULL;
    struct rdma_cm_id* const id = event->event == type ? event->id : NULL;
    if (id == NULL) fprintf(stderr, "%s where %s should be\n", rdma_event_str(event->event), rdma_event_str(type));
    *status = event->status;
    rdma_ack_cm_event(event);
    return id;
}

static int make_qp(struct rdma_cm_id* id) {
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 8}, .sq_sig_all = 1};
    return rdma_create_qp(id, NULL, &attr);
}

static int serve(struct rdma_event_channel* channel, struct sockaddr* address) {
    struct rdma_cm_id *listener, *id;
    struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
    int status;
    if (rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) != 0) return fail("rdma_create_id");
    uint8_t timeout = 14; /* 67 ms for an ACK: 0.5 s until the last try has failed */
    if (rdma_set_option(listener, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)) != 0)
        return fail("rdma_set_option");
    if (rdma_bind_addr(listener, address) != 0 || rdma_listen(listener, 1) != 0) return fail("rdma_listen");
    if ((id = wait_for(channel, RDMA_CM_EVENT_CONNECT_REQUEST, &status)) == NULL) return 1;
    if (make_qp(id) != 0) return fail("rdma_create_qp");
    if (rdma_accept(id, &parameters) != 0) return fail("rdma_accept");
    if (wait_for(channel, RDMA_CM_EVENT_ESTABLISHED, &status) == NULL) return 1;
    puts("established");
    struct pollfd files[] = {{.fd = 0, .events = POLLIN}, {.fd = channel->fd, .events = POLLIN}};
    if (poll(files, 2, -1) < 1) return fail("poll");
    const double begun = now_s();
    if (files[1].revents != 0) {
        if (wait_for(channel, RDMA_CM_EVENT_DISCONNECTED, &status) != id) return 1;
        return printf("{\"event\": %d}\n", status) < 0;
    }
    char byte = 0;
    struct ibv_wc wc;
    if (rdma_post_send(id, NULL, &byte, 1, NULL, IBV_SEND_INLINE) != 0) return fail("rdma_post_send");
    if (rdma_get_send_comp(id, &wc) != 1) return fail("rdma_get_send_comp");
    const double failed = now_s();
    if (rdma_disconnect(id) != 0) return fail("rdma_disconnect");
    if (wait_for(channel, RDMA_CM_EVENT_DISCONNECTED, &status) != id) return 1;
    printf("{\"send\": \"%s\", \"send_s\": %.2f, \"event\": %d, \"event_s\": %.2f}\n", ibv_wc_status_str(wc.status),
           failed - begun, status, now_s() - failed);
    rdma_destroy_qp(id);
    return rdma_destroy_id(id) != 0 || rdma_destroy_id(listener) != 0;
}

static void* poll_nothing(void* unused) {
    int files[2];
    if (pipe(files) != 0) return unused;
    struct pollfd file = {.fd = files[0], .events = POLLIN};
    poll(&file, 1, -1);
    puts("went on");
    _exit(42);
}

static void wait_in(const char* call, struct rdma_cm_id* id) {
    const struct timespec long_time = {60, 0};
    struct ibv_wc wc;
    if (strcmp(call, "pause") == 0) pause();
    if (strcmp(call, "select") == 0) select(0, NULL, NULL, NULL, NULL);
    if (strcmp(call, "nanosleep") == 0) nanosleep(&long_time, NULL);
    if (strcmp(call, "ibv_poll_cq") == 0)
        for (;;) ibv_poll_cq(id->send_cq, 1, &wc);
    pthread_t other;
    if (strcmp(call, "threads") == 0) pthread_create(&other, NULL, poll_nothing, NULL);
    if (strcmp(call, "threads") == 0 || strcmp(call, "poll") == 0) poll_nothing(NULL);
}

static int connect_only(struct rdma_event_channel* channel, struct sockaddr* address, const char* call) {
    struct rdma_cm_id* id;
    struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
    int status;
    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) return fail("rdma_create_id");
    if (rdma_resolve_addr(id, NULL, address, 2000) != 0) return fail("rdma_resolve_addr");
    if (wait_for(channel, RDMA_CM_EVENT_ADDR_RESOLVED, &status) == NULL) return 1;
    if (rdma_resolve_route(id, 2000) != 0) return fail("rdma_resolve_route");
    if (wait_for(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, &status) == NULL) return 1;
    if (make_qp(id) != 0) return fail("rdma_create_qp");
    if (rdma_connect(id, &parameters) != 0) return fail("rdma_connect");
    if (wait_for(channel, RDMA_CM_EVENT_ESTABLISHED, &status) == NULL) return 1;
    wait_in(call, id);
    puts("went on");
    _exit(42);
}

int main(int count, char** arguments) {
    if (count != 3 && count != 4) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7600)};
    inet_pton(AF_INET, arguments[2], &address.sin_addr);
    struct rdma_event_channel* channel = rdma_create_event_channel();
    if (channel == NULL) return fail("rdma_create_event_channel");
    if (strcmp(arguments[1], "server") == 0) return serve(channel, (struct sockaddr*)&address);
    return connect_only(channel, (struct sockaddr*)&address, count == 4 ? arguments[3] : "pause");
}
