// SPDX-License-Identifier: Apache-2.0
// Commands that make and end connections, and report their QP attributes.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdmacm/commands.h"
#include "rdmacm/state.h"
#include "transport/queue_pair.h"

namespace rove::verbs::ucma {

namespace {

// The RNR timer code for 0.64 ms (IBTA table 45), which a responder without a receive sends in its NAK. Linux uses code
// 0, which is 655 ms, and a program whose receives are late waits all of that.
constexpr uint8_t kMinRnrTimer = 12;
constexpr uint8_t kHopLimit = 64;

std::span<const uint8_t> private_data_of(const rdma_ucm_conn_param& parameters) {
    return {parameters.private_data, parameters.private_data_len};
}

cm::TransportService service_of(ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_UC:
            return cm::TransportService::kUc;
        case IBV_QPT_XRC_SEND:
        case IBV_QPT_XRC_RECV:
            return cm::TransportService::kExtended;
        default:
            return cm::TransportService::kRc;
    }
}

}  // namespace

cm::Path RdmaCmServer::path_of(const Id& id) const {
    cm::Path path;
    path.interface = static_cast<uint32_t>(id.local->device);
    path.flow.src = local_gid(id);
    path.flow.dst = id.remote_gid;
    path.flow.traffic_class = id.traffic_class;
    path.flow.hop_limit = kHopLimit;
    return path;
}

ib_uverbs_ah_attr RdmaCmServer::address_of(const Id& id, const wire::Gid& destination) const {
    ib_uverbs_ah_attr address{};
    std::memcpy(address.grh.dgid, destination.data(), sizeof(address.grh.dgid));
    address.grh.sgid_index = static_cast<uint8_t>(id.local->gid_index);
    address.grh.hop_limit = kHopLimit;
    address.grh.traffic_class = id.remote ? id.remote->traffic_class : id.traffic_class;
    address.grh.flow_label = id.remote ? id.remote->flow_label : 0;
    address.sl = static_cast<uint8_t>(address.grh.traffic_class >> 5);
    address.is_global = 1;
    address.port_num = 1;
    return address;
}

cm::Endpoint RdmaCmServer::endpoint_of(const Id& id, const rdma_ucm_conn_param& given, const cm::Ece& ece) const {
    return {.qpn = given.qp_num,
            .starting_psn = id.local_psn,
            .qkey = 0,
            .ca_guid = be64toh(device(id).guid),
            .responder_resources = given.responder_resources,
            .initiator_depth = given.initiator_depth,
            .rnr_retry_count = std::min<uint8_t>(given.rnr_retry_count, 7),
            .flow_control = given.flow_control != 0,
            .srq = given.srq != 0,
            .ece = ece};
}

// Sets the id's QP number; 0 removes it.
void RdmaCmServer::set_qpn(Id& id, uint32_t qpn) {
    if (const auto found = by_qpn_.find(id.qpn); found != by_qpn_.end() && found->second == &id) by_qpn_.erase(found);
    id.qpn = qpn;
    if (qpn != 0) by_qpn_.insert_or_assign(qpn, &id);
}

int RdmaCmServer::connect(const std::shared_ptr<Channel>& channel, const Header&, In in) {
    const auto command = parse<rdma_ucm_connect>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    const rdma_ucm_conn_param& given = command.conn_param;
    if (id->state != IdState::kRouteResolved || given.valid == 0) return EINVAL;
    const uint64_t service_id = cm::service_id_of(id->port_space, id->destination.port());
    const cm::CmaHeader addresses{.src_port = id->source.port(), .src = local_gid(*id), .dst = id->remote_gid};
    cm::Id connection;
    if (id->is_datagram()) {
        cm::SidrRequest request;
        request.path = path_of(*id);
        request.service_id = service_id;
        request.addresses = addresses;
        request.private_data = private_data_of(given);
        error = cm_->sidr_request(now_ns(), request, nullptr, connection);
    } else {
        id->local_psn = cm_->random_psn();
        cm::Connect request;
        request.path = path_of(*id);
        request.service_id = service_id;
        request.addresses = addresses;
        request.local = endpoint_of(*id, given, {.vendor_id = command.ece.vendor_id, .options = command.ece.attr_mod});
        request.service = service_of(id->qp_type);
        request.path_mtu = mtu_code(*id);
        request.retry_count = std::min<uint8_t>(given.retry_count, 7);
        request.local_ack_timeout = id->ack_timeout.value_or(kDefaultAckTimeout);
        request.private_data = private_data_of(given);
        error = cm_->connect(now_ns(), request, nullptr, connection);
    }
    if (error != 0) return error;
    connections_[static_cast<uint64_t>(connection)] = id;
    id->connection = connection;
    id->state = IdState::kConnect;
    set_qpn(*id, given.qp_num);
    id->retry_count = std::min<uint8_t>(given.retry_count, 7);
    id->responder_resources = given.responder_resources;
    id->initiator_depth = given.initiator_depth;
    id->offered_multipath = command.ece.vendor_id == kVendorId && (command.ece.attr_mod & kEceMultipath) != 0;
    return 0;
}

int RdmaCmServer::listen(const std::shared_ptr<Channel>& channel, const Header&, In in) {
    const auto command = parse<rdma_ucm_listen>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    if (error = need_devices(); error != 0) return error;
    if (id->state == IdState::kIdle && (error = bind(*id, any_address(AF_INET))) != 0) return error;
    if (id->state != IdState::kBound) return EINVAL;
    if (id->twin && id->source.is_any() && (error = listen_twin(*id, command.backlog)) != 0) return error;
    if (error = ports_.listen(id->port_space, id->source.port(), id); error != 0) return error;
    cm::Listen listen;
    listen.service_id = cm::service_id_of(id->port_space, id->source.port());
    if (id->local) listen.address = local_gid(*id);
    listen.ipv4 = id->source.family == AF_INET || !id->ipv6_only;
    listen.ipv6 = id->source.family == AF_INET6;
    listen.backlog = command.backlog;
    cm::Id listener;
    if (error = cm_->listen(listen, nullptr, listener); error != 0) return error;
    connections_[static_cast<uint64_t>(listener)] = id;
    id->connection = listener;
    id->state = IdState::kListen;
    return 0;
}

// Without parameters this is the active side: its QP is ready, so the RTU is sent.
int RdmaCmServer::accept(const std::shared_ptr<Channel>& channel, const Header&, In in) {
    const auto command = parse<rdma_ucm_accept>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    const rdma_ucm_conn_param& given = command.conn_param;
    if (id->state != IdState::kConnect) return EINVAL;
    if (given.valid == 0) return cm_->confirm(now_ns(), id->connection, {});
    if (id->is_datagram()) {
        cm::SidrReply reply;
        reply.qpn = given.qp_num;
        reply.qkey = given.qkey != 0 ? given.qkey : kUdpQkey;
        reply.private_data = private_data_of(given);
        error = cm_->sidr_reply(now_ns(), id->connection, reply);
    } else {
        const cm::Ece ece{.vendor_id = command.ece.vendor_id, .options = command.ece.attr_mod};
        cm::Accept reply;
        reply.local = endpoint_of(*id, given, ece_of_reply(*id, given.qp_num, ece));
        reply.private_data = private_data_of(given);
        error = cm_->accept(now_ns(), id->connection, reply);
    }
    if (error != 0) return error;
    if (!id->is_datagram()) {
        set_qpn(*id, given.qp_num);
        id->responder_resources = given.responder_resources;
        id->initiator_depth = given.initiator_depth;
    }
    id->uid = command.uid;  // from here on the program can identify events of this id
    return 0;
}

int RdmaCmServer::reject(const std::shared_ptr<Channel>& channel, const Header&, In in) {
    const auto command = parse<rdma_ucm_reject>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    const auto reason =
        command.reason == 0 ? cm::RejReason::kConsumerDefined : static_cast<cm::RejReason>(command.reason);
    if (reason != cm::RejReason::kConsumerDefined && reason != cm::RejReason::kVendorOption) return EINVAL;
    if (id->connection == cm::Id::kNone) return EINVAL;
    const std::span<const uint8_t> data(command.private_data, command.private_data_len);
    if (!id->is_datagram())
        return cm_->reject(now_ns(), id->connection, {.reason = reason, .ari = {}, .private_data = data});
    cm::SidrReply reply;
    reply.status = cm::SidrStatus::kReject;
    reply.private_data = data;
    return cm_->sidr_reply(now_ns(), id->connection, reply);
}

// Also accepts an id that is disconnected or was never established, for which nothing is left to do.
int RdmaCmServer::disconnect(const std::shared_ptr<Channel>& channel, const Header&, In in) {
    const auto command = parse<rdma_ucm_disconnect>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    if (id->connection == cm::Id::kNone || id->state == IdState::kListen) return EINVAL;
    if (!id->is_datagram()) cm_->disconnect(now_ns(), id->connection, {});
    return 0;
}

int RdmaCmServer::notify(const std::shared_ptr<Channel>& channel, const Header&, In in) {
    const auto command = parse<rdma_ucm_notify>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    if (command.event != IBV_EVENT_COMM_EST || id->connection == cm::Id::kNone) return EINVAL;
    return cm_->establish(now_ns(), id->connection);
}

// Pushes an event of the program (rdma_write_cm_event) or of librdmacm (rdma_resolve_addrinfo).
int RdmaCmServer::write_cm_event(const std::shared_ptr<Channel>& channel, const Header&, In in) {
    const auto command = parse<WriteCmEvent>(in);
    const auto type = static_cast<EventType>(command.event);
    if (type != EventType::kUser && type != EventType::kInternal) return EINVAL;
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    Event event;
    std::memcpy(&event.response.param, &command.argument, sizeof(command.argument));
    push(*id, event, type, static_cast<int>(command.status));
    return 0;
}

int RdmaCmServer::init_qp_attr(const std::shared_ptr<Channel>& channel, const Header& header, In in) {
    const auto command = parse<rdma_ucm_init_qp_attr>(in);
    int error;
    Id* const id = find(channel, command.id, &error);
    if (id == nullptr) return error;
    if (!id->local || command.qp_state > IBV_QPS_ERR) return EINVAL;
    // An XRC QP works in one direction.
    const bool datagram = id->is_datagram(), reliable = !datagram && id->qp_type != IBV_QPT_UC,
               responds = reliable && id->qp_type != IBV_QPT_XRC_SEND,
               requests = reliable && id->qp_type != IBV_QPT_XRC_RECV;
    ib_uverbs_qp_attr attr{};
    attr.qp_state = command.qp_state;
    attr.qp_attr_mask = IBV_QP_STATE;
    switch (command.qp_state) {
        case IBV_QPS_INIT:
            attr.qp_attr_mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
            attr.port_num = 1;
            if (datagram) {
                attr.qp_attr_mask |= IBV_QP_QKEY;
                attr.qkey = kUdpQkey;
            } else {
                attr.qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
                attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
                if (id->responder_resources != 0)
                    attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
            }
            break;
        case IBV_QPS_RTR:
            if (datagram) break;
            if (!id->remote) return EINVAL;
            attr.qp_attr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            attr.ah_attr = address_of(*id, id->remote_gid);
            attr.path_mtu = id->remote->path_mtu;
            attr.dest_qp_num = id->remote->qpn;
            attr.rq_psn = id->local_psn;
            if (responds) {
                attr.qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
                attr.max_dest_rd_atomic = id->responder_resources;
                attr.min_rnr_timer = kMinRnrTimer;
            }
            break;
        case IBV_QPS_RTS:
            attr.qp_attr_mask |= IBV_QP_SQ_PSN;
            if (datagram) break;
            if (!id->remote) return EINVAL;
            attr.sq_psn = id->remote->psn;
            if (reliable) {
                attr.qp_attr_mask |= IBV_QP_TIMEOUT;
                attr.timeout = id->ack_timeout.value_or(id->remote->ack_timeout);
            }
            if (requests) {
                attr.qp_attr_mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
                attr.retry_cnt = id->remote->retry_count;
                attr.rnr_retry = id->remote->rnr_retry_count;
                attr.max_rd_atomic = id->initiator_depth;
            }
            break;
        default:
            return EINVAL;
    }
    return respond(command.response, header, attr);
}

}  // namespace rove::verbs::ucma
