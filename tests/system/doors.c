// SPDX-License-Identifier: Apache-2.0
// A program that is not linked with libibverbs, for each way in which such programs find it: doors WAY [FILE] prints
// the number of devices found as one JSON line.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(x)                                                                                     \
    do {                                                                                            \
        if (!(x)) {                                                                                 \
            const char* why = dlerror();                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, why ? why : "(no dlerror)"); \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)

typedef struct ibv_device** list_function(int*);

static int count(void* function) {
    int n = -1;
    NEED(function);
    ((list_function*)function)(&n);
    return n;
}

#undef ibv_query_port

// Makes NCCL's calls of libibverbs before it connects: src/misc/ibvsymbols.cc, and the start of its net_ib transport.
static int nccl(void) {
    void* handle = dlopen("libibverbs.so", RTLD_NOW);
    if (!handle) handle = dlopen("libibverbs.so.1", RTLD_NOW);
    NEED(handle);
#define LOAD(name, version)                                                 \
    __typeof__(&name) p_##name = dlvsym(handle, #name, "IBVERBS_" version); \
    NEED(p_##name)
    LOAD(ibv_get_device_list, "1.1");
    LOAD(ibv_free_device_list, "1.1");
    LOAD(ibv_get_device_name, "1.1");
    LOAD(ibv_open_device, "1.1");
    LOAD(ibv_close_device, "1.1");
    LOAD(ibv_get_async_event, "1.1");
    LOAD(ibv_ack_async_event, "1.1");
    LOAD(ibv_query_device, "1.1");
    int (*p_ibv_query_port)(struct ibv_context*, uint8_t, struct ibv_port_attr*) =
        dlvsym(handle, "ibv_query_port", "IBVERBS_1.1");
    NEED(p_ibv_query_port);
    LOAD(ibv_query_gid, "1.1");
    LOAD(ibv_query_qp, "1.1");
    LOAD(ibv_alloc_pd, "1.1");
    LOAD(ibv_dealloc_pd, "1.1");
    NEED(dlvsym(handle, "ibv_reg_mr", "IBVERBS_1.1"));
    LOAD(ibv_reg_mr_iova2, "1.8");
    LOAD(ibv_reg_dmabuf_mr, "1.12");
    LOAD(ibv_dereg_mr, "1.1");
    LOAD(ibv_create_cq, "1.1");
    LOAD(ibv_destroy_cq, "1.1");
    LOAD(ibv_create_qp, "1.1");
    LOAD(ibv_modify_qp, "1.1");
    LOAD(ibv_destroy_qp, "1.1");
    LOAD(ibv_fork_init, "1.1");
    LOAD(ibv_event_type_str, "1.1");
    LOAD(ibv_query_ece, "1.10");
    LOAD(ibv_set_ece, "1.10");

    static char buffer[4096];
    int n;
    NEED(p_ibv_fork_init() == 0);
    struct ibv_device** list = p_ibv_get_device_list(&n);
    NEED(list);
    for (int i = 0; i < n; ++i) {
        if (strncmp(p_ibv_get_device_name(list[i]), "rove", 4) != 0) continue;
        struct ibv_context* context = p_ibv_open_device(list[i]);
        NEED(context);
        struct ibv_device_attr device;
        NEED(p_ibv_query_device(context, &device) == 0 && device.phys_port_cnt == 1);
        struct ibv_port_attr port;
        NEED(p_ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
        union ibv_gid gid;
        NEED(p_ibv_query_gid(context, 1, 1, &gid) == 0);
        struct ibv_pd* pd = p_ibv_alloc_pd(context);
        NEED(pd);
        errno = 0;  // with any other errno, NCCL assumes that GPU memory can be registered
        NEED(p_ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0) == NULL && errno == EOPNOTSUPP);
        struct ibv_mr* mr = p_ibv_reg_mr_iova2(pd, buffer, sizeof buffer, (uintptr_t)buffer,
                                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
        NEED(mr && p_ibv_dereg_mr(mr) == 0);
        struct ibv_cq* cq = p_ibv_create_cq(context, 256, NULL, NULL, 0);
        NEED(cq);
        struct ibv_qp_init_attr init = {
            .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {256, 256, 1, 1, 0}};
        struct ibv_qp* qp = p_ibv_create_qp(pd, &init);
        NEED(qp);
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
        NEED(p_ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
        NEED(p_ibv_destroy_qp(qp) == 0 && p_ibv_destroy_cq(cq) == 0 && p_ibv_dealloc_pd(pd) == 0 &&
             p_ibv_close_device(context) == 0);
    }
    p_ibv_free_device_list(list);
    return n;
}

int main(int argc, char** argv) {
    const char* way = argv[1];
    const char* file = argc > 2 ? argv[2] : "libibverbs.so.1";
    int n = -1;
    if (!strcmp(way, "nccl")) n = nccl();
    if (!strcmp(way, "dlsym")) {
        void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        NEED(handle && dlsym(handle, "ibv_fork_init"));
        n = count(dlsym(handle, "ibv_get_device_list"));
    }
    if (!strcmp(way, "dlvsym")) n = count(dlvsym(dlopen(file, RTLD_LAZY), "ibv_get_device_list", "IBVERBS_1.1"));
    if (!strcmp(way, "default")) {
        NEED(dlopen(file, RTLD_NOW | RTLD_GLOBAL));
        n = count(dlsym(RTLD_DEFAULT, "ibv_get_device_list"));
        NEED(n == count(dlvsym(RTLD_DEFAULT, "ibv_get_device_list", "IBVERBS_1.1")));
    }
    // A library that only the RUNPATH of this program leads to, and a plug-in that is linked with libibverbs.
    if (!strcmp(way, "plugin")) n = count(dlsym(dlopen(file, RTLD_NOW), "plugin_devices"));
    if (!strcmp(way, "deepbind")) n = count(dlsym(dlopen(file, RTLD_NOW | RTLD_DEEPBIND), "plugin_devices"));
    printf("{\"devices\": %d}\n", n);
    return 0;
}
