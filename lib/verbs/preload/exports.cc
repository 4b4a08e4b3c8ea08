// SPDX-License-Identifier: Apache-2.0
// The exported calls of <infiniband/verbs.h>: on our objects to lib/verbs, on others to the real library. (Those that
// are inline there reach us through the context's operations instead.)
#include <algorithm>
#include <cstring>

#include "verbs/objects.h"
#include "verbs/preload/ownership.h"
#include "verbs/preload/real.h"
#include "verbs/verbs.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace rove::verbs;

extern "C" {

// A private call of rdma-core, in no installed header; ibv_devinfo uses it. The numbers are those of its
// enum ibv_gid_type_sysfs.
int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type);

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
    return is_ours(context) ? query_device(context, attr) : ROVE_REAL(ibv_query_device, context, attr);
}

int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
    if (!is_ours(context)) return ROVE_REAL(ibv_query_port, context, port, attr);
    // The old struct ends before the members that came later.
    return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr), offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
    return is_ours(context) ? query_gid(context, port, index, gid)
                            : ROVE_REAL(ibv_query_gid, context, port, index, gid);
}

int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry, uint32_t flags,
                      size_t size) {
    if (!is_ours(context)) return ROVE_REAL(_ibv_query_gid_ex, context, port, index, entry, flags, size);
    return flags != 0 ? EINVAL : query_gid_ex(context, port, index, entry, size);
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t count, uint32_t flags, size_t size) {
    if (!is_ours(context)) return ROVE_REAL(_ibv_query_gid_table, context, entries, count, flags, size);
    return flags != 0 ? -EINVAL : query_gid_table(context, entries, count, size);
}

int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type) {
    if (!is_ours(context)) return ROVE_REAL(ibv_query_gid_type, context, port, index, type);
    constexpr int kSysfsRoceV2 = 1;
    ibv_gid gid;
    if (query_gid(context, port, static_cast<int>(index), &gid) != 0) return -1;
    *type = kSysfsRoceV2;
    return 0;
}

int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
    return is_ours(context) ? query_pkey(context, port, index, pkey)
                            : ROVE_REAL(ibv_query_pkey, context, port, index, pkey);
}

int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
    return is_ours(context) ? get_pkey_index(context, port, pkey) : ROVE_REAL(ibv_get_pkey_index, context, port, pkey);
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
    return is_ours(context) ? alloc_pd(context) : ROVE_REAL(ibv_alloc_pd, context);
}

int ibv_dealloc_pd(ibv_pd* pd) {
    return is_ours(pd) ? dealloc_pd(pd) : ROVE_REAL(ibv_dealloc_pd, pd);
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
    return is_ours(pd)
               ? reg_mr(pd, address, length, reinterpret_cast<uintptr_t>(address), static_cast<unsigned>(access))
               : ROVE_REAL(ibv_reg_mr, pd, address, length, access);
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length, uint64_t iova, int access) {
    return is_ours(pd) ? reg_mr(pd, address, length, iova, static_cast<unsigned>(access))
                       : ROVE_REAL(ibv_reg_mr_iova, pd, address, length, iova, access);
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
    return is_ours(pd) ? reg_mr(pd, address, length, iova, access)
                       : ROVE_REAL(ibv_reg_mr_iova2, pd, address, length, iova, access);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
    return is_ours(pd) ? fail<ibv_mr>(EOPNOTSUPP) : ROVE_REAL(ibv_reg_dmabuf_mr, pd, offset, length, iova, fd, access);
}

int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length, int access) {
    return is_ours(mr) ? rereg_mr(mr, flags, pd, address, length, access)
                       : ROVE_REAL(ibv_rereg_mr, mr, flags, pd, address, length, access);
}

int ibv_dereg_mr(ibv_mr* mr) {
    return is_ours(mr) ? dereg_mr(mr) : ROVE_REAL(ibv_dereg_mr, mr);
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
    return is_ours(context) ? create_comp_channel(context) : ROVE_REAL(ibv_create_comp_channel, context);
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
    return is_ours(channel) ? destroy_comp_channel(channel) : ROVE_REAL(ibv_destroy_comp_channel, channel);
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel, int vector) {
    return is_ours(context) ? create_cq(context, entries, cq_context, channel, vector)
                            : ROVE_REAL(ibv_create_cq, context, entries, cq_context, channel, vector);
}

int ibv_resize_cq(ibv_cq* cq, int entries) {
    return is_ours(cq) ? resize_cq(cq, entries) : ROVE_REAL(ibv_resize_cq, cq, entries);
}

int ibv_destroy_cq(ibv_cq* cq) {
    return is_ours(cq) ? destroy_cq(cq) : ROVE_REAL(ibv_destroy_cq, cq);
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
    return is_ours(channel) ? get_cq_event(channel, cq, cq_context)
                            : ROVE_REAL(ibv_get_cq_event, channel, cq, cq_context);
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
    return is_ours(cq) ? ack_cq_events(cq, count) : ROVE_REAL(ibv_ack_cq_events, cq, count);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    return is_ours(context) ? get_async_event(context, event) : ROVE_REAL(ibv_get_async_event, context, event);
}

void ibv_ack_async_event(ibv_async_event* event) {
    return is_ours(*event) ? ack_async_event(event) : ROVE_REAL(ibv_ack_async_event, event);
}

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
    return is_ours(pd) ? create_srq(pd, attr) : ROVE_REAL(ibv_create_srq, pd, attr);
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
    return is_ours(srq) ? modify_srq(srq, attr, mask) : ROVE_REAL(ibv_modify_srq, srq, attr, mask);
}

int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
    return is_ours(srq) ? query_srq(srq, attr) : ROVE_REAL(ibv_query_srq, srq, attr);
}

int ibv_destroy_srq(ibv_srq* srq) {
    return is_ours(srq) ? destroy_srq(srq) : ROVE_REAL(ibv_destroy_srq, srq);
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
    return is_ours(pd) ? create_ah(pd, attr) : ROVE_REAL(ibv_create_ah, pd, attr);
}

int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr) {
    return is_ours(context) ? init_ah_from_wc(context, port, wc, grh, attr)
                            : ROVE_REAL(ibv_init_ah_from_wc, context, port, wc, grh, attr);
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
    return is_ours(pd) ? create_ah_from_wc(pd, wc, grh, port) : ROVE_REAL(ibv_create_ah_from_wc, pd, wc, grh, port);
}

int ibv_destroy_ah(ibv_ah* ah) {
    return is_ours(ah) ? destroy_ah(ah) : ROVE_REAL(ibv_destroy_ah, ah);
}

int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, uint8_t mac[6], uint16_t* vid) {
    return is_ours(context) ? resolve_eth_l2_from_gid(context, attr, mac, vid)
                            : ROVE_REAL(ibv_resolve_eth_l2_from_gid, context, attr, mac, vid);
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
    return is_ours(pd) ? create_qp(pd, attr) : ROVE_REAL(ibv_create_qp, pd, attr);
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
    if (!is_ours(qp)) return ROVE_REAL(ibv_qp_to_qp_ex, qp);
    return from(qp).has_wr_api ? &from(qp) : nullptr;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
    return is_ours(qp) ? modify_qp(qp, attr, mask) : ROVE_REAL(ibv_modify_qp, qp, attr, mask);
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) {
    return is_ours(qp) ? query_qp(qp, attr, mask, init_attr) : ROVE_REAL(ibv_query_qp, qp, attr, mask, init_attr);
}

int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, uint32_t flags) {
    // 0: no promise. A retransmission writes bytes again that were written before.
    return is_ours(qp) ? 0 : ROVE_REAL(ibv_query_qp_data_in_order, qp, opcode, flags);
}

int ibv_destroy_qp(ibv_qp* qp) {
    return is_ours(qp) ? destroy_qp(qp) : ROVE_REAL(ibv_destroy_qp, qp);
}

int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
    return is_ours(qp) ? attach_mcast(qp, gid, lid) : ROVE_REAL(ibv_attach_mcast, qp, gid, lid);
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
    return is_ours(qp) ? detach_mcast(qp, gid, lid) : ROVE_REAL(ibv_detach_mcast, qp, gid, lid);
}

int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
    return is_ours(qp) ? EOPNOTSUPP : ROVE_REAL(ibv_query_ece, qp, ece);
}

int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
    return is_ours(qp) ? EOPNOTSUPP : ROVE_REAL(ibv_set_ece, qp, ece);
}

ibv_pd* ibv_import_pd(ibv_context* context, uint32_t handle) {
    return is_ours(context) ? fail<ibv_pd>(EOPNOTSUPP) : ROVE_REAL(ibv_import_pd, context, handle);
}

ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t handle) {
    return is_ours(pd) ? fail<ibv_mr>(EOPNOTSUPP) : ROVE_REAL(ibv_import_mr, pd, handle);
}

ibv_dm* ibv_import_dm(ibv_context* context, uint32_t handle) {
    return is_ours(context) ? fail<ibv_dm>(EOPNOTSUPP) : ROVE_REAL(ibv_import_dm, context, handle);
}

}  // extern "C"
