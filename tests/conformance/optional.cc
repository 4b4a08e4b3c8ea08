// SPDX-License-Identifier: Apache-2.0
// Optional features of a device. Each works as its manual page says, or is refused with the right errno. It never
// crashes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs.h"

using namespace conformance;

namespace {

// Handles a call that returned NULL: skips the case if errno says that the device lacks the feature, otherwise fails.
[[noreturn]] void not_offered(const char* what) {
    const int reason = errno;
    if (reason == EOPNOTSUPP || reason == ENOSYS || reason == ENOTTY) skip("not offered: %s", strerror(reason));
    fail("%s: %s", what, strerror(reason));
}

}  // namespace

// `man ibv_query_ece`: valid before RTR; returns 0 or EOPNOTSUPP.
CASE(optional, ece_is_queried_and_set) {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> cq = make_cq();
    Owned<ibv_qp> qp = make_qp(pd, cq, cq);
    ibv_ece ece{};
    const int error = ibv_query_ece(qp, &ece);
    if (error == EOPNOTSUPP) skip("the driver has no ECE");
    EXPECT(error == 0, "%s", strerror(error));
    EXPECT_OK(ibv_set_ece(qp, &ece));
    ibv_ece unknown = ece;
    unknown.comp_mask |= 1u << 31;
    EXPECT(ibv_set_ece(qp, &unknown) != 0, "an unknown comp_mask");
}

// `man ibv_import_device`: NULL and errno for a file that cannot be imported.
CASE(optional, importing_nonsense_is_refused) {
    EXPECT(ibv_import_device(-1) == nullptr);
    errno = 0;
    EXPECT(ibv_import_pd(device().context, 0xffff) == nullptr);
    EXPECT(errno != 0);
    Owned<ibv_pd> pd = make_pd();
    errno = 0;
    EXPECT(ibv_import_mr(pd, 0xffff) == nullptr);
    EXPECT(errno != 0);
    errno = 0;
    EXPECT(ibv_import_dm(device().context, 0xffff) == nullptr);
    EXPECT(errno != 0);
}

// `man ibv_import_device`: a duplicate of a context's cmd_fd opens a context on the same object.
CASE(optional, the_own_device_is_imported_or_refused) {
    errno = 0;
    const int copy = dup(device().context->cmd_fd);
    EXPECT(copy >= 0, "%s", strerror(errno));
    ibv_context* imported = ibv_import_device(copy);
    if (imported == nullptr) {
        const int reason = errno;
        close(copy);
        errno = reason;
        not_offered("ibv_import_device");
    }
    ibv_device_attr attr;
    EXPECT_OK(ibv_query_device(imported, &attr));
    EXPECT(attr.node_guid == device().attr.node_guid);
    EXPECT_OK(ibv_close_device(imported));
}

// `man ibv_alloc_null_mr`: READs into it are discarded, and WRITEs from it are zeros.
CASE(optional, null_mr_reads_zeros_and_drops_writes) {
    Ends ends;
    ibv_mr* made = ibv_alloc_null_mr(ends.pd);
    if (made == nullptr) not_offered("ibv_alloc_null_mr");
    Owned<ibv_mr> mr(made);
    std::memset(ends.remote.at(), 0xff, 100);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {{0x1000, 100, mr->lkey}},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    succeeded(ends.send_cq);
    EXPECT(all_bytes(ends.remote.at(), 100, 0));
    post(ends.a, {.opcode = IBV_WR_RDMA_READ,
                  .sges = {{0x1000, 100, mr->lkey}},
                  .to = ends.remote.address(),
                  .rkey = ends.remote.rkey()});
    succeeded(ends.send_cq);
}

CASE(optional, advise_mr_is_taken_or_refused) {
    Ends ends;
    ibv_sge sge = ends.local.sge(0, 4096);
    const int error = ibv_advise_mr(ends.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1);
    if (error == EOPNOTSUPP) skip("the driver takes no advice");
    EXPECT(error == 0 || error == EINVAL, "%s", strerror(error));  // EINVAL for regions without on-demand paging
}

// `man ibv_reg_dmabuf_mr`: a file that is no dma-buf.
CASE(optional, a_file_that_is_no_dmabuf_is_refused) {
    Owned<ibv_pd> pd = make_pd();
    const int file = memfd_create("no dma-buf", 0);
    EXPECT(ftruncate(file, 4096) == 0);
    errno = 0;
    ibv_mr* mr = ibv_reg_dmabuf_mr(pd, 0, 4096, 0, file, kAllAccess);
    const int reason = errno;
    close(file);
    EXPECT(mr == nullptr && reason != 0);
    EXPECT_REFUSED(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, kAllAccess), EBADF, EINVAL, EOPNOTSUPP);
}

// IBV_ACCESS_ON_DEMAND: pages are faulted in when they are used.
CASE(optional, on_demand_memory_is_reached) {
    Ends ends;
    Memory memory(1 << 20);
    ibv_mr* made = ibv_reg_mr(ends.pd, memory.at(), 1 << 20, kAllAccess | IBV_ACCESS_ON_DEMAND);
    if (made == nullptr) not_offered("ibv_reg_mr(ON_DEMAND)");
    Owned<ibv_mr> mr(made);
    fill(ends.local.at(), 5000, 3);
    post(ends.a, {.opcode = IBV_WR_RDMA_WRITE,
                  .sges = {ends.local.sge(0, 5000)},
                  .to = reinterpret_cast<uintptr_t>(memory.at(500000)),
                  .rkey = mr->rkey});
    succeeded(ends.send_cq);
    EXPECT(matches(memory.at(500000), 5000, 3));
}

CASE(optional, device_memory_is_offered_or_refused) {
    ibv_alloc_dm_attr attr{};
    attr.length = 64;
    errno = 0;
    ibv_dm* dm = ibv_alloc_dm(device().context, &attr);
    if (dm == nullptr) {
        EXPECT(errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL || errno == ENOMEM || errno == EPERM, "%s",
               strerror(errno));
        return;
    }
    EXPECT_OK(ibv_free_dm(dm));
}

CASE(optional, xrc_is_offered_or_refused) {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;
    attr.oflags = O_CREAT;
    errno = 0;
    ibv_xrcd* xrcd = ibv_open_xrcd(device().context, &attr);
    if (xrcd == nullptr) not_offered("ibv_open_xrcd");
    ibv_srq_init_attr_ex srq_attr{};
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> cq = make_cq();
    srq_attr.attr = {16, 1, 0};
    srq_attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    srq_attr.srq_type = IBV_SRQT_XRC;
    srq_attr.pd = pd;
    srq_attr.xrcd = xrcd;
    srq_attr.cq = cq;
    ibv_srq* srq = ibv_create_srq_ex(device().context, &srq_attr);
    EXPECT(srq != nullptr);
    uint32_t number = 0;
    EXPECT_OK(ibv_get_srq_num(srq, &number));
    EXPECT(ibv_close_xrcd(xrcd) == EBUSY);
    EXPECT_OK(ibv_destroy_srq(srq));
    EXPECT_OK(ibv_close_xrcd(xrcd));
}

CASE(optional, flow_steering_is_offered_or_refused) {
    Ends ends({.type = IBV_QPT_UD});
    ibv_flow_attr attr{};
    attr.type = IBV_FLOW_ATTR_NORMAL;
    attr.size = sizeof(attr);
    attr.port = device().port;
    errno = 0;
    ibv_flow* flow = ibv_create_flow(ends.b, &attr);
    if (flow == nullptr)
        EXPECT(errno != 0);
    else
        EXPECT_OK(ibv_destroy_flow(flow));
}

CASE(optional, work_queues_are_offered_or_refused) {
    Owned<ibv_pd> pd = make_pd();
    Owned<ibv_cq> cq = make_cq();
    ibv_wq_init_attr attr{};
    attr.wq_type = IBV_WQT_RQ;
    attr.max_wr = 16;
    attr.max_sge = 1;
    attr.pd = pd;
    attr.cq = cq;
    errno = 0;
    ibv_wq* wq = ibv_create_wq(device().context, &attr);
    if (wq == nullptr)
        EXPECT(errno != 0);
    else
        EXPECT_OK(ibv_destroy_wq(wq));
}

CASE(optional, counters_are_offered_or_refused) {
    ibv_counters_init_attr attr{};
    errno = 0;
    ibv_counters* counters = ibv_create_counters(device().context, &attr);
    if (counters == nullptr)
        EXPECT(errno != 0);
    else
        EXPECT_OK(ibv_destroy_counters(counters));
}

// Newer releases of libibverbs read this pointer behind a context (verbs_context::priv).
CASE(optional, the_context_has_its_private_part) {
    verbs_context* extended = verbs_get_ctx(device().context);
    if (extended == nullptr) skip("an old provider");
    EXPECT(extended->priv != nullptr);
}
