/* SPDX-License-Identifier: Apache-2.0 */
/* librpma: rpma_pair server ADDRESS lends memory to one client and checks what that has written; rpma_pair client
 * ADDRESS writes half a megabyte there, flushes it, writes a word atomically, reads all of it back and compares. */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (512 * 1024)
#define CHECK(call)                                                                         \
    do {                                                                                    \
        const int error = (call);                                                           \
        if (error != 0) return fprintf(stderr, "%s: %s\n", #call, rpma_err_2str(error)), 1; \
    } while (0)

static const char port[] = "7700";
static const char mark[8] = "atomic!";

static unsigned char expected(size_t i) {
    return (unsigned char)(i * 7 + i / 256);
}

static int event(struct rpma_conn* conn, enum rpma_conn_event wanted) {
    enum rpma_conn_event came;
    CHECK(rpma_conn_next_event(conn, &came));
    if (came == wanted) return 0;
    fprintf(stderr, "%s where %s should be\n", rpma_utils_conn_event_2str(came), rpma_utils_conn_event_2str(wanted));
    return 1;
}

static int complete(struct rpma_conn* conn) {
    struct rpma_cq* cq;
    struct ibv_wc wc;
    CHECK(rpma_conn_get_cq(conn, &cq));
    CHECK(rpma_cq_wait(cq));
    CHECK(rpma_cq_get_wc(cq, 1, &wc, NULL));
    if (wc.status == IBV_WC_SUCCESS) return 0;
    fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
    return 1;
}

static int compare(const unsigned char* memory) {
    if (memcmp(memory, mark, sizeof(mark)) != 0) return fprintf(stderr, "the word is not there\n"), 1;
    for (size_t i = sizeof(mark); i < BYTES; ++i)
        if (memory[i] != expected(i)) return fprintf(stderr, "byte %zu is wrong\n", i), 1;
    return puts("right") < 0;
}

static int serve(const char* address, struct rpma_peer* peer, unsigned char* memory) {
    struct rpma_ep* ep;
    struct rpma_conn_req* request;
    struct rpma_conn* conn;
    struct rpma_mr_local* mr;
    size_t bytes;
    char descriptor[64];
    CHECK(rpma_mr_reg(peer, memory, BYTES,
                      RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, &mr));
    CHECK(rpma_mr_get_descriptor_size(mr, &bytes));
    if (bytes > sizeof(descriptor)) return 1;
    CHECK(rpma_mr_get_descriptor(mr, descriptor));
    CHECK(rpma_ep_listen(peer, address, port, &ep));
    CHECK(rpma_ep_next_conn_req(ep, NULL, &request));
    const struct rpma_conn_private_data given = {descriptor, (uint8_t)bytes};
    CHECK(rpma_conn_req_connect(&request, &given, &conn));
    if (event(conn, RPMA_CONN_ESTABLISHED) != 0 || event(conn, RPMA_CONN_CLOSED) != 0) return 1;
    CHECK(rpma_conn_disconnect(conn));
    CHECK(rpma_conn_delete(&conn));
    CHECK(rpma_ep_shutdown(&ep));
    CHECK(rpma_mr_dereg(&mr));
    return compare(memory);
}

static int use(const char* address, struct rpma_peer* peer, unsigned char* memory) {
    struct rpma_conn_req* request;
    struct rpma_conn* conn;
    struct rpma_mr_local* mr;
    struct rpma_mr_remote* theirs;
    struct rpma_conn_private_data given;
    for (size_t i = 0; i < BYTES; ++i) memory[i] = expected(i);
    CHECK(rpma_mr_reg(peer, memory, BYTES, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_READ_SRC,
                      &mr));
    CHECK(rpma_conn_req_new(peer, address, port, NULL, &request));
    CHECK(rpma_conn_req_connect(&request, NULL, &conn));
    if (event(conn, RPMA_CONN_ESTABLISHED) != 0) return 1;
    CHECK(rpma_conn_get_private_data(conn, &given));
    CHECK(rpma_mr_remote_from_descriptor(given.ptr, given.len, &theirs));
    CHECK(rpma_write(conn, theirs, 0, mr, 0, BYTES, RPMA_F_COMPLETION_ON_ERROR, NULL));
    CHECK(rpma_flush(conn, theirs, 0, BYTES, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, NULL));
    if (complete(conn) != 0) return 1;
    CHECK(rpma_atomic_write(conn, theirs, 0, mark, RPMA_F_COMPLETION_ALWAYS, NULL));
    if (complete(conn) != 0) return 1;
    memset(memory, 0, BYTES);
    CHECK(rpma_read(conn, mr, 0, theirs, 0, BYTES, RPMA_F_COMPLETION_ALWAYS, NULL));
    if (complete(conn) != 0) return 1;
    CHECK(rpma_conn_disconnect(conn));
    if (event(conn, RPMA_CONN_CLOSED) != 0) return 1;
    CHECK(rpma_mr_remote_delete(&theirs));
    CHECK(rpma_mr_dereg(&mr));
    CHECK(rpma_conn_delete(&conn));
    return compare(memory);
}

int main(int count, char** arguments) {
    if (count != 3) return 2;
    const int serves = strcmp(arguments[1], "server") == 0;
    unsigned char* memory = aligned_alloc(4096, BYTES);
    struct ibv_context* device;
    struct rpma_peer* peer;
    CHECK(rpma_utils_get_ibv_context(arguments[2], serves ? RPMA_UTIL_IBV_CONTEXT_LOCAL : RPMA_UTIL_IBV_CONTEXT_REMOTE,
                                     &device));
    CHECK(rpma_peer_new(device, &peer));
    if ((serves ? serve : use)(arguments[2], peer, memory) != 0) return 1;
    CHECK(rpma_peer_delete(&peer));
    free(memory);
    return 0;
}
