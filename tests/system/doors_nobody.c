// SPDX-License-Identifier: Apache-2.0
// Opens the device as root, becomes an unprivileged user, and continues: a registration, a connection to itself, a
// WRITE, a read of sysfs.
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NEED(x)                                                                          \
    do {                                                                                 \
        if (!(x)) {                                                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, strerror(errno)); \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

enum { kBytes = 10000 };

int main(void) {
    struct ibv_device** list = ibv_get_device_list(NULL);
    struct ibv_context* context = list ? ibv_open_device(list[0]) : NULL;
    NEED(context);
    NEED(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);

    static char memory[2 * kBytes];
    memset(memory, 7, kBytes);
    struct ibv_pd* pd = ibv_alloc_pd(context);
    struct ibv_cq* cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_mr* mr =
        pd ? ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) : NULL;
    NEED(cq && mr);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp* qp = ibv_create_qp(pd, &init);
    union ibv_gid gid;
    NEED(qp && ibv_query_gid(context, 1, 1, &gid) == 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = qp->qp_num,
        .ah_attr = {.grh = {.dgid = gid, .sgid_index = 1, .hop_limit = 64}, .is_global = 1, .port_num = 1},
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12};
    NEED(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .max_rd_atomic = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
    NEED(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                           IBV_QP_RNR_RETRY) == 0);

    struct ibv_sge sge = {(uintptr_t)memory, kBytes, mr->lkey};
    struct ibv_send_wr write = {.sg_list = &sge,
                                .num_sge = 1,
                                .opcode = IBV_WR_RDMA_WRITE,
                                .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    write.wr.rdma.remote_addr = (uintptr_t)memory + kBytes;
    write.wr.rdma.rkey = mr->rkey;
    NEED(ibv_post_send(qp, &write, &bad) == 0);
    struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};
    for (time_t end = time(NULL) + 5; ibv_poll_cq(cq, 1, &wc) == 0 && time(NULL) < end;) {
    }
    NEED(wc.status == IBV_WC_SUCCESS && memcmp(memory, memory + kBytes, kBytes) == 0);

    char line[32] = "";
    FILE* type = fopen("/sys/class/infiniband/rove0/ports/1/gid_attrs/types/1", "r");
    NEED(type && fgets(line, sizeof line, type) && !strcmp(line, "RoCE v2\n"));
    puts("right");
    return 0;
}
