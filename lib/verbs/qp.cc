// SPDX-License-Identifier: Apache-2.0
// Queue pairs: creation, query, destruction, and multicast groups.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "verbs/event_ack.h"
#include "verbs/objects.h"
#include "verbs/verbs.h"
#include "verbs/xrc.h"

namespace rove::verbs {

namespace {

constexpr uint64_t kSendOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
                              IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                              IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                              IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW |
                              transport::kSendOpFlush | transport::kSendOpAtomicWrite;

bool is_offered(ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_RC:
        case IBV_QPT_UC:
        case IBV_QPT_UD:
        case IBV_QPT_XRC_SEND:
        case IBV_QPT_XRC_RECV:
            return true;
        default:
            return false;
    }
}

// Clears the attributes that the type ignores (man ibv_create_qp_ex; annex A14). An XRC INI QP receives nothing; a TGT
// QP uses the queues of the SRQ that a message names.
void drop_ignored(ibv_qp_init_attr& attr) {
    if (attr.qp_type == IBV_QPT_XRC_SEND || attr.qp_type == IBV_QPT_XRC_RECV) {
        attr.recv_cq = nullptr;
        attr.srq = nullptr;
        attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
    }
    if (attr.qp_type == IBV_QPT_XRC_RECV) {
        attr.send_cq = nullptr;
        attr.cap = {};
    }
}

// Returns 0, EINVAL or EOPNOTSUPP (a type that rove does not offer).
int check(const ibv_pd* pd, const ibv_qp_init_attr& attr) {
    if (!is_offered(attr.qp_type)) return EOPNOTSUPP;
    if (pd == nullptr || attr.qp_type == IBV_QPT_XRC_RECV) return EINVAL;
    const bool receives_here = attr.qp_type != IBV_QPT_XRC_SEND;
    if (attr.send_cq == nullptr || attr.send_cq->context != pd->context) return EINVAL;
    if (receives_here && (attr.recv_cq == nullptr || attr.recv_cq->context != pd->context)) return EINVAL;
    // Any type that receives may use an SRQ, UC included: ib_core leaves that to the driver, and rxe makes no
    // difference (rxe_resp.c: check_resource). For UC an empty SRQ is like an empty receive queue: the message is
    // dropped (IBTA 9.8.3.2).
    if (attr.srq != nullptr && attr.srq->context != pd->context) return EINVAL;
    const ibv_qp_cap& cap = attr.cap;
    if (cap.max_send_wr > transport::kMaxWorkRequests || cap.max_send_sge > transport::kMaxSge) return EINVAL;
    // With an SRQ the receive queue's capabilities are ignored (man ibv_create_qp).
    const bool receives = attr.srq == nullptr;
    if (receives && (cap.max_recv_wr > transport::kMaxWorkRequests || cap.max_recv_sge > transport::kMaxSge)) {
        return EINVAL;
    }
    return cap.max_inline_data > transport::kMaxInlineBytes ? EINVAL : 0;
}

// Allocates the queues and gives the transport the constant attributes. `xrcd` without `pd` means an XRC TGT QP.
// Returns false if there is no memory.
bool set_up(Qp& qp, ibv_pd* pd, const XrcDomain* xrcd, const ibv_qp_init_attr& attr) {
    transport::QueuePair& t = qp.transport;
    const ibv_qp_cap& cap = attr.cap;
    t.type = attr.qp_type;
    t.sq_sig_all = attr.sq_sig_all != 0;
    t.pd = pd != nullptr ? &from(pd) : nullptr;
    t.xrcd = xrcd;
    t.owner = &qp;
    t.send_cq = attr.send_cq != nullptr ? &from(attr.send_cq).queue : nullptr;
    t.recv_cq = attr.recv_cq != nullptr ? &from(attr.recv_cq).queue : nullptr;
    t.srq = attr.srq != nullptr ? &from(attr.srq).queue : nullptr;
    t.max_recv_sge = xrcd != nullptr    ? transport::kMaxSge  // valid for any SRQ
                     : t.srq != nullptr ? t.srq->max_sge
                                        : cap.max_recv_sge;
    t.recv_pd = attr.srq != nullptr ? &from(attr.srq->pd) : t.pd;
    t.port = qp.context->interface->port();
    t.mac = qp.context->interface->mac();
    t.port_mtu = qp.context->interface->max_mtu();
    t.hello.peers = &qp.context->interface->hello_peers();
    qp.send_rules = SendRules(attr.qp_type, cap, qp.context->interface->max_mtu());
    t.slot.sges.reset(new (std::nothrow) ibv_sge[t.max_recv_sge]);
    return t.slot.sges != nullptr && t.sq.init(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data) &&
           t.rq.init(t.srq != nullptr ? 0 : cap.max_recv_wr, cap.max_recv_sge);
}

void fill_public(Qp& qp, ibv_pd* pd, const ibv_qp_init_attr& attr) {
    ibv_qp& base = qp.qp_base;
    base.context = &qp.context->context;
    base.qp_context = attr.qp_context;
    base.pd = pd;
    base.send_cq = attr.send_cq;
    base.recv_cq = attr.recv_cq;
    base.srq = attr.srq;
    base.qp_num = qp.transport.qpn;
    base.handle = qp.transport.qpn;
    base.state = IBV_QPS_RESET;
    base.qp_type = attr.qp_type;
    init_acks(base);
}

// Returns true for IPv6 multicast groups, and for IPv4 groups in RoCE v2's form, ::ffff:224.0.0.0/100.
bool is_multicast(const ibv_gid& gid) {
    wire::Gid address;
    std::memcpy(address.data(), gid.raw, address.size());
    return address[0] == 0xFF || (wire::is_ipv4_mapped(address) && address[12] >> 4 == 0xE);
}

enum class Number : uint8_t { kAny, kGsi };

// Returns a QP in RESET that packets can find, or null if there is no memory. The attributes must be valid.
std::unique_ptr<Qp> make(Context& context, ibv_pd* pd, const XrcDomain* xrcd, const ibv_qp_init_attr& attr,
                         bool blocks_own_multicast, Number number = Number::kAny) {
    auto qp = std::unique_ptr<Qp>(new (std::nothrow) Qp{});
    if (qp == nullptr) return nullptr;
    qp->context = &context;
    qp->transport.blocks_own_multicast = blocks_own_multicast;
    qp->runtime = context.runtime;
    qp->place = context.device->qps.take();
    if (!qp->place || !set_up(*qp, pd, xrcd, attr)) return nullptr;
    qp->transport.worker = qp->runtime->choose_worker(*context.interface);
    transport::QueuePairTable& table = qp->runtime->queue_pairs();
    const bool inserted = number == Number::kGsi ? table.insert_gsi(qp->transport) : table.insert(qp->transport);
    if (!inserted) return nullptr;
    fill_public(*qp, pd, attr);
    qp->init_attr = attr;
    return qp;
}

ibv_qp* create(ibv_pd* pd, ibv_qp_init_attr& attr, bool with_wr_api, bool blocks_own_multicast,
               Number number = Number::kAny) {
    ibv_qp_init_attr used = attr;
    drop_ignored(used);
    const int error = check(pd, used);
    if (error != 0) return fail<ibv_qp>(error);
    if (used.srq != nullptr) used.cap.max_recv_wr = used.cap.max_recv_sge = 0;
    // Inline data uses the space of the gather list, so a QP that asked for no inline data has some, as with other
    // devices. rdma_xclient relies on that.
    used.cap.max_inline_data = std::max<uint32_t>(used.cap.max_inline_data, used.cap.max_send_sge * sizeof(ibv_sge));
    std::unique_ptr<Qp> qp = make(context_of(*pd), pd, nullptr, used, blocks_own_multicast, number);
    if (qp == nullptr) return fail<ibv_qp>(ENOMEM);
    attr.cap = used.cap;
    qp->has_wr_api = with_wr_api;
    set_wr_functions(*qp);
    retain(pd);
    from(used.send_cq).references.fetch_add(1);
    if (used.recv_cq != nullptr) from(used.recv_cq).references.fetch_add(1);
    if (used.srq != nullptr) from(used.srq).references.fetch_add(1);
    return &qp.release()->qp_base;
}

// Creates an XRC TGT QP. The program gets a handle of it (xrc.cc).
ibv_qp* create_target(ibv_context* context, ibv_xrcd* xrcd, ibv_qp_init_attr& attr) {
    if (xrcd == nullptr || xrcd->context != context) return fail<ibv_qp>(EINVAL);
    drop_ignored(attr);
    const std::shared_ptr<XrcDomain>& domain = from(xrcd).domain;
    std::unique_ptr<Qp> target = make(from(context), nullptr, domain.get(), attr, false);
    if (target == nullptr) return fail<ibv_qp>(ENOMEM);
    target->xrc = std::make_shared<XrcTarget>(XrcTarget{.domain = domain, .handles = {}});
    return adopt_target(xrcd, std::move(target), attr.qp_context);
}

// Removes the QP so that no packet finds it any more.
void retire(Qp& qp) {
    {
        datapath::Worker& worker = qp.runtime->worker_of(qp.transport);
        const datapath::Worker::Hold hold(worker);
        qp.runtime->queue_pairs().remove(qp.transport);
        worker.remove(hold, qp.transport);
    }
    qp.runtime->memory().unbind_all(qp.transport);
    for (ibv_cq* handle : {qp.qp_base.send_cq, qp.qp_base.recv_cq}) {
        if (handle == nullptr) continue;
        Cq& cq = from(handle);
        std::lock_guard guard(cq.lock);
        cq.queue.forget(qp.transport.qpn);
    }
    qp.runtime->grace_period().wait();  // another worker may be looking up the QP's owner
}

// Removes the QP's waiting events, and waits until the delivered ones are acknowledged.
void drop_events(Qp& qp) {
    ibv_qp* const handle = &qp.qp_base;
    qp.context->async_events.drop([&](const ibv_async_event& event) {
        switch (event.event_type) {
            case IBV_EVENT_CQ_ERR:
            case IBV_EVENT_SRQ_ERR:
            case IBV_EVENT_SRQ_LIMIT_REACHED:
            case IBV_EVENT_PORT_ACTIVE:
            case IBV_EVENT_PORT_ERR:
            case IBV_EVENT_GID_CHANGE:
                return false;
            default:
                return event.element.qp == handle;
        }
    });
    wait_acknowledged(*handle, handle->events_completed, qp.events_delivered);
}

int destroy_handle(Qp& handle) {
    if (Qp* const target = close_handle(handle)) {
        retire(*target);
        Context& context = *target->context;
        delete target;
        release(context);
    }
    drop_events(handle);
    handle.xrcd->references.fetch_sub(1);
    delete &handle;
    return 0;
}

}  // namespace

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
    return create(pd, *attr, false, false);
}

ibv_qp* create_gsi_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
    return create(pd, *attr, false, false, Number::kGsi);
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
    constexpr uint32_t kKnown =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const auto has = [&](uint32_t bit) { return (attr->comp_mask & bit) != 0; };
    if ((attr->comp_mask & ~kKnown) != 0) return fail<ibv_qp>(EOPNOTSUPP);
    const bool is_target = attr->qp_type == IBV_QPT_XRC_RECV;
    if (is_target ? !has(IBV_QP_INIT_ATTR_XRCD) : !has(IBV_QP_INIT_ATTR_PD) || attr->pd->context != context)
        return fail<ibv_qp>(EINVAL);
    const uint32_t flags = has(IBV_QP_INIT_ATTR_CREATE_FLAGS) ? attr->create_flags : 0;
    if ((flags & ~uint32_t{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB}) != 0) return fail<ibv_qp>(EOPNOTSUPP);
    const bool with_wr_api = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    if (with_wr_api && (attr->send_ops_flags & ~kSendOps) != 0) return fail<ibv_qp>(EOPNOTSUPP);
    ibv_qp_init_attr basic{.qp_context = attr->qp_context,
                           .send_cq = attr->send_cq,
                           .recv_cq = attr->recv_cq,
                           .srq = attr->srq,
                           .cap = attr->cap,
                           .qp_type = attr->qp_type,
                           .sq_sig_all = attr->sq_sig_all};
    ibv_qp* qp =
        is_target ? create_target(context, attr->xrcd, basic) : create(attr->pd, basic, with_wr_api, flags != 0);
    // A TGT QP receives in the PDs of SRQs and has no PD of its own, but reports the one that was named: librdmacm
    // continues to use it.
    if (is_target && qp != nullptr && has(IBV_QP_INIT_ATTR_PD)) qp->pd = attr->pd;
    attr->cap = basic.cap;
    return qp;
}

// `handle->state` belongs to the program: as in libibverbs, it changes when the program sets or queries the state.
int query_qp(ibv_qp* handle, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) {
    Qp& qp = underlying_qp(handle);
    std::lock_guard guard(qp.control);
    datapath::Worker::Hold hold(qp.runtime->worker_of(qp.transport));
    const transport::QueuePair& t = qp.transport;
    *attr = qp.attr;
    attr->qp_state = attr->cur_qp_state = t.state;
    if ((mask & IBV_QP_STATE) != 0) handle->state = t.state;
    attr->sq_psn = t.next_psn();
    attr->rq_psn = t.expected_psn();
    attr->sq_draining = t.position.draining;
    attr->path_mig_state = IBV_MIG_MIGRATED;
    attr->cap = qp.init_attr.cap;
    *init_attr = qp.init_attr;
    init_attr->qp_context = handle->qp_context;
    return 0;
}

int query_qp_data_in_order(const ibv_qp*, ibv_wr_opcode, uint32_t) {
    // rove makes no promise. rc places packets in order, but copies the bytes of each with memcpy(), which may write
    // the last ones first.
    return 0;
}

ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) {
    return from(qp).has_wr_api ? &from(qp) : nullptr;
}

int destroy_qp(ibv_qp* handle) {
    Qp& qp = from(handle);
    if (qp.multicast_groups.load() != 0) return EBUSY;
    if (qp.target != nullptr) return destroy_handle(qp);
    retire(qp);
    drop_events(qp);
    from(handle->send_cq).references.fetch_sub(1);
    if (handle->recv_cq != nullptr) from(handle->recv_cq).references.fetch_sub(1);
    if (handle->srq != nullptr) from(handle->srq).references.fetch_sub(1);
    release(handle->pd);
    delete &qp;
    return 0;
}

int attach_mcast(ibv_qp* handle, const ibv_gid* gid, uint16_t) {
    Qp& qp = from(handle);
    if (handle->qp_type != IBV_QPT_UD || !is_multicast(*gid)) return EINVAL;
    wire::Gid group;
    std::memcpy(group.data(), gid->raw, group.size());
    if (!qp.runtime->queue_pairs().groups().attach(group, qp.transport)) return 0;
    if (const int error = qp.context->interface->join(group); error != 0) {
        qp.runtime->queue_pairs().groups().detach(group, qp.transport);
        return error;
    }
    qp.multicast_groups.fetch_add(1);
    return 0;
}

int detach_mcast(ibv_qp* handle, const ibv_gid* gid, uint16_t) {
    Qp& qp = from(handle);
    wire::Gid group;
    std::memcpy(group.data(), gid->raw, group.size());
    if (!qp.runtime->queue_pairs().groups().detach(group, qp.transport)) return EINVAL;
    qp.multicast_groups.fetch_sub(1);
    qp.context->interface->leave(group);
    return 0;
}

}  // namespace rove::verbs
