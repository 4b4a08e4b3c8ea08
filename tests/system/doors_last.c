// SPDX-License-Identifier: Apache-2.0
// A library that uses a device late: WHEN is 1 in its destructor, 2 in an atexit() handler, 3 in the destructor of a
// thread's variable, 4 in a constructor that has forked. A program is linked with it (LINKED), and another opens it
// (PROGRAM). Both exit with a device open if they get "open".
#ifdef PROGRAM
#include <dlfcn.h>
#include <stdio.h>
#endif
#if defined PROGRAM || defined LINKED
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void library(void);
int main(int count, char** words) {
    alarm(20);
    const char* file = NULL;
    for (int i = 1; i < count; ++i)
        if (strcmp(words[i], "open") != 0) file = words[i];
    if (strcmp(words[count - 1], "open") == 0) {
        struct ibv_device** const list = ibv_get_device_list(NULL);
        if (list == NULL || list[0] == NULL || ibv_alloc_pd(ibv_open_device(list[0])) == NULL) abort();
    }
#ifdef PROGRAM
    if (dlopen(file, RTLD_NOW) == NULL) return puts(dlerror()), 1;
#else
    (void)file;
    library();
#endif
    exit(0);
}
#else
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// Prints the call that failed, which is a valid answer too.
static int say(const char* call) {
    printf("%s: %s\n", call, strerror(errno));
    fflush(stdout);
    return 1;
}

// Sends a WRITE from the device to itself and waits for its completion by an event.
static int use(void) {
    int count = 0;
    struct ibv_device** const list = ibv_get_device_list(&count);
    if (list == NULL || count == 0) return say("ibv_get_device_list");
    struct ibv_context* const context = ibv_open_device(list[0]);
    if (context == NULL) return say("ibv_open_device");
    struct ibv_pd* const pd = ibv_alloc_pd(context);
    struct ibv_comp_channel* const channel = ibv_create_comp_channel(context);
    struct ibv_cq* const cq = ibv_create_cq(context, 16, NULL, channel, 0);
    static char memory[64];
    struct ibv_mr* const mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp* const qp = ibv_create_qp(pd, &init);
    if (mr == NULL || qp == NULL) return say("an object");
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
        return say("INIT");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                .path_mtu = IBV_MTU_1024,
                                .dest_qp_num = qp->qp_num,
                                .max_dest_rd_atomic = 1,
                                .min_rnr_timer = 12};
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.hop_limit = 1;
    ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid);
    if (ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
        return say("RTR");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    if (ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC) != 0)
        return say("RTS");
    struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
    struct ibv_send_wr write = {.sg_list = &sge,
                                .num_sge = 1,
                                .opcode = IBV_WR_RDMA_WRITE,
                                .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    write.wr.rdma.remote_addr = (uintptr_t)memory + 32;
    write.wr.rdma.rkey = mr->rkey;
    if (ibv_req_notify_cq(cq, 0) != 0 || ibv_post_send(qp, &write, &bad) != 0) return say("ibv_post_send");
    struct ibv_cq* ready;
    void* unused;
    if (ibv_get_cq_event(channel, &ready, &unused) != 0) return say("ibv_get_cq_event");
    ibv_ack_cq_events(ready, 1);
    struct ibv_wc wc = {0};
    while (ibv_poll_cq(cq, 1, &wc) == 0) continue;
    if (wc.status != IBV_WC_SUCCESS) return say(ibv_wc_status_str(wc.status));
    if (ibv_destroy_qp(qp) != 0 || ibv_dereg_mr(mr) != 0 || ibv_destroy_cq(cq) != 0 ||
        ibv_destroy_comp_channel(channel) != 0 || ibv_dealloc_pd(pd) != 0 || ibv_close_device(context) != 0)
        return say("an object that is destroyed");
    ibv_free_device_list(list);
    puts("used");
    fflush(stdout);
    return 0;
}

#if WHEN == 1
__attribute__((destructor)) static void end(void) {
    use();
}
#elif WHEN == 2
static void end(void) {
    use();
}
__attribute__((constructor)) static void begin(void) {
    atexit(end);
}
#elif WHEN == 3
static pthread_key_t key;
static void end(void* unused) {
    (void)unused;
    use();
}
static void* run(void* value) {
    pthread_setspecific(key, value);
    return NULL;
}
__attribute__((destructor)) static void finish(void) {
    pthread_t thread;
    pthread_key_create(&key, end);
    if (pthread_create(&thread, NULL, run, &key) != 0 || pthread_join(thread, NULL) != 0) abort();
}
#else
__attribute__((constructor)) static void begin(void) {
    for (int i = 0; i < 2; ++i) {  // before its first use of a device, and after it
        const pid_t child = fork();
        if (child == 0) {
            alarm(15);
            _exit(use());
        }
        int status;
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) abort();
        use();
    }
}
#endif
void library(void) {}
#endif
