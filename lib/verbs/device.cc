// SPDX-License-Identifier: Apache-2.0
// Devices: contexts and capabilities.
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>

#include "verbs/provider.h"
#include "verbs/verbs.h"

namespace rove::verbs {

namespace {

// The operation behind every word of verbs_context::priv, where libibverbs keeps a few flags and then the provider's
// operations. rove exports all calls that read it (preload/symbols.def). A call that a newer release adds finds this
// operation, which refuses, at any offset. A call that returns a pointer then returns null. One that returns an errno
// value returns 0 and looks successful, hence the line on stderr.
void* refuse_unknown_operation() {
    static std::atomic_flag told = ATOMIC_FLAG_INIT;
    if (!told.test_and_set())
        std::fprintf(stderr, "rove: a call of libibverbs that rove does not know did nothing, whatever it returned\n");
    return fail<void>(EOPNOTSUPP);
}

// The device's part number. Programs print it with kVendorId, and look up tuning parameters by both.
constexpr uint32_t kVendorPartId = 1;

constexpr size_t kPrivateWords = 512;  // rdma-core 44 uses 80 words, its HEAD of August 2026 97

verbs_ex_private* unknown_operations() {
    static const auto words = [] {
        std::array<void* (*)(), kPrivateWords> filled;
        filled.fill(refuse_unknown_operation);
        return filled;
    }();
    return reinterpret_cast<verbs_ex_private*>(const_cast<void* (**)()>(words.data()));
}

// Adapts an operation that returns an errno value to the context's table: it also sets errno.
template <auto Function>
struct Operation;
template <class... Arguments, int (*Function)(Arguments...)>
struct Operation<Function> {
    static int call(Arguments... arguments) { return with_errno(Function(arguments...)); }
};

void set_operations(Context& context) {
    // Where a member stays null, the inline function of <infiniband/verbs.h> returns EOPNOTSUPP.
    context.sz = sizeof(verbs_context);
    context.priv = unknown_operations();
    context.query_port = Operation<query_port>::call;
    context.query_device_ex = Operation<query_device_ex>::call;
    context.query_rt_values = Operation<query_rt_values>::call;
    context.alloc_td = alloc_td;
    context.dealloc_td = Operation<dealloc_td>::call;
    context.alloc_parent_domain = alloc_parent_domain;
    context.create_cq_ex = create_cq_ex;
    context.modify_cq = Operation<modify_cq>::call;
    context.create_qp_ex = create_qp_ex;
    context.advise_mr = Operation<advise_mr>::call;
    context.alloc_null_mr = alloc_null_mr;
    context.create_srq_ex = create_srq_ex;
    context.get_srq_num = Operation<get_srq_num>::call;
    context.open_xrcd = open_xrcd;
    context.close_xrcd = Operation<close_xrcd>::call;
    context.open_qp = open_qp;
    ibv_context_ops& ops = context.context.ops;
    ops.poll_cq = poll_cq;
    ops.req_notify_cq = req_notify_cq;
    ops.post_send = post_send;
    ops.post_recv = post_recv;
    ops.post_srq_recv = post_srq_recv;
    ops.alloc_mw = alloc_mw;
    ops.bind_mw = Operation<bind_mw>::call;
    ops.dealloc_mw = Operation<dealloc_mw>::call;
}

}  // namespace

ibv_context* open_device(ibv_device* handle) {
    Device& device = from(handle);
    if (!device.provider->start()) return fail<ibv_context>(ENODEV);
    auto* context = new (std::nothrow) Context{};
    if (context == nullptr) return fail<ibv_context>(ENOMEM);
    // A program duplicates this descriptor to pass the context to another process, which preload/device_list.cc
    // refuses.
    context->context.cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (context->async_events.fd() < 0 || context->context.cmd_fd < 0) {
        delete context;
        return fail<ibv_context>(EMFILE);
    }
    context->device = &device;
    context->interface = device.interface;
    context->runtime = device.runtime;
    context->context.device = handle;
    context->context.async_fd = context->async_events.fd();
    context->context.num_comp_vectors = 1;
    context->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    pthread_mutex_init(&context->context.mutex, nullptr);
    set_operations(*context);
    device.provider->opened(*context);
    return &context->context;
}

void release(Context& context) {
    if (context.references.fetch_sub(1) != 1) return;
    context.device->provider->closed(context);
    delete &context;
}

int close_device(ibv_context* handle) {
    // A program that closes the context before it destroys its objects leaves objects that refer to the context until
    // the last one is destroyed.
    Context& context = from(handle);
    context.async_events.close();
    release(context);
    return 0;
}

__be64 device_guid(ibv_device* handle) {
    // The GUID derives from the MAC, which for some ports only the driver knows.
    Device& device = from(handle);
    if (device.guid == 0) device.provider->start();
    return device.guid;
}

int query_device(ibv_context* handle, ibv_device_attr* attr) {
    *attr = {};
    std::snprintf(attr->fw_ver, sizeof(attr->fw_ver), "rove");
    attr->node_guid = from(handle->device).guid;
    attr->vendor_id = kVendorId;
    attr->vendor_part_id = kVendorPartId;
    attr->sys_image_guid = from(handle->device).guid;
    attr->max_mr_size = UINT64_MAX;
    attr->page_size_cap = 4096;
    const auto max_qps = static_cast<int>(from(handle->device).max_qps);
    attr->max_qp = max_qps;
    attr->max_qp_wr = transport::kMaxWorkRequests;
    attr->device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                             IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SHUTDOWN_PORT | IBV_DEVICE_SRQ_RESIZE |
                             IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC;
    attr->max_sge = transport::kMaxSge;
    attr->max_sge_rd = transport::kMaxSge;
    attr->max_cq = kMaxCqs;
    attr->max_cqe = kMaxCqe;
    attr->max_mr = transport::MemoryTable::kMaxRegions;
    attr->max_mw = transport::MemoryTable::kMaxRegions;
    attr->max_pd = kMaxPds;
    attr->max_qp_rd_atom = transport::kMaxRdAtomic;
    attr->max_qp_init_rd_atom = transport::kMaxRdAtomic;
    attr->max_res_rd_atom = max_qps * static_cast<int>(transport::kMaxRdAtomic);
    attr->atomic_cap = IBV_ATOMIC_HCA;  // atomic among the QPs of this process, not with the CPU's own stores
    attr->max_mcast_grp = max_qps;
    attr->max_mcast_qp_attach = max_qps;
    attr->max_total_mcast_qp_attach = max_qps;
    attr->max_ah = kMaxAhs;
    attr->max_srq = kMaxSrqs;
    attr->max_srq_wr = transport::kMaxWorkRequests;
    attr->max_srq_sge = transport::kMaxSge;
    attr->max_pkeys = 1;
    attr->local_ca_ack_delay = 15;  // 4.096 us * 2^15 = 134 ms, generous even for a peer in shared mode that sleeps
    attr->phys_port_cnt = 1;
    return 0;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input*, ibv_device_attr_ex* attr, size_t size) {
    ibv_device_attr_ex full{};
    query_device(context, &full.orig_attr);
    full.device_cap_flags_ex =
        full.orig_attr.device_cap_flags | transport::kDeviceFlushGlobal | transport::kDeviceAtomicWrite;
    full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt;
    full.completion_timestamp_mask = UINT64_MAX;
    full.hca_core_clock = kClockKilohertz;
    full.cq_mod_caps = {.max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX};
    constexpr uint32_t kDatagrams = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV;
    constexpr uint32_t kWrites = kDatagrams | IBV_ODP_SUPPORT_WRITE;
    constexpr uint32_t kReliable = kWrites | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
    full.xrc_odp_caps = kReliable;
    full.odp_caps = {.general_caps = IBV_ODP_SUPPORT,
                     .per_transport_caps = {.rc_odp_caps = kReliable,
                                            .uc_odp_caps = kWrites | IBV_ODP_SUPPORT_SRQ_RECV,
                                            .ud_odp_caps = kDatagrams | IBV_ODP_SUPPORT_SRQ_RECV}};
    std::memset(attr, 0, size);
    std::memcpy(attr, &full, std::min(size, sizeof(full)));
    return 0;
}

int query_rt_values(ibv_context* context, ibv_values_ex* values) {
    if ((values->comp_mask & ~static_cast<uint32_t>(IBV_VALUES_MASK_RAW_CLOCK)) != 0) return EINVAL;
    // The whole value is in tv_nsec, where other devices have their ticks: a program may compare that member alone with
    // a timestamp.
    values->raw_clock = {.tv_sec = 0, .tv_nsec = static_cast<long>(from(context).runtime->now_ns())};
    return 0;
}

}  // namespace rove::verbs
