/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
/* rdma_cm's kernel interface itself: what the kernel answers to commands that no librdmacm would write.
 * rdma_cm_commands OWN_ADDRESS */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_user_cm.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

#define EXPECT(call, expected)                                                                       \
    do {                                                                                             \
        const int got = (call), wanted = (expected);                                                 \
        if (got != wanted) {                                                                         \
            printf("line %d: %s is %s, not %s\n", __LINE__, #call, strerror(got), strerror(wanted)); \
            ++failures;                                                                              \
        }                                                                                            \
    } while (0)
#define CHECK(condition) EXPECT(!(condition), 0)

#define NONE SIZE_MAX
/* Where each command has its id and the address for its answer. */
static const struct command {
    unsigned number;
    size_t bytes, id, response;
} commands[] = {
#define COMMAND(name, type, id, response) \
    { RDMA_USER_CM_CMD_##name, sizeof(struct rdma_ucm_##type), id, response }
#define AT(type, member) offsetof(struct rdma_ucm_##type, member)
    COMMAND(CREATE_ID, create_id, NONE, AT(create_id, response)),
    COMMAND(DESTROY_ID, destroy_id, AT(destroy_id, id), AT(destroy_id, response)),
    COMMAND(BIND_IP, bind_ip, AT(bind_ip, id), NONE),
    COMMAND(RESOLVE_IP, resolve_ip, AT(resolve_ip, id), NONE),
    COMMAND(RESOLVE_ROUTE, resolve_route, AT(resolve_route, id), NONE),
    COMMAND(QUERY_ROUTE, query, AT(query, id), AT(query, response)),
    COMMAND(CONNECT, connect, AT(connect, id), NONE),
    COMMAND(LISTEN, listen, AT(listen, id), NONE),
    COMMAND(ACCEPT, accept, AT(accept, id), NONE),
    COMMAND(REJECT, reject, AT(reject, id), NONE),
    COMMAND(DISCONNECT, disconnect, AT(disconnect, id), NONE),
    COMMAND(INIT_QP_ATTR, init_qp_attr, AT(init_qp_attr, id), AT(init_qp_attr, response)),
    COMMAND(GET_EVENT, get_event, NONE, AT(get_event, response)),
    COMMAND(SET_OPTION, set_option, AT(set_option, id), NONE),
    COMMAND(NOTIFY, notify, AT(notify, id), NONE),
    COMMAND(JOIN_IP_MCAST, join_ip_mcast, AT(join_ip_mcast, id), AT(join_ip_mcast, response)),
    COMMAND(LEAVE_MCAST, destroy_id, AT(destroy_id, id), AT(destroy_id, response)),
    COMMAND(MIGRATE_ID, migrate_id, AT(migrate_id, id), AT(migrate_id, response)),
    COMMAND(QUERY, query, AT(query, id), AT(query, response)),
    COMMAND(BIND, bind, AT(bind, id), NONE),
    COMMAND(RESOLVE_ADDR, resolve_addr, AT(resolve_addr, id), NONE),
    COMMAND(JOIN_MCAST, join_mcast, AT(join_mcast, id), AT(join_mcast, response)),
};
#define COUNT (sizeof(commands) / sizeof(*commands))

/* 0 or errno. */
__attribute__((noinline)) static int write_to(int fd, const void* data, size_t bytes) {
    const ssize_t written = write(fd, data, bytes);
    if (written >= 0 && (size_t)written != bytes) return ERANGE;
    return written < 0 ? errno : 0;
}

static int run(int fd, unsigned number, const void* in, size_t in_bytes, size_t out_bytes) {
    struct {
        struct rdma_ucm_cmd_hdr header;
        char in[1024];
    } message = {.header = {number, (uint16_t)in_bytes, (uint16_t)out_bytes}};
    memcpy(message.in, in, in_bytes);
    return write_to(fd, &message, sizeof(message.header) + in_bytes);
}
#define RUN(fd, name, out_bytes, type, ...) \
    run(fd, RDMA_USER_CM_CMD_##name, &(struct rdma_ucm_##type){__VA_ARGS__}, sizeof(struct rdma_ucm_##type), out_bytes)

static char room[4096];
#define ROOM ((uintptr_t)room)

/* A command of zeros but for its id, its answer's address and the descriptor that MIGRATE_ID names. */
static int run_zeros(int fd, const struct command* command, unsigned id, uintptr_t response) {
    char in[1024] = {0};
    if (command->id != NONE) memcpy(in + command->id, &id, sizeof(id));
    if (command->response != NONE) memcpy(in + command->response, &response, sizeof(response));
    if (command->number == RDMA_USER_CM_CMD_MIGRATE_ID) ((struct rdma_ucm_migrate_id*)in)->fd = (unsigned)fd;
    return run(fd, command->number, in, command->bytes, sizeof(room));
}

static unsigned id_of(int fd, unsigned port_space) {
    struct rdma_ucm_create_id_resp answer = {0};
    const uintptr_t response = (uintptr_t)&answer;
    EXPECT(RUN(fd, CREATE_ID, sizeof(answer), create_id, .uid = 1, .response = response, .ps = port_space), 0);
    return answer.id;
}

static int destroy(int fd, unsigned id) {
    return RUN(fd, DESTROY_ID, sizeof(room), destroy_id, .response = ROOM, .id = id);
}

static int bind_to(int fd, unsigned id, struct in_addr own) {
    struct rdma_ucm_bind command = {.id = id, .addr_size = sizeof(struct sockaddr_in)};
    memcpy(&command.addr, &(struct sockaddr_in){.sin_family = AF_INET, .sin_addr = own}, sizeof(struct sockaddr_in));
    return run(fd, RDMA_USER_CM_CMD_BIND, &command, sizeof(command), 0);
}

static void bad_addresses(int fd, struct in_addr own) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char* const pages = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    CHECK(mprotect(pages + page, page, PROT_READ) == 0 && mprotect(pages + 2 * page, page, PROT_NONE) == 0);
    const uintptr_t read_only = (uintptr_t)pages + page, no_access = read_only + page;
    const uintptr_t bad[] = {0, 16, read_only, no_access, no_access - 1, UINTPTR_MAX - 4095, (uintptr_t)1 << 47};
    const size_t count = sizeof(bad) / sizeof(*bad);

    /* The command itself; also one that begins where there is memory. */
    for (size_t i = 0; i < count; ++i)
        if (bad[i] != read_only) EXPECT(write_to(fd, (void*)bad[i], 32), EFAULT);
    const struct rdma_ucm_cmd_hdr header = {RDMA_USER_CM_CMD_LISTEN, sizeof(struct rdma_ucm_listen), 0};
    CHECK(mprotect(pages + page, page, PROT_READ | PROT_WRITE) == 0);
    memcpy((void*)(no_access - sizeof(header)), &header, sizeof(header));
    CHECK(mprotect(pages + page, page, PROT_READ) == 0);
    EXPECT(write_to(fd, (void*)(no_access - sizeof(header)), sizeof(header) + header.in), EFAULT);

    for (size_t i = 0; i < count; ++i) {
        /* Its answer: of a command that fails so nothing is left. */
        const unsigned id = id_of(fd, RDMA_PS_UDP);
        EXPECT(RUN(fd, CREATE_ID, 4, create_id, .response = bad[i], .ps = RDMA_PS_TCP), EFAULT);
        const unsigned next = id_of(fd, RDMA_PS_TCP);
        EXPECT((int)next, (int)id + 1);
        EXPECT(bind_to(fd, id, own), 0);
        for (unsigned what = RDMA_USER_CM_QUERY_ADDR; what <= RDMA_USER_CM_QUERY_GID; ++what)
            EXPECT(RUN(fd, QUERY, sizeof(room), query, .response = bad[i], .id = id, .option = what), EFAULT);
        EXPECT(RUN(fd, QUERY_ROUTE, sizeof(room), query, .response = bad[i], .id = id), EFAULT);
        EXPECT(RUN(fd, INIT_QP_ATTR, sizeof(room), init_qp_attr, .response = bad[i], .id = id, .qp_state = 1), EFAULT);
        EXPECT(RUN(fd, MIGRATE_ID, sizeof(room), migrate_id, .response = bad[i], .id = id, .fd = (unsigned)fd), EFAULT);
        EXPECT(RUN(fd, SET_OPTION, 0, set_option, .optval = bad[i] == read_only ? no_access : bad[i], .id = id,
                   .optname = RDMA_OPTION_ID_REUSEADDR, .optlen = 4),
               EFAULT);
        struct rdma_ucm_join_mcast join = {.response = bad[i], .id = id, .addr_size = sizeof(struct sockaddr_in)};
        struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr = {htonl(0xEF010203)}};
        memcpy(&join.addr, &group, sizeof(group));
        EXPECT(run(fd, RDMA_USER_CM_CMD_JOIN_MCAST, &join, sizeof(join), sizeof(room)), EFAULT);
        EXPECT(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0), 0);
        /* An event stays until it is fetched. */
        struct rdma_ucm_create_id_resp joined = {0};
        join.response = (uintptr_t)&joined;
        join.uid = 7;
        EXPECT(run(fd, RDMA_USER_CM_CMD_JOIN_MCAST, &join, sizeof(join), sizeof(joined)), 0);
        struct rdma_ucm_event_resp event = {0};
        EXPECT(RUN(fd, GET_EVENT, sizeof(event), get_event, .response = bad[i]), EFAULT);
        EXPECT(RUN(fd, GET_EVENT, sizeof(event), get_event, .response = (uintptr_t)&event), 0);
        CHECK(event.uid == 7 && event.id == joined.id);
        EXPECT(RUN(fd, LEAVE_MCAST, 4, destroy_id, .response = bad[i], .id = joined.id), EFAULT);
        EXPECT(RUN(fd, DESTROY_ID, 4, destroy_id, .response = bad[i], .id = id), EFAULT);
        EXPECT(destroy(fd, id), ENOENT);
        EXPECT(destroy(fd, next), 0);
    }
    munmap(pages, 3 * page);
}

static void lengths(int fd) {
    EXPECT(write_to(fd, room, 0), EINVAL);
    EXPECT(write_to(fd, room, sizeof(struct rdma_ucm_cmd_hdr) - 1), EINVAL);
    // 23 queries InfiniBand's subnet manager, and 24 raises an event (server.cc).
    for (unsigned number = RDMA_USER_CM_CMD_JOIN_MCAST + 1; number < 300; ++number)
        if (number != 24) EXPECT(run(fd, number, room, 64, 64), number == 23 ? ENOSYS : EINVAL);
    EXPECT(run(fd, UINT32_MAX, room, 64, 64), EINVAL);
    EXPECT(run(fd, RDMA_USER_CM_CMD_GET_OPTION, room, 64, 64), ENOSYS);
    const struct rdma_ucm_cmd_hdr longer = {RDMA_USER_CM_CMD_LISTEN, sizeof(struct rdma_ucm_listen), 0};
    EXPECT(write_to(fd, &longer, sizeof(longer)), EINVAL); /* longer than the written data */
    char in[1024] = {0};
    for (size_t i = 0; i < COUNT; ++i) {
        const unsigned number = commands[i].number;
        const int has_ece = number == RDMA_USER_CM_CMD_CONNECT || number == RDMA_USER_CM_CMD_ACCEPT;
        const size_t needed = commands[i].bytes - (has_ece ? sizeof(struct rdma_ucm_ece) : 0);
        for (size_t bytes = 0; bytes < needed; ++bytes) EXPECT(run(fd, number, in, bytes, 64), EINVAL);
        if (commands[i].response != NONE && number != RDMA_USER_CM_CMD_MIGRATE_ID) {
            const int error = run(fd, number, in, commands[i].bytes, 0); /* no room for an answer */
            CHECK(error == ENOSPC || error == ENOENT);
        }
    }
}

/* Checks ids that do not exist, belong to another channel, or were destroyed. */
static void ids(int fd, int other) {
    const unsigned gone = id_of(fd, RDMA_PS_TCP), foreign = id_of(other, RDMA_PS_TCP);
    EXPECT(destroy(fd, gone), 0);
    const unsigned nobodys[] = {gone == foreign ? 4711 : gone, 4711, UINT32_MAX};
    for (size_t i = 0; i < COUNT; ++i) {
        if (commands[i].id == NONE) continue;
        for (size_t j = 0; j < 3; ++j) EXPECT(run_zeros(fd, &commands[i], nobodys[j], ROOM), ENOENT);
        if (commands[i].number != RDMA_USER_CM_CMD_LEAVE_MCAST)
            EXPECT(run_zeros(fd, &commands[i], foreign, ROOM), EINVAL);
    }
    EXPECT(RUN(fd, MIGRATE_ID, sizeof(room), migrate_id, .response = ROOM, .id = foreign, .fd = 4711), ENOENT);
    EXPECT(RUN(fd, MIGRATE_ID, sizeof(room), migrate_id, .response = ROOM, .id = foreign, .fd = 1), EINVAL);
    const unsigned from = (unsigned)other;
    EXPECT(RUN(fd, MIGRATE_ID, sizeof(room), migrate_id, .response = ROOM, .id = foreign, .fd = from), 0);
    EXPECT(destroy(other, foreign), EINVAL);
    EXPECT(destroy(fd, foreign), 0);
}

/* Descriptors that come and go in other ways than by open() and close(). */
static void descriptors(int fd) {
    const unsigned id = id_of(fd, RDMA_PS_TCP);
    /* A child that shares its parent's memory closes its own descriptor. */
    const pid_t child = vfork();
    if (child == 0) {
        close(fd);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    EXPECT(RUN(fd, QUERY, sizeof(room), query, .response = ROOM, .id = id), 0);
    const int copies[] = {dup(fd), fcntl(fd, F_DUPFD_CLOEXEC, 100), dup2(fd, 200), dup3(fd, 201, O_CLOEXEC)};
    for (int i = 0; i < 4; ++i) EXPECT(RUN(copies[i], QUERY, sizeof(room), query, .response = ROOM, .id = id), 0);
    /* The copies continue without the first one. A descriptor with an event is readable. */
    const int number = fd;
    CHECK(close(fd) == 0 && close(copies[3]) == 0);
    EXPECT(RUN(copies[3], QUERY, sizeof(room), query, .response = ROOM, .id = id), EBADF);
    EXPECT(poll(&(struct pollfd){.fd = copies[0], .events = POLLIN}, 1, 0), 0);
    struct rdma_ucm_event_resp event;
    EXPECT(RUN(copies[0], GET_EVENT, sizeof(event), get_event, .response = (uintptr_t)&event), EAGAIN);
    /* One whose number another file takes is closed. */
    int ends[2];
    CHECK(pipe(ends) == 0 && dup2(ends[1], copies[2]) == copies[2] && write(copies[2], "abc", 3) == 3);
    EXPECT(destroy(copies[1], id), 0);
    CHECK(close_range((unsigned)copies[1], (unsigned)copies[1], 0) == 0);
    EXPECT(destroy(copies[1], id), EBADF);
    CHECK(dup2(copies[0], number) == number && close(copies[0]) == 0);
    EXPECT(destroy(number, id_of(number, RDMA_PS_TCP)), 0);
}

enum { QPS_RTR = 2 }; /* enum ib_qp_state */
/* enum rdma_cm_event_type of <rdma/rdma_cma.h>. */
enum { ADDR_RESOLVED, ADDR_ERROR, ROUTE_RESOLVED, ROUTE_ERROR, CONNECT_REQUEST, CONNECT_RESPONSE };

static int resolve(int fd, unsigned id, struct in_addr to, unsigned port, unsigned timeout_ms) {
    struct rdma_ucm_resolve_ip command = {.id = id, .timeout_ms = timeout_ms};
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = to, .sin_port = htons((uint16_t)port)};
    memcpy(&command.dst_addr, &address, sizeof(address));
    return run(fd, RDMA_USER_CM_CMD_RESOLVE_IP, &command, sizeof(command), 0);
}

static int resolve6(int fd, unsigned id, const char* to, unsigned timeout_ms) {
    struct rdma_ucm_resolve_ip command = {.id = id, .timeout_ms = timeout_ms};
    command.dst_addr.sin6_family = AF_INET6;
    CHECK(inet_pton(AF_INET6, to, &command.dst_addr.sin6_addr) == 1);
    return run(fd, RDMA_USER_CM_CMD_RESOLVE_IP, &command, sizeof(command), 0);
}

/* The next event, for which it waits a while. */
static struct rdma_ucm_event_resp next_event(int fd, int wait_ms) {
    struct rdma_ucm_event_resp event = {.event = UINT32_MAX};
    if (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, wait_ms) == 1)
        EXPECT(RUN(fd, GET_EVENT, sizeof(event), get_event, .response = (uintptr_t)&event), 0);
    return event;
}

/* Guesses the handle of a request before its event is fetched. Later the request is accepted. */
static void untold_request(int fd, struct in_addr own) {
    const unsigned listener = id_of(fd, RDMA_PS_TCP), client = id_of(fd, RDMA_PS_TCP);
    struct rdma_ucm_bind_ip at = {.id = listener};
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = own, .sin_port = htons(7001)};
    memcpy(&at.addr, &address, sizeof(address));
    EXPECT(run(fd, RDMA_USER_CM_CMD_BIND_IP, &at, sizeof(at), 0), 0);
    EXPECT(RUN(fd, LISTEN, 0, listen, .id = listener, .backlog = 5), 0);
    EXPECT(resolve(fd, client, own, 7001, 1000), 0);
    EXPECT((int)next_event(fd, 1000).event, ADDR_RESOLVED);
    EXPECT(RUN(fd, RESOLVE_ROUTE, 0, resolve_route, .id = client), 0);
    EXPECT((int)next_event(fd, 1000).event, ROUTE_RESOLVED);
    EXPECT(RUN(fd, CONNECT, 0, connect, .id = client, .conn_param = {.qp_num = 17, .valid = 1}), 0);
    EXPECT(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 5000), 1);
    const unsigned request = client + 1;
    EXPECT(destroy(fd, request), ENOENT);
    EXPECT(RUN(fd, MIGRATE_ID, sizeof(room), migrate_id, .response = ROOM, .id = request, .fd = (unsigned)fd), ENOENT);
    const struct rdma_ucm_event_resp event = next_event(fd, 1000);
    CHECK(event.event == CONNECT_REQUEST && event.id == request);
    /* A second answer changes nothing. */
    const struct rdma_ucm_accept first = {
        .uid = 2,
        .id = request,
        .conn_param = {.qp_num = 18, .valid = 1, .responder_resources = 3, .initiator_depth = 3}};
    struct rdma_ucm_accept second = first;
    second.conn_param.responder_resources = 0;
    EXPECT(run(fd, RDMA_USER_CM_CMD_ACCEPT, &first, sizeof(first), 0), 0);
    EXPECT(run(fd, RDMA_USER_CM_CMD_ACCEPT, &second, sizeof(second), 0), EINVAL);
    struct ib_uverbs_qp_attr attr = {0};
    EXPECT(RUN(fd, INIT_QP_ATTR, sizeof(attr), init_qp_attr, .response = (uintptr_t)&attr, .id = request,
               .qp_state = QPS_RTR),
           0);
    EXPECT((int)attr.max_dest_rd_atomic, 3);
    EXPECT(destroy(fd, request), 0);
    EXPECT((int)next_event(fd, 5000).event, CONNECT_RESPONSE);
    EXPECT(destroy(fd, listener), 0);
    EXPECT(destroy(fd, client), 0);
}

/* An id without an address still has none after the resolution of an absent destination has failed. */
static void another_destination(int fd) {
    struct rdma_ucm_query_addr_resp answer;
    const unsigned id = id_of(fd, RDMA_PS_TCP);
    EXPECT(resolve6(fd, id, "fe80::dead", 50), 0);
    EXPECT((int)next_event(fd, 1000).event, ADDR_ERROR);
    EXPECT(RUN(fd, QUERY, sizeof(answer), query, .response = (uintptr_t)&answer, .id = id), 0);
    const struct sockaddr_in6* const source = (void*)&answer.src_addr;
    CHECK(IN6_IS_ADDR_UNSPECIFIED(&source->sin6_addr) && source->sin6_port != 0 && answer.node_guid == 0);
    EXPECT(resolve6(fd, id, "fd00::dead", 50), 0);
    EXPECT(RUN(fd, QUERY, sizeof(answer), query, .response = (uintptr_t)&answer, .id = id), 0);
    CHECK(source->sin6_addr.s6_addr[0] == 0xFD);
    EXPECT((int)next_event(fd, 1000).event, ADDR_ERROR);
    EXPECT(destroy(fd, id), 0);
}

/* Commands to a channel that another thread closes. */
static volatile int contested, contest_ends;

static void* make_ids(void* unused) {
    struct rdma_ucm_create_id_resp answer;
    while (!contest_ends)
        RUN(contested, CREATE_ID, sizeof(answer), create_id, .response = (uintptr_t)&answer, .ps = RDMA_PS_TCP);
    return unused;
}

static void closed_meanwhile(int fd) {
    enum { CHANNELS = 1500, IDS = 200 };
    pthread_t makers[2];
    contested = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 2; ++i) CHECK(pthread_create(&makers[i], NULL, make_ids, NULL) == 0);
    for (int i = 0; i < CHANNELS; ++i) {
        const int before = contested;
        contested = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
        usleep(20);
        CHECK(close(before) == 0);
    }
    contest_ends = 1;
    for (int i = 0; i < 2; ++i) CHECK(pthread_join(makers[i], NULL) == 0);
    CHECK(close(contested) == 0);
    /* No id is left of theirs: the lowest handles are free. */
    unsigned ids[IDS];
    for (int i = 0; i < IDS; ++i) ids[i] = id_of(fd, RDMA_PS_TCP);
    EXPECT((int)(ids[IDS - 1] - ids[0]), IDS - 1);
    for (int i = 0; i < IDS; ++i) EXPECT(destroy(fd, ids[i]), 0);
}

/* Lets ids wait for a neighbour that does not exist. Half of them are destroyed meanwhile, and the others get an event.
 */
static void unanswered_ids(int fd, struct in_addr own) {
    enum { IDS = 10000 };
    static unsigned ids[IDS];
    const struct in_addr nobody = {own.s_addr ^ htonl(0x40)};
    for (unsigned i = 0; i < IDS; ++i) {
        ids[i] = id_of(fd, RDMA_PS_TCP);
        EXPECT(resolve(fd, ids[i], nobody, 7001, 300), 0);
    }
    for (unsigned i = 0; i < IDS; i += 2) EXPECT(destroy(fd, ids[i]), 0);
    for (unsigned i = 1; i < IDS; i += 2) {
        const struct rdma_ucm_event_resp event = next_event(fd, 5000);
        EXPECT((int)event.event, ADDR_ERROR);
        EXPECT(-(int)event.status, ETIMEDOUT);
    }
    for (unsigned i = 1; i < IDS; i += 2) EXPECT(destroy(fd, ids[i]), 0);
}

/* rdma_write_cm_event() and rdma_resolve_addrinfo() of newer librdmacms. */
static void written_events(int fd, int other) {
    struct {
        unsigned id, reserved, event, status;
        uint64_t argument;
    } command = {.event = 18, .status = 7};
    enum { RESOLVE_IB_SERVICE = 23, WRITE_CM_EVENT, USER = 18, INTERNAL };
    const unsigned id = command.id = id_of(fd, 0x106);
    for (unsigned type = 0; type < 32; ++type) {
        command.event = type;
        command.argument = 0x1122334455667788 + type;
        const int known = type == USER || type == INTERNAL;
        EXPECT(run(fd, WRITE_CM_EVENT, &command, sizeof(command), 0), known ? 0 : EINVAL);
        if (!known) continue;
        const struct rdma_ucm_event_resp event = next_event(fd, 0);
        CHECK(event.event == type && event.id == id && event.uid == 1 && event.status == 7);
        CHECK(memcmp(&event.param, &command.argument, sizeof(command.argument)) == 0);
    }
    command.event = USER;
    EXPECT(run(fd, WRITE_CM_EVENT, &command, sizeof(command) - 1, 0), EINVAL);
    EXPECT(run(other, WRITE_CM_EVENT, &command, sizeof(command), 0), EINVAL);
    EXPECT(run(fd, WRITE_CM_EVENT, &command, sizeof(command), 0), 0);
    EXPECT(destroy(fd, id), 0); /* with an event that was not fetched */
    EXPECT(run(fd, WRITE_CM_EVENT, &command, sizeof(command), 0), ENOENT);
    EXPECT(run(fd, RESOLVE_IB_SERVICE, &command, sizeof(command), 0), ENOSYS);
    EXPECT(run(fd, WRITE_CM_EVENT + 1, &command, sizeof(command), 0), EINVAL);
}

int main(int count, char** arguments) {
    struct in_addr own;
    if (count != 2 || inet_pton(AF_INET, arguments[1], &own) != 1) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char* const device = "/dev/infiniband/rdma_cm";
    const int fd = open(device, O_RDWR | O_CLOEXEC | O_NONBLOCK), other = openat(AT_FDCWD, device, O_RDWR | O_CLOEXEC);
    struct stat by_name, by_descriptor;
    CHECK(fd >= 0 && other >= 0 && access(device, R_OK | W_OK) == 0);
    CHECK(stat(device, &by_name) == 0 && fstat(fd, &by_descriptor) == 0);
    CHECK(S_ISCHR(by_name.st_mode) && S_ISCHR(by_descriptor.st_mode) && by_name.st_rdev == by_descriptor.st_rdev);
    EXPECT(RUN(fd, GET_EVENT, sizeof(room), get_event, .response = ROOM), EAGAIN);
    lengths(fd);
    ids(fd, other);
    bad_addresses(fd, own);
    untold_request(fd, own);
    another_destination(fd);
    unanswered_ids(fd, own);
    written_events(fd, other);
    closed_meanwhile(fd);
    CHECK(close(other) == 0);
    descriptors(fd);
    CHECK(close(fd) == 0 && close(fd) == -1);
    printf("%d failures\n", failures);
    return failures != 0;
}
