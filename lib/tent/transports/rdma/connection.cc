// SPDX-License-Identifier: Apache-2.0
// See connection.h.
#include "tent/transports/rdma/connection.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

namespace rove::tent {

namespace {

// The service levels of HIGH, MEDIUM and LOW for the datapath (docs/guide/verbs.md). They are added to the configured
// one.
constexpr std::array<uint8_t, kPriorities> kServiceLevels{5, 0, 1};

ibv_mtu to_enum(uint32_t mtu) {
    return static_cast<ibv_mtu>(std::countr_zero(mtu) - 7);  // 256 is 1, 4096 is 5
}

}  // namespace

Json to_json(const Endpoint& endpoint) {
    return {{"gid", to_hex(endpoint.gid)},
            {"mtu", endpoint.mtu},
            {"qpns", endpoint.qpns},
            {"psns", endpoint.psns},
            {"probe_addr", endpoint.probe_address},
            {"probe_rkey", endpoint.probe_rkey}};
}

std::optional<Endpoint> parse_endpoint(const Json& object) {
    Endpoint endpoint;
    std::string gid;
    if (!get(object, "gid", &gid) || !from_hex(gid, &endpoint.gid) || !get(object, "mtu", &endpoint.mtu) ||
        !get(object, "probe_addr", &endpoint.probe_address) || !get(object, "probe_rkey", &endpoint.probe_rkey)) {
        return std::nullopt;
    }
    if (!std::has_single_bit(endpoint.mtu) || endpoint.mtu < 256 || endpoint.mtu > 4096) return std::nullopt;
    const auto numbers = [&](const char* key, auto& out) {
        const Json* list = get_array(object, key, kPriorities * kMaxLanes);
        if (list == nullptr || list->empty() || list->size() % kPriorities != 0) return false;
        for (const Json& one : *list) {
            if (!one.is_number_unsigned() || one.get<uint64_t>() > 0xFFFFFF) return false;  // both have 24 bits
            out.push_back(one.get<uint32_t>());
        }
        return true;
    };
    if (!numbers("qpns", endpoint.qpns) || !numbers("psns", endpoint.psns)) return std::nullopt;
    if (endpoint.qpns.size() != endpoint.psns.size()) return std::nullopt;
    return endpoint;
}

std::unique_ptr<Connection> Connection::create(const VerbsDevice& device, const EndpointConfig& config, uint32_t lanes,
                                               size_t shard) {
    std::unique_ptr<Connection> made(new Connection(device, config));
    std::random_device random;
    for (size_t i = 0; i < kPriorities * lanes; ++i) {
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = device.cq(shard);
        init.qp_type = IBV_QPT_RC;
        init.cap = {.max_send_wr = config.max_qp_wr, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
        ibv_qp* qp = ibv_create_qp(device.pd(), &init);
        if (qp == nullptr) return nullptr;
        made->qps_.push_back(qp);
        made->psns_.push_back(random() & 0xFFFFFF);
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
        if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) {
            return nullptr;
        }
    }
    return made;
}

Endpoint Connection::local() const {
    Endpoint endpoint;
    std::memcpy(endpoint.gid.data(), device_.gid().raw, endpoint.gid.size());
    endpoint.mtu = std::min(device_.mtu(), config_.path_mtu);
    for (const ibv_qp* qp : qps_) endpoint.qpns.push_back(qp->qp_num);
    endpoint.psns = psns_;
    endpoint.probe_address = device_.probe_address();
    endpoint.probe_rkey = device_.probe_region()->rkey;
    return endpoint;
}

int Connection::to_rtr(size_t which) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = to_enum(std::min({device_.mtu(), config_.path_mtu, remote_.mtu}));
    attr.dest_qp_num = remote_.qpns[which];
    attr.rq_psn = remote_.psns[which];
    attr.max_dest_rd_atomic = config_.max_rd_atomic;
    attr.min_rnr_timer = config_.min_rnr_timer;
    std::memcpy(attr.ah_attr.grh.dgid.raw, remote_.gid.data(), remote_.gid.size());
    attr.ah_attr.grh.sgid_index = device_.gid_index();
    attr.ah_attr.grh.hop_limit = config_.hop_limit;
    attr.ah_attr.grh.traffic_class = config_.traffic_class;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.sl = static_cast<uint8_t>(std::min(7, config_.service_level + kServiceLevels[which % kPriorities]));
    attr.ah_attr.port_num = 1;
    return ibv_modify_qp(qps_[which], &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int Connection::to_rts(size_t which) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = psns_[which];
    attr.timeout = config_.send_timeout;
    attr.retry_cnt = config_.send_retry_count;
    attr.rnr_retry = config_.send_rnr_count;
    attr.max_rd_atomic = config_.max_rd_atomic;
    return ibv_modify_qp(
        qps_[which], &attr,
        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

int Connection::connect(const Endpoint& remote, bool active) {
    if (remote.qpns.size() != qps_.size()) return EINVAL;
    remote_ = remote;
    for (size_t i = 0; i < qps_.size(); ++i) {
        int error = to_rtr(i);
        if (error == 0 && active) error = to_rts(i);
        if (error != 0) return error;
    }
    return 0;
}

void Connection::destroy() {
    for (ibv_qp* qp : qps_) ibv_destroy_qp(qp);
    qps_.clear();
}

}  // namespace rove::tent
