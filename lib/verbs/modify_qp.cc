// SPDX-License-Identifier: Apache-2.0
// ibv_modify_qp: everything is checked, and the path resolved, before anything changes.
#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>

#include "verbs/address.h"
#include "verbs/objects.h"
#include "verbs/transition.h"
#include "verbs/verbs.h"

namespace rove::verbs {

namespace {

// The values have 5, 3 and 5 bits (IBTA 9.7.6.1.3, 9.7.5.2.8).
constexpr uint8_t kMaxTimeout = 31, kMaxRetry = 7, kMaxRnrTimer = 31;
constexpr unsigned kRemoteAccess = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kFlush = transport::kAccessFlushGlobal | transport::kAccessFlushPersistent;
// Flags that only matter for memory are accepted, as NICs do: programs give a QP the flags of their regions.
constexpr unsigned kKnownAccess = kRemoteAccess | kFlush | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND |
                                  IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB |
                                  IBV_ACCESS_OPTIONAL_RANGE;

constexpr uint32_t mtu_bytes(ibv_mtu mtu) {
    return 128u << mtu;
}

bool are_values_valid(const Qp& qp, const ibv_qp_attr& attr, int mask) {
    const auto has = [mask](int bit) { return (mask & bit) != 0; };
    if (has(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0) return false;
    if (has(IBV_QP_PORT) && attr.port_num != 1) return false;
    if (has(IBV_QP_ACCESS_FLAGS) && (attr.qp_access_flags & ~kKnownAccess) != 0) return false;
    if (has(IBV_QP_AV) && check_address(*qp.context, attr.ah_attr) != 0) return false;
    if (has(IBV_QP_PATH_MTU) && (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096 ||
                                 mtu_bytes(attr.path_mtu) > qp.context->interface->max_mtu())) {
        return false;
    }
    if (has(IBV_QP_TIMEOUT) && attr.timeout > kMaxTimeout) return false;
    if (has(IBV_QP_RETRY_CNT) && attr.retry_cnt > kMaxRetry) return false;
    if (has(IBV_QP_RNR_RETRY) && attr.rnr_retry > kMaxRetry) return false;
    if (has(IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > kMaxRnrTimer) return false;
    if (has(IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > transport::kMaxRdAtomic) return false;
    return !has(IBV_QP_MAX_DEST_RD_ATOMIC) || attr.max_dest_rd_atomic <= transport::kMaxRdAtomic;
}

// Stores the attributes that ibv_query_qp() returns.
void remember(ibv_qp_attr& kept, const ibv_qp_attr& attr, int mask) {
    const auto has = [mask](int bit) { return (mask & bit) != 0; };
    if (has(IBV_QP_PKEY_INDEX)) kept.pkey_index = attr.pkey_index;
    if (has(IBV_QP_PORT)) kept.port_num = attr.port_num;
    if (has(IBV_QP_QKEY)) kept.qkey = attr.qkey;
    if (has(IBV_QP_ACCESS_FLAGS)) kept.qp_access_flags = attr.qp_access_flags;
    if (has(IBV_QP_AV)) kept.ah_attr = attr.ah_attr;
    if (has(IBV_QP_PATH_MTU)) kept.path_mtu = attr.path_mtu;
    if (has(IBV_QP_DEST_QPN)) kept.dest_qp_num = attr.dest_qp_num;
    if (has(IBV_QP_TIMEOUT)) kept.timeout = attr.timeout;
    if (has(IBV_QP_RETRY_CNT)) kept.retry_cnt = attr.retry_cnt;
    if (has(IBV_QP_RNR_RETRY)) kept.rnr_retry = attr.rnr_retry;
    if (has(IBV_QP_MIN_RNR_TIMER)) kept.min_rnr_timer = attr.min_rnr_timer;
    if (has(IBV_QP_MAX_QP_RD_ATOMIC)) kept.max_rd_atomic = attr.max_rd_atomic;
    if (has(IBV_QP_MAX_DEST_RD_ATOMIC)) kept.max_dest_rd_atomic = attr.max_dest_rd_atomic;
}

// Copies the attributes to the transport. The caller holds the QP's worker.
void apply(transport::QueuePair& t, const ibv_qp_attr& kept, int mask) {
    const auto has = [mask](int bit) { return (mask & bit) != 0; };
    if (has(IBV_QP_QKEY)) t.qkey = kept.qkey;
    if (has(IBV_QP_ACCESS_FLAGS)) t.access = kept.qp_access_flags & (kRemoteAccess | kFlush);
    if (has(IBV_QP_PATH_MTU)) t.mtu = mtu_bytes(kept.path_mtu);
    if (has(IBV_QP_DEST_QPN)) t.remote_qpn = kept.dest_qp_num & 0xFFFFFF;
    if (has(IBV_QP_TIMEOUT)) t.timeout = kept.timeout;
    if (has(IBV_QP_RETRY_CNT)) t.retry_cnt = kept.retry_cnt;
    if (has(IBV_QP_RNR_RETRY)) t.rnr_retry = kept.rnr_retry;
    if (has(IBV_QP_MIN_RNR_TIMER)) t.min_rnr_timer = kept.min_rnr_timer;
    if (has(IBV_QP_MAX_QP_RD_ATOMIC)) {
        t.max_rd_atomic = kept.max_rd_atomic;
        t.make_room();
    }
    if (has(IBV_QP_MAX_DEST_RD_ATOMIC)) {
        t.max_dest_rd_atomic = kept.max_dest_rd_atomic;
        t.make_room();
    }
}

void enter_reset(Qp& qp) {
    // The QP's completions are removed from its CQs, so no thread may poll them meanwhile. CQs are locked before
    // workers, because resizing a CQ waits for workers. Two CQs are locked in the order of their addresses, whatever
    // their roles. XRC QPs lack one CQ or both.
    const auto cq_of = [](ibv_cq* cq) { return cq != nullptr ? &from(cq) : nullptr; };
    Cq* const cqs[] = {cq_of(qp.qp_base.send_cq), cq_of(qp.qp_base.recv_cq)};
    Cq* const first = std::min(cqs[0], cqs[1], std::less<>());
    Cq* const second = std::max(cqs[0], cqs[1], std::less<>());
    std::unique_lock<SpinLock> first_guard, second_guard;
    if (first != nullptr) first_guard = std::unique_lock(first->lock);
    if (second != nullptr && second != first) second_guard = std::unique_lock(second->lock);
    datapath::Worker& worker = qp.runtime->worker_of(qp.transport);
    const datapath::Worker::Hold hold(worker);
    worker.set_state(hold, qp.transport, IBV_QPS_RESET);
    qp.attr = {};
    qp.refuses_multipath = false;
}

// Resolves the path of a connected QP. The hash for the UDP source port covers both QPNs, so the attributes must be
// merged already.
int resolve(const Qp& qp, const ibv_qp_attr& merged, transport::Path& path) {
    const uint16_t udp_source_port = datapath::RdmaInterface::udp_source_port(merged.ah_attr.grh.flow_label & 0xFFFFF,
                                                                              qp.transport.qpn, merged.dest_qp_num);
    // DCQCN needs congestion marks: the packets declare that their transport reacts to ECN (RFC 3168).
    return resolve_path(*qp.context, merged.ah_attr, udp_source_port, wire::kEcnEct0, path);
}

}  // namespace

int modify_qp(ibv_qp* handle, ibv_qp_attr* attr, int given_mask) {
    Qp& qp = underlying_qp(handle);
    transport::QueuePair& t = qp.transport;
    const int mask = without_ignored(t.type, given_mask);
    datapath::Worker& worker = qp.runtime->worker_of(t);
    const auto has = [mask](int bit) { return (mask & bit) != 0; };
    std::lock_guard guard(qp.control);

    const ibv_qp_state before = t.state;
    const ibv_qp_state after = has(IBV_QP_STATE) ? attr->qp_state : before;
    if (has(IBV_QP_CUR_STATE) && attr->cur_qp_state != before) return EINVAL;
    if (!is_transition_allowed(t.type, before, after, mask) || !are_values_valid(qp, *attr, mask)) return EINVAL;
    if (after == IBV_QPS_RESET) {
        enter_reset(qp);
        handle->state = IBV_QPS_RESET;
        return 0;
    }

    ibv_qp_attr merged = qp.attr;
    remember(merged, *attr, mask);
    std::optional<transport::Path> path;
    if (has(IBV_QP_AV)) {
        const int error = resolve(qp, merged, path.emplace());
        if (error != 0) return error;
    }

    const bool connects = after == IBV_QPS_RTR && before == IBV_QPS_INIT;
    const uint32_t port_rate_mbps = connects ? qp.context->interface->rate_mbps() : 0;
    bool multipath = false;
    std::optional<bool> agreed;
    if (connects && t.type == IBV_QPT_RC) {
        const wire::Gid& peer = path->flow.dst;
        agreed = qp.context->device->agreed_peers.find({peer, merged.dest_qp_num, attr->rq_psn});
    }
    if (agreed) {
        const transport::Mode mode = qp.runtime->config().transport.mode;
        multipath = *agreed && !qp.refuses_multipath && mode != transport::Mode::kRc && !path->loopback;
        if (mode == transport::Mode::kMp && !multipath && !path->loopback) return EPROTONOSUPPORT;
    } else if (connects && t.type == IBV_QPT_RC && !qp.refuses_multipath) {
        const int error = qp.context->interface->agree_on_multipath(t, *path, merged.dest_qp_num, multipath);
        if (error != 0) return error;
    }

    datapath::Worker::Hold hold(worker);
    // An error may have changed the state while the path was being resolved.
    if (t.state != before) return EINVAL;
    apply(t, merged, mask);
    if (has(IBV_QP_MAX_QP_RD_ATOMIC)) {
        std::lock_guard posting(t.sq.posting);
        qp.send_rules.allow_responses(merged.max_rd_atomic != 0);
    }
    if (path) t.path = *path;
    if (agreed) {
        using Hello = transport::HelloState;
        t.hello.begin({t.remote_qpn, t.path.flow.dst}, nullptr, 0);
        t.hello.decision = multipath ? Hello::Decision::kMp : Hello::Decision::kRc;
    }
    if (connects) {
        t.port_rate_bytes_per_s = uint64_t{port_rate_mbps} * 125'000;
        worker.set_priority(hold, t, qp.runtime->config().priorities[merged.ah_attr.sl]);
        worker.start_receiving(hold, t, has(IBV_QP_RQ_PSN) ? attr->rq_psn & transport::Psn::kMask : 0, multipath);
    }
    if (after == IBV_QPS_RTS && before == IBV_QPS_RTR) {
        worker.start_sending(hold, t, attr->sq_psn & transport::Psn::kMask);
    }
    if (after == IBV_QPS_SQD && before == IBV_QPS_RTS) {
        qp.notify_drained = has(IBV_QP_EN_SQD_ASYNC_NOTIFY) && attr->en_sqd_async_notify != 0;
    }
    if (after != before) worker.set_state(hold, t, after);
    qp.attr = merged;
    if (has(IBV_QP_STATE)) handle->state = after;
    return 0;
}

}  // namespace rove::verbs
