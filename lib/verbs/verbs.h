// SPDX-License-Identifier: Apache-2.0
// The verbs on rove's objects. The manual page of each call (`man ibv_...`) describes it, errors included. Only rove's
// own behaviour is described here. Functions that return int return 0 or an errno value unless noted.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "transport/qp_table.h"

namespace rove::verbs {

struct Context;
struct Qp;

// The limits that ibv_query_device() reports.
inline constexpr int kMaxQps = transport::QueuePairTable::kCapacity;  // all devices of the process together
inline constexpr int kMaxCqe = (1 << 22) - 1;                         // entries of one CQ, whose ring has 2^22
inline constexpr int kMaxCqs = 1 << 16;
inline constexpr int kMaxSrqs = 1 << 16;
inline constexpr int kMaxAhs = 1 << 20;
inline constexpr int kMaxPds = 1 << 16;
// Half of IBTA's 2^31: 2^22 PSNs at MTU 256, well within half of the PSN space.
inline constexpr uint32_t kMaxMessageBytes = 1u << 30;
// The device's vendor. NICs report an IEEE OUI; this is "rov" with the bit for locally administered addresses set.
inline constexpr uint32_t kVendorId = 0x726F76;
inline constexpr uint32_t kEceMultipath = 1;  // option of ibv_query_ece() and ibv_set_ece(): the QP may speak mp
inline constexpr uint32_t kClockKilohertz = 1'000'000;  // the unit of raw clock values and completion timestamps: 1 ns
inline constexpr uint32_t kQkeyOfQp = 1u << 31;         // IBTA 10.2.5: a Q_Key with this bit means the QP's own

// device.cc
ibv_context* open_device(ibv_device* device);
int close_device(ibv_context* context);
__be64 device_guid(ibv_device* device);
int query_device(ibv_context* context, ibv_device_attr* attr);
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t size);
int query_rt_values(ibv_context* context, ibv_values_ex* values);

// port.cc
int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t size);
int query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid);  // -1 and errno
int query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry, size_t size);
ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t count, size_t size);  // or -errno
int query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey);                       // -1 and errno
int get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey);                               // or -1
int query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed);  // in units of 100 Mb/s
// Writes a value of rdma-core's enum ibv_gid_type_sysfs to *type.
int query_gid_type(ibv_context* context, uint8_t port, unsigned index, int* type);  // -1 and errno

// memory.cc
ibv_pd* alloc_pd(ibv_context* context);
int dealloc_pd(ibv_pd* pd);
ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access);
// Returns an ibv_rereg_mr_err_code.
int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length, int access);
int dereg_mr(ibv_mr* mr);
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
ibv_mr* alloc_null_mr(ibv_pd* pd);
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list, uint32_t count);

// domain.cc
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);

// memory_window.cc
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);  // windows of type 1

// completion.cc, poll.cc
ibv_comp_channel* create_comp_channel(ibv_context* context);
int destroy_comp_channel(ibv_comp_channel* channel);
ibv_cq* create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel, int vector);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
int resize_cq(ibv_cq* cq, int entries);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);
int destroy_cq(ibv_cq* cq);
int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);  // -1 and errno
void ack_cq_events(ibv_cq* cq, unsigned count);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int poll_cq(ibv_cq* cq, int count, ibv_wc* wc);
void set_poll_functions(ibv_cq_ex& cq);

// async_event.cc
int get_async_event(ibv_context* context, ibv_async_event* event);  // -1 and errno
void ack_async_event(ibv_async_event* event);

// srq.cc
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);
int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attr);
int destroy_srq(ibv_srq* srq);
int get_srq_num(ibv_srq* srq, uint32_t* number);  // XRC SRQs only

// address.cc
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr);
int init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr);  // -1 and errno
ibv_ah* create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port);
int destroy_ah(ibv_ah* ah);
int resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, uint8_t mac[6], uint16_t* vid);

// qp.cc, modify_qp.cc
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr);
// Creates a UD QP that is QP 1 of its device's port (gsi.h). Returns null with ENOMEM also if the port has one already.
ibv_qp* create_gsi_qp(ibv_pd* pd, ibv_qp_init_attr* attr);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask);
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr);
// Always returns 0, which promises nothing and is not an errno value.
int query_qp_data_in_order(const ibv_qp* qp, ibv_wr_opcode opcode, uint32_t flags);
ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp);
int destroy_qp(ibv_qp* qp);
int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid);
int detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid);

// xrc.cc
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr);
int close_xrcd(ibv_xrcd* xrcd);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr);

// ece.cc
int query_ece(ibv_qp* qp, ibv_ece* ece);
int set_ece(ibv_qp* qp, ibv_ece* ece);

// post_send.cc, post_wr.cc, post_recv.cc
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
void set_wr_functions(ibv_qp_ex& qp);

}  // namespace rove::verbs
