/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the rules in librdmacm's manual pages about errors, event channels and ids, in one process with a device that
 * connects to itself.
 * rdma_cm_check OWN_ADDRESS NEIGHBOUR_THAT_IS_NOT_THERE */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            printf("line %d: %s (errno %d %s)\n", __LINE__, #condition, errno, strerror(errno)); \
            ++failures;                                                                          \
        }                                                                                        \
    } while (0)
#define CHECK_ERRNO(call, expected) CHECK(((errno = 0), (call)) == -1 && errno == (expected))

static struct sockaddr_in at(const char* address, int port) {
    struct sockaddr_in made = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, address, &made.sin_addr);
    return made;
}
#define AT(address, port) ((struct sockaddr*)&(struct sockaddr_in[]){at(address, port)}[0])

/* The next event, which must be `type`, after at most 5 s; 0: another, or none. */
static struct rdma_cm_event* next(struct rdma_event_channel* channel, enum rdma_cm_event_type type, int line) {
    struct pollfd file = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event* event = NULL;
    if (poll(&file, 1, 5000) != 1 || rdma_get_cm_event(channel, &event) != 0) {
        printf("line %d: no event, where %s should be\n", line, rdma_event_str(type));
        ++failures;
        return NULL;
    }
    if (event->event == type) return event;
    printf("line %d: %s, status %d, where %s should be\n", line, rdma_event_str(event->event), event->status,
           rdma_event_str(type));
    ++failures;
    rdma_ack_cm_event(event);
    return NULL;
}
static int expect(struct rdma_event_channel* channel, enum rdma_cm_event_type type, int status, int line) {
    struct rdma_cm_event* event = next(channel, type, line);
    if (event == NULL) return 0;
    if (event->status != status) {
        printf("line %d: %s with status %d, not %d\n", line, rdma_event_str(type), event->status, status);
        ++failures;
    }
    rdma_ack_cm_event(event);
    return 1;
}
#define EXPECT(channel, type, status) expect(channel, RDMA_CM_EVENT_##type, status, __LINE__)

static int is_readable(struct rdma_event_channel* channel) {
    struct pollfd file = {.fd = channel->fd, .events = POLLIN};
    return poll(&file, 1, 0) == 1;
}

static struct rdma_cm_id* id_of(struct rdma_event_channel* channel, enum rdma_port_space space) {
    struct rdma_cm_id* id = NULL;
    CHECK(rdma_create_id(channel, &id, NULL, space) == 0);
    return id;
}

static struct rdma_cm_id* routed(struct rdma_event_channel* channel, const char* address, int port) {
    struct rdma_cm_id* id = id_of(channel, RDMA_PS_TCP);
    CHECK(rdma_resolve_addr(id, NULL, AT(address, port), 2000) == 0);
    EXPECT(channel, ADDR_RESOLVED, 0);
    CHECK(rdma_resolve_route(id, 2000) == 0);
    EXPECT(channel, ROUTE_RESOLVED, 0);
    return id;
}

static void make_qp(struct rdma_cm_id* id) {
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    CHECK(rdma_create_qp(id, NULL, &attr) == 0);
}

static void addresses(struct rdma_event_channel* channel, const char* own, const char* nobody) {
    struct rdma_cm_id *a = id_of(channel, RDMA_PS_TCP), *b = id_of(channel, RDMA_PS_TCP);
    CHECK_ERRNO(rdma_bind_addr(a, AT("192.0.2.77", 0)), EADDRNOTAVAIL);
    CHECK(rdma_bind_addr(a, AT(own, 7000)) == 0);
    CHECK(ntohs(rdma_get_src_port(a)) == 7000);
    CHECK_ERRNO(rdma_bind_addr(a, AT(own, 7001)), EINVAL);
    CHECK_ERRNO(rdma_bind_addr(b, AT(own, 7000)), EADDRINUSE);
    CHECK_ERRNO(rdma_bind_addr(b, AT("0.0.0.0", 7000)), EADDRINUSE);
    CHECK(rdma_bind_addr(b, AT(own, 0)) == 0);
    CHECK(ntohs(rdma_get_src_port(b)) >= 32768);
    CHECK_ERRNO(rdma_resolve_route(b, 100), EINVAL);
    CHECK(rdma_destroy_id(a) == 0);
    CHECK(rdma_destroy_id(b) == 0);

    a = id_of(channel, RDMA_PS_TCP);
    CHECK_ERRNO(rdma_resolve_addr(a, NULL, AT("203.0.113.9", 1), 100), ENODEV);
    CHECK(rdma_resolve_addr(a, NULL, AT(nobody, 1), 300) == 0);
    EXPECT(channel, ADDR_ERROR, -ETIMEDOUT);
    CHECK(rdma_destroy_id(a) == 0);
    /* One that is destroyed while it waits for its neighbour. */
    a = id_of(channel, RDMA_PS_TCP);
    CHECK(rdma_resolve_addr(a, NULL, AT(nobody, 1), 60000) == 0);
    CHECK(rdma_destroy_id(a) == 0);
}

static void channels(struct rdma_event_channel* channel, const char* own) {
    struct rdma_cm_event* event;
    CHECK(!is_readable(channel));
    CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK_ERRNO(rdma_get_cm_event(channel, &event), EAGAIN);
    struct rdma_cm_id* id = id_of(channel, RDMA_PS_TCP);
    CHECK(rdma_resolve_addr(id, NULL, AT(own, 1), 2000) == 0);
    CHECK(is_readable(channel));
    /* Its event goes with it. */
    struct rdma_event_channel* other = rdma_create_event_channel();
    CHECK(rdma_migrate_id(id, other) == 0);
    CHECK(!is_readable(channel));
    CHECK(is_readable(other));
    EXPECT(other, ADDR_RESOLVED, 0);
    CHECK(!is_readable(other));
    /* An event that was not fetched is freed with its id. */
    CHECK(rdma_resolve_route(id, 2000) == 0);
    CHECK(is_readable(other));
    CHECK(rdma_destroy_id(id) == 0);
    CHECK(!is_readable(other));
    rdma_destroy_event_channel(other);
    CHECK(fcntl(channel->fd, F_SETFL, 0) == 0);
}

static void refusals(struct rdma_event_channel* channel, const char* own) {
    struct rdma_cm_id* id = routed(channel, own, 7010);
    make_qp(id);
    char data[57] = {0};
    struct rdma_conn_param parameters = {.private_data = data, .private_data_len = sizeof(data), .retry_count = 7};
    CHECK_ERRNO(rdma_connect(id, &parameters), EINVAL);
    parameters.private_data_len = 56;
    CHECK(rdma_connect(id, &parameters) == 0);
    EXPECT(channel, REJECTED, 8); /* IBTA: invalid service id, since there is no listener */
    rdma_destroy_qp(id);
    CHECK(rdma_destroy_id(id) == 0);

    /* A listener is destroyed while a request waits unseen. */
    struct rdma_event_channel* serving = rdma_create_event_channel();
    struct rdma_cm_id* listener = id_of(serving, RDMA_PS_TCP);
    CHECK(rdma_bind_addr(listener, AT("0.0.0.0", 7011)) == 0);
    CHECK(rdma_listen(listener, 4) == 0);
    id = routed(channel, own, 7011);
    make_qp(id);
    CHECK(rdma_connect(id, &parameters) == 0);
    struct pollfd file = {.fd = serving->fd, .events = POLLIN};
    CHECK(poll(&file, 1, 5000) == 1);
    CHECK(rdma_destroy_id(listener) == 0);
    EXPECT(channel, REJECTED, 28);
    rdma_destroy_qp(id);
    CHECK(rdma_destroy_id(id) == 0);

    /* One that is refused, with a reason of its own. */
    listener = id_of(serving, RDMA_PS_TCP);
    CHECK(rdma_bind_addr(listener, AT(own, 7011)) == 0);
    CHECK(rdma_listen(listener, 4) == 0);
    id = routed(channel, own, 7011);
    make_qp(id);
    strcpy(data, "please");
    CHECK(rdma_connect(id, &parameters) == 0);
    struct rdma_cm_event* event = next(serving, RDMA_CM_EVENT_CONNECT_REQUEST, __LINE__);
    if (event != NULL) {
        struct rdma_cm_id* request = event->id;
        CHECK(event->listen_id == listener);
        CHECK(event->param.conn.private_data_len == 56);
        CHECK(strcmp(event->param.conn.private_data, "please") == 0);
        CHECK(rdma_reject(request, "never", 6) == 0);
        rdma_ack_cm_event(event);
        CHECK(rdma_destroy_id(request) == 0);
    }
    event = next(channel, RDMA_CM_EVENT_REJECTED, __LINE__);
    if (event != NULL) {
        CHECK(event->status == 28);
        CHECK(strcmp(event->param.conn.private_data, "never") == 0);
        rdma_ack_cm_event(event);
    }
    rdma_destroy_qp(id);
    CHECK(rdma_destroy_id(id) == 0);
    CHECK(rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(serving);
}

static void* serve(void* listener) {
    struct rdma_cm_id* id;
    char byte;
    if (rdma_get_request(listener, &id) != 0) return "rdma_get_request";
    struct ibv_mr* mr = rdma_reg_msgs(id, &byte, 1);
    if (mr == NULL || rdma_post_recv(id, NULL, &byte, 1, mr) != 0) return "rdma_post_recv";
    if (rdma_accept(id, NULL) != 0) return "rdma_accept";
    struct ibv_wc wc;
    if (rdma_get_recv_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS || byte != 'x') return "rdma_get_recv_comp";
    rdma_disconnect(id);
    rdma_dereg_mr(mr);
    rdma_destroy_ep(id);
    return NULL;
}

/* Synchronous ids, which migrate to a channel of their own on each accept. */
static void endpoints(const char* own) {
    struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP}, *found;
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 16}, .sq_sig_all = 1};
    struct ibv_qp_init_attr again = attr;
    struct rdma_cm_id *listener, *id;
    CHECK(rdma_getaddrinfo((char*)own, "7020", &hints, &found) == 0);
    CHECK(rdma_create_ep(&listener, found, NULL, &attr) == 0);
    rdma_freeaddrinfo(found);
    CHECK(rdma_listen(listener, 0) == 0);
    pthread_t server;
    pthread_create(&server, NULL, serve, listener);
    hints.ai_flags = RAI_NUMERICHOST;
    CHECK(rdma_getaddrinfo((char*)own, "7020", &hints, &found) == 0);
    CHECK(rdma_create_ep(&id, found, NULL, &again) == 0);
    rdma_freeaddrinfo(found);
    CHECK(rdma_connect(id, NULL) == 0);
    char byte = 'x';
    struct ibv_wc wc;
    CHECK(rdma_post_send(id, NULL, &byte, 1, NULL, IBV_SEND_INLINE) == 0);
    CHECK(rdma_get_send_comp(id, &wc) == 1);
    CHECK(rdma_disconnect(id) == 0);
    rdma_destroy_ep(id);
    void* failure;
    pthread_join(server, &failure);
    if (failure != NULL) printf("the server failed in %s\n", (const char*)failure), ++failures;
    rdma_destroy_ep(listener);
}

/* XRC: librdmacm opens a domain for itself; the server's private data names its SRQ. */
static void* serve_xrc(void* listener) {
    struct rdma_cm_id* id;
    char byte = 0;
    if (rdma_get_request(listener, &id) != 0) return "rdma_get_request";
    struct ibv_srq_init_attr srq = {.attr = {4, 1, 0}};
    struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_XRC_RECV};
    uint32_t number = 0;
    if (rdma_create_qp(id, NULL, &qp) != 0) return "rdma_create_qp";
    if (rdma_create_srq(id, NULL, &srq) != 0 || ibv_get_srq_num(id->srq, &number) != 0) return "rdma_create_srq";
    struct ibv_mr* mr = rdma_reg_msgs(id, &byte, 1);
    struct ibv_sge sge = {(uintptr_t)&byte, 1, mr != NULL ? mr->lkey : 0};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    if (mr == NULL || ibv_post_srq_recv(id->srq, &wr, &bad) != 0) return "ibv_post_srq_recv";
    struct rdma_conn_param parameters = {.private_data = &number, .private_data_len = sizeof(number)};
    if (rdma_accept(id, &parameters) != 0) return "rdma_accept";
    struct ibv_wc wc;
    while (ibv_poll_cq(id->recv_cq, 1, &wc) == 0) sched_yield();
    if (wc.status != IBV_WC_SUCCESS || byte != 'x') return "ibv_poll_cq";
    rdma_disconnect(id);
    rdma_dereg_mr(mr);
    rdma_destroy_ep(id);
    return NULL;
}

static void xrc(const char* own) {
    struct rdma_addrinfo *found,
        hints = {
            .ai_flags = RAI_PASSIVE | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_IB, .ai_qp_type = IBV_QPT_XRC_RECV};
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_XRC_SEND, .cap = {1, 0, 1, 0, 1}, .sq_sig_all = 1};
    struct rdma_cm_id *listener, *id;
    CHECK(rdma_getaddrinfo((char*)own, "7025", &hints, &found) == 0);
    CHECK(rdma_create_ep(&listener, found, NULL, NULL) == 0 && rdma_listen(listener, 0) == 0);
    rdma_freeaddrinfo(found);
    pthread_t server;
    pthread_create(&server, NULL, serve_xrc, listener);
    hints.ai_flags = RAI_NUMERICHOST;
    hints.ai_qp_type = IBV_QPT_XRC_SEND;
    CHECK(rdma_getaddrinfo((char*)own, "7025", &hints, &found) == 0);
    CHECK(rdma_create_ep(&id, found, NULL, &attr) == 0);
    rdma_freeaddrinfo(found);
    CHECK(rdma_connect(id, NULL) == 0);
    char byte = 'x';
    struct ibv_sge sge = {(uintptr_t)&byte, 1, 0};
    struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};
    memcpy(&wr.qp_type.xrc.remote_srqn, id->event->param.conn.private_data, sizeof(uint32_t));
    struct ibv_wc wc;
    CHECK(ibv_post_send(id->qp, &wr, &bad) == 0);
    CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(rdma_disconnect(id) == 0);
    rdma_destroy_ep(id);
    void* failure;
    pthread_join(server, &failure);
    if (failure != NULL) printf("the XRC server failed in %s\n", (const char*)failure), ++failures;
    rdma_destroy_ep(listener);
}

/* Checks calls that the hooks must not change, and the state of a forked child. */
static void descriptors(struct rdma_event_channel* channel) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], "abc", 3) == 3);
    char read_back[4] = {0};
    CHECK(read(ends[0], read_back, 3) == 3 && strcmp(read_back, "abc") == 0);
    CHECK(close(ends[0]) == 0);
    CHECK_ERRNO(close(ends[0]), EBADF);
    CHECK_ERRNO(write(ends[0], "abc", 3), EBADF);
    CHECK_ERRNO(write(-1, "abc", 3), EBADF);
    CHECK_ERRNO(write(1 << 30, "abc", 3), EBADF);
    signal(SIGPIPE, SIG_IGN);
    CHECK_ERRNO(write(ends[1], "abc", 3), EPIPE);
    errno = 77;
    CHECK(write(1, "", 0) == 0 && errno == 77);
    CHECK(close(ends[1]) == 0);
    CHECK_ERRNO(write(channel->fd, "abc", 3), EINVAL);

    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        struct rdma_cm_event* event;
        struct rdma_cm_id* id;
        int bad = 0;
        bad += rdma_get_cm_event(channel, &event) == 0 || errno != ENODEV;
        bad += rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0 || errno != ENODEV;
        /* The number may be another file's, then it is that. */
        bad += close(channel->fd) != 0;
        bad += pipe(ends) != 0 || (ends[0] != channel->fd && ends[1] != channel->fd && dup2(ends[1], channel->fd) < 0);
        bad += write(ends[1], "abc", 3) != 3;
        _exit(bad);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(!is_readable(channel));
}

int main(int count, char** arguments) {
    if (count != 3) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct rdma_event_channel* channel = rdma_create_event_channel();
    if (channel == NULL) return perror("rdma_create_event_channel"), 1;
    addresses(channel, arguments[1], arguments[2]);
    channels(channel, arguments[1]);
    refusals(channel, arguments[1]);
    endpoints(arguments[1]);
    xrc(arguments[1]);
    descriptors(channel);
    /* The channel stays open, as do an id and a listener: the process ends all the same. */
    struct rdma_cm_id* left = id_of(channel, RDMA_PS_TCP);
    CHECK(rdma_bind_addr(left, AT(arguments[1], 7030)) == 0 && rdma_listen(left, 1) == 0);
    printf("%d failures\n", failures);
    return failures != 0;
}
